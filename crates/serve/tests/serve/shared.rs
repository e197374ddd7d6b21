//! Rules that a Redis server counts.

use std::time::Duration;

use crate::client::{Grpc, LIMIT, block_on, bytes, comes_true, http};
use crate::server::Place;
use tollgate_testing::redis::{Proxy, Server as Redis};

/// Asks for (a, x) of the domain `rl`, with this many hits. Returns the overall code.
async fn ask(grpc: &mut Grpc, hits: u8) -> u8 {
    let mut message = bytes("0a02726c12080a060a016112017818").to_vec();
    message.push(hits);
    grpc.ok(LIMIT, &message).await[1]
}

/// A question for no unit of (a, x). It charges nothing.
const NOTHING: &str =
    r#"{"domain":"rl","descriptors":[{"entries":[{"key":"a","value":"x"}],"hitsAddend":"0"}]}"#;

// G108
#[test]
fn end_reports_units_to_the_server() {
    let Some(redis) = Redis::start() else { return };
    for mode in ["lease", "write-back"] {
        let place = Place::with(format!(
            "domain: rl\ntollgate: {{ store: redis, mode: {mode}, timeout: 60s }}\ndescriptors:\n  - key: a\n    \
                 rate_limit: {{ unit: year, every: 70, requests_per_unit: 10, name: {mode} }}\n"
        ));
        let args = format!("--redis {} --deadline 60s", redis.url());
        let first = place.start(&args);
        block_on(async {
            assert_eq!(ask(&mut Grpc::connect(&first.address("grpc")).await, 7).await, 1, "{mode}");
        });
        first.stop();
        let second = place.start(&args);
        block_on(async {
            let mut grpc = Grpc::connect(&second.address("grpc")).await;
            // The units that the first process used count, and those that it held do not.
            assert_eq!(ask(&mut grpc, 3).await, 1, "{mode}");
            // With write-back, a process learns a moment later what others have used. Without the report, 7 would be left.
            let endpoint = second.address("http");
            let is_used_up =
                async || !http(&endpoint, "POST", "/json", NOTHING).await.body.contains("limitRemaining");
            assert!(mode == "lease" || comes_true(is_used_up).await, "{mode}");
            assert_eq!(ask(&mut grpc, 1).await, 2, "{mode}");
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
    let place = Place::with(
        "domain: rl
tollgate: { store: redis, mode: atomic }
descriptors:
  - { key: a, rate_limit: { unit: year, every: 70, requests_per_unit: 2, timeout: 60s } }
  - { key: b, rate_limit: { unit: year, every: 70, requests_per_unit: 99, timeout: 1ms } }
",
    );
    let args = format!("--redis {} --deadline 60s --store-away unavailable", proxy.url());
    place.serve(&args, async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let [a, both] = ["0a02726c12080a060a0161120178", "0a02726c12080a060a016112017812080a060a0162120178"];
        // Much longer than a busy machine delays the shorter time-out.
        proxy.delay(Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(grpc.call(LIMIT, &bytes(both)).await.status, 14);
        }
        proxy.delay(Duration::ZERO);
        // The breaker may be open after the late answers, and closes again.
        let mut decided = async |message: &str| {
            let mut called = grpc.call(LIMIT, &bytes(message)).await;
            while called.status == 14 {
                called = grpc.call(LIMIT, &bytes(message)).await;
            }
            called.message[1]
        };
        // The charges of the rule that was asked in time were refunded.
        assert_eq!([decided(a).await, decided(a).await], [1, 1]);
        // It denies the request, whatever the other rule would say.
        assert_eq!(decided(both).await, 2);
    });
}
