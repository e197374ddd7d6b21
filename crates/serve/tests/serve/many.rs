//! Ten thousand rules: their memory follows their use.

use crate::client::{Grpc, LIMIT, asking, block_on, comes_true, stat};
use crate::server::{Place, eventually};

const RULES: u64 = 10_000;
const USED: u64 = 1_000;
const MOST: u64 = 92 << 20;
/// The most after loads. While a load runs, there are the rules of two of them, and the allocator may keep the room of both. If
/// the rules of eight loads stayed, they would take twice as much.
const MOST_AFTER_LOADS: u64 = 144 << 20;

/// Returns a rule for each tenant, with a count for each client. The first tenant's limit is `first`.
fn rules(first: u64) -> String {
    let line = |tenant| {
        let limit = if tenant == 0 { first } else { 9 };
        format!(
            "  - {{ key: tenant, value: t{tenant}, descriptors: [ {{ key: client, rate_limit: {{ unit: year, every: 70, requests_per_unit: {limit} }} }} ] }}\n"
        )
    };
    format!("domain: rl\ntollgate: {{}}\ndescriptors:\n{}", (0..RULES).map(line).collect::<String>())
}

const SUCCESSES: &str = "tollgate_reload_total{result=\"success\"}";
/// The overall code of an answer.
const OK: &[u8] = &[8, 1];

// G68
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn ten_thousand_rules_take_memory_as_they_are_used() {
    let place = Place::with(rules(1));
    let server = place.start("");
    let start = server.resident_bytes();
    block_on(async {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for tenant in 0..USED {
            assert!(
                grpc.ok(LIMIT, &asking(&[("tenant", &format!("t{tenant}")), ("client", "x")]))
                    .await
                    .starts_with(OK),
                "{tenant}"
            );
        }
    });
    let used = server.resident_bytes();
    assert!(used <= MOST, "{start} bytes at the start, {used} after {USED} rules were used");
    for reload in 2..10 {
        place.write("limits.yaml", rules(reload));
        // The service loads at a low priority, so each load takes minutes beside other busy processes.
        let is_loaded =
            || block_on(comes_true(async || stat(&server.address("debug"), SUCCESSES).await >= reload));
        assert!((0..5).any(|_| is_loaded()), "{}", server.log());
    }
    // A load is counted before the rules that it replaces are freed.
    let is_freed = eventually(|| server.resident_bytes() <= MOST_AFTER_LOADS);
    assert!(is_freed, "{used} bytes before the loads, {} after them", server.resident_bytes());
}
