//! Services that cannot decide, and a Redis server that hangs.

use std::time::Duration;

use tokio::time::sleep;

use super::process::{Caller, Envoy, Program, gateway};
use crate::client::{block_on, wait_for_stat};
use crate::server::{Place, SHARED, Server, limit};
use tollgate_testing::redis::Server as Redis;

// G112
#[test]
fn failure_mode_decides_without_service() {
    let Some(program) = Program::find() else { return };
    let place = Place::new();
    let folder = place.path("rules");
    let server = Server::start(&[&folder], "--start-without-rules");
    let envoy = program.start(&gateway(&[server.address("grpc")], "10s", ""));
    block_on(async {
        let mut open = Caller::connect(envoy.address("open")).await;
        let mut strict = Caller::connect(envoy.address("strict")).await;
        // There are no rules yet: the answer is UNAVAILABLE.
        assert_eq!((open.status("a").await, strict.status("a").await), (200, 500));
        assert_eq!(envoy.counter(".ratelimit.error").await, 2);
        assert_eq!(envoy.counter(".ratelimit.failure_mode_allowed").await, 1);

        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("limits.yaml"), limit("", "key", 1)).unwrap();
        wait_for_stat(&server.address("debug"), "tollgate_rules", 1).await;
        assert_eq!((open.status("a").await, open.status("a").await), (200, 429));
        assert_eq!((strict.status("b").await, strict.status("b").await), (200, 429));
        assert_eq!(envoy.counter(".ratelimit.error").await, 2);

        server.stop();
        assert_eq!((open.status("a").await, strict.status("a").await), (200, 500));
        assert_eq!(envoy.counter(".ratelimit.error").await, 4);
        assert_eq!(envoy.counter(".ratelimit.failure_mode_allowed").await, 2);
    });
}

/// A service whose rule waits much longer for the Redis server than a gateway waits for the service. A request that passes
/// without an answer has status 200, and a decision by the rule's policy has status 429.
fn start_shared(redis: &Redis) -> (Place, Server) {
    let place = Place::with(limit(SHARED, "key", 1_000_000));
    let server = place.start(&format!("--redis {}", redis.url()));
    (place, server)
}

/// Asks until the Redis server decides.
async fn wait_until_shared(caller: &mut Caller, envoy: &Envoy, server: &Server) {
    for _ in 0..1_000 {
        let errors = envoy.counter(".ratelimit.error").await;
        if caller.status("a").await == 200 && envoy.counter(".ratelimit.error").await == errors {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the Redis server decides nothing: {}", server.log());
}

// G112
#[test]
fn hung_redis_delays_no_answer() {
    let Some(program) = Program::find() else { return };
    let Some(redis) = Redis::start() else { return };
    let (_place, server) = start_shared(&redis);
    let envoy = program.start(&gateway(&[server.address("grpc")], "10s", ""));
    block_on(async {
        let mut caller = Caller::connect(envoy.address("open")).await;
        wait_until_shared(&mut caller, &envoy, &server).await;
        redis.pause();
        for request in 0..20 {
            assert_eq!(caller.status("a").await, 429, "{request}");
        }
        redis.resume();
        wait_until_shared(&mut caller, &envoy, &server).await;
        envoy.assert_all_answered().await;
    });
}

// G112
#[test]
#[ignore = "measures milliseconds; .ci/run runs it"]
fn hung_redis_delays_no_answer_beyond_20_ms() {
    let Some(program) = Program::find() else { return };
    let Some(redis) = Redis::start() else { return };
    let (_place, server) = start_shared(&redis);
    let envoy = program.start(&gateway(&[server.address("grpc")], "0.02s", ""));
    block_on(async {
        let mut caller = Caller::connect(envoy.address("open")).await;
        // A busy machine delays any answers of a round. A service that waits for Redis delays the same ones in each round.
        let mut were_in_time = [false; 10];
        for _ in 0..50 {
            wait_until_shared(&mut caller, &envoy, &server).await;
            redis.pause();
            for was_in_time in &mut were_in_time {
                *was_in_time |= caller.status("a").await == 429;
            }
            redis.resume();
            if were_in_time == [true; 10] {
                return;
            }
        }
        panic!("some answers are late in each round: {were_in_time:?} {}", server.log());
    });
}
