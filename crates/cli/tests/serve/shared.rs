//! Rules that a Redis server counts.

use std::time::Duration;

use tokio::time::sleep;

use crate::client::{Grpc, LIMIT, block_on, bytes};
use crate::server::{Place, Server};
use tollgate_testing::redis::{Proxy, Server as Redis};

/// Asks for (a, x) of the domain `rl`, with this many hits. Returns the overall code.
async fn ask(grpc: &mut Grpc, hits: u8) -> u8 {
    let mut message = bytes("0a02726c12080a060a016112017818").to_vec();
    message.push(hits);
    grpc.ok(LIMIT, &message).await[1]
}

#[test]
fn end_reports_units_to_the_server() {
    let Some(redis) = Redis::start() else { return };
    for mode in ["lease", "write-back"] {
        let place = Place::new();
        place.write(
            "limits.yaml",
            format!(
                "domain: rl\ntollgate: {{ store: redis, mode: {mode}, timeout: 5s }}\ndescriptors:\n  - key: a\n    \
                 rate_limit: {{ unit: day, requests_per_unit: 10, name: {mode} }}\n"
            ),
        );
        let args = format!("--redis {} --deadline 5s", redis.url());
        let first = Server::start(&[&place.rules()], &args);
        block_on(async {
            assert_eq!(ask(&mut Grpc::connect(&first.address("grpc")).await, 7).await, 1, "{mode}");
        });
        first.stop();
        let second = Server::start(&[&place.rules()], &args);
        block_on(async {
            let mut grpc = Grpc::connect(&second.address("grpc")).await;
            // The units that the first process used count, and those that it held do not.
            assert_eq!(ask(&mut grpc, 3).await, 1, "{mode}");
            let mut codes = vec![ask(&mut grpc, 1).await];
            // With write-back, a process learns a moment later what others have used. Without the report, 7 would be left.
            while mode == "write-back" && codes.len() < 6 && codes.last() == Some(&1) {
                sleep(Duration::from_millis(200)).await;
                codes.push(ask(&mut grpc, 1).await);
            }
            assert_eq!(codes.last(), Some(&2), "{mode}: {codes:?}");
        });
        second.stop();
        redis.command::<()>(&["FLUSHALL"]);
    }
}

/// One rule waits long enough for the server, and the other one does not.
#[test]
fn unavailable_answer_charges_no_rule() {
    let Some(redis) = Redis::start() else { return };
    let proxy = Proxy::start(redis.port());
    let place = Place::new();
    place.write(
        "limits.yaml",
        "domain: rl
tollgate: { store: redis, mode: atomic }
descriptors:
  - { key: a, rate_limit: { unit: year, requests_per_unit: 2, timeout: 5s } }
  - { key: b, rate_limit: { unit: year, requests_per_unit: 99, timeout: 1ms } }
",
    );
    let args = format!("--redis {} --deadline 5s --store-away unavailable", proxy.url());
    let server = Server::start(&[&place.rules()], &args);
    block_on(async {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let [a, both] = ["0a02726c12080a060a0161120178", "0a02726c12080a060a016112017812080a060a0162120178"];
        proxy.delay(Duration::from_millis(20));
        for _ in 0..3 {
            assert_eq!(grpc.call(LIMIT, &bytes(both)).await.status, 14);
        }
        // The charges of the rule that was asked in time were refunded.
        for code in [1, 1] {
            assert_eq!(grpc.ok(LIMIT, &bytes(a)).await[1], code);
        }
        // It denies the request, whatever the other rule would say.
        assert_eq!(grpc.ok(LIMIT, &bytes(both)).await[1], 2);
    });
    server.stop();
}
