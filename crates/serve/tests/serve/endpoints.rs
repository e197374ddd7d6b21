//! What each endpoint answers.

use crate::client::{ASK, Called, Grpc, LIMIT, ONCE, SERVING, block_on, bytes, comes_true, get, http, stat};
use crate::server::Place;

#[test]
fn health_answers_all_names_alike() {
    Place::new().serve("", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for name in ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"] {
            assert_eq!(grpc.health(name).await, SERVING, "{name}");
        }
        let unknown = grpc.call(crate::client::HEALTH, b"\x0a\x01x").await;
        assert_eq!(unknown, Called { status: 5, message: bytes("") });
        assert_eq!(get(&server.address("http"), "/healthcheck").await.body, "OK");
    });
}

#[test]
fn health_waits_for_rules_on_request() {
    let place = Place::with("domain: rl\ndescriptors: []\n");
    place.serve("--unhealthy-without-rules", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        assert_eq!(grpc.health("ratelimit").await, crate::client::NOT_SERVING);
        assert_eq!(get(&server.address("http"), "/healthcheck").await.status, 500);
        place.write("limits.yaml", crate::server::RULES);
        let is_healthy = comes_true(async || grpc.health("ratelimit").await == SERVING);
        assert!(is_healthy.await, "rules do not make the server healthy");
    });
}

#[test]
fn http_endpoint_knows_its_paths_and_methods() {
    Place::new().serve("--max-message 1KiB", async |server| {
        let address = server.address("http");
        let ask = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"once","value":"x"}]}]}"#;
        for (status, code) in [(200, "OK"), (429, "OVER_LIMIT")] {
            let page = http(&address, "POST", "/json", ask).await;
            assert_eq!(page.status, status, "{}", page.body);
            let body: serde_json::Value = serde_json::from_str(&page.body).unwrap();
            assert_eq!(body["overallCode"], code);
        }
        for (method, path, body, status) in [
            ("POST", "/json", "{", 400),
            ("POST", "/json", &*"x".repeat(2_000), 413),
            ("GET", "/json", "", 405),
            ("POST", "/healthcheck", "", 405),
            ("GET", "/", "", 404),
        ] {
            assert_eq!(http(&address, method, path, body).await.status, status, "{method} {path}");
        }
        assert_eq!(http(&address, "GET", "/json", "").await.headers["allow"], "POST");
    });
}

#[test]
fn debug_pages_show_rules_counts_and_keys() {
    Place::with(crate::server::RULES.replacen("unit: year, every: 70", "unit: hour", 1)).serve("", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for _ in 0..3 {
            grpc.ok(LIMIT, &bytes(ONCE)).await;
        }
        let debug = server.address("debug");
        let home = get(&debug, "/").await.body;
        assert!(home.contains("/rlconfig") && home.contains(", serving, 2 rules\n"), "{home}");
        let config = get(&debug, "/rlconfig").await.body;
        let line =
            "rl.generic_key_v: unit=HOUR requests_per_unit=1000000, shadow_mode: false, quota_mode: false";
        assert!(config.contains(line), "{config}");
        assert_eq!(stat(&debug, "ratelimit.service.rate_limit.rl.once.total_hits").await, 3);
        assert_eq!(stat(&debug, "ratelimit.service.rate_limit.rl.once.over_limit").await, 2);
        assert_eq!(stat(&debug, "tollgate_service_answers_total{code=\"OK\"}").await, 3);
        let top = get(&debug, "/top").await.body;
        assert!(top.lines().nth(1).is_some_and(|line| line.contains("2  rl.once  x")), "{top}");
        for (path, field) in
            [("/", "rules"), ("/rlconfig", "rules"), ("/stats", "tollgate_rules"), ("/top", "denied")]
        {
            let page = get(&debug, &format!("{path}?format=json")).await;
            let json: serde_json::Value = serde_json::from_str(&page.body).unwrap();
            assert!(!json[field].is_null(), "{path}: {json}");
        }
        assert_eq!(http(&debug, "POST", "/stats", "").await.status, 405);
        assert_eq!(get(&debug, "/no").await.status, 404);
    });
}

#[test]
fn metrics_have_both_kinds_of_names() {
    Place::new().serve("--metrics 127.0.0.1:0 --go-metrics --metrics-path /m", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for _ in 0..2 {
            grpc.ok(LIMIT, &bytes(ONCE)).await;
        }
        let page = get(&server.address("metrics"), "/m").await;
        assert!(page.headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
        for line in [
            "tollgate_requests_total{domain=\"rl\",rule=\"rl.once\",decision=\"denied\"} 1",
            "tollgate_service_requests_total{method=\"ShouldRateLimit\"} 2",
            "tollgate_service_answer_duration_seconds_bucket{le=\"+Inf\"} 2",
            "tollgate_service_serving 1",
            "tollgate_rules 2",
            "ratelimit_service_rate_limit_over_limit{domain=\"rl\",key1=\"once\"} 1",
            "ratelimit_service_rate_limit_total_hits{domain=\"rl\",key1=\"generic_key_v\"} 0",
            "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 2",
            "ratelimit_service_response_time_seconds_count{grpc_method=\"ShouldRateLimit\"} 2",
            "ratelimit_service_config_load_success 1",
        ] {
            assert!(page.body.lines().any(|found| found == line), "{line} is not in {}", page.body);
        }
        assert!(
            !page.body.contains("TOLLGATE."),
            "this program has no endpoint for Redis clients: {}",
            page.body
        );
        let bounds: Vec<&str> = page
            .body
            .lines()
            .filter(|line| line.starts_with("ratelimit_service_response_time_seconds_bucket"))
            .collect();
        assert!(bounds[0].contains("le=\"0.00005\"") && bounds[9].contains("le=\"0.02\""), "{bounds:?}");
        assert_eq!(get(&server.address("metrics"), "/metrics").await.status, 404);
    });
}

/// Cause: the units within the limit were all units less those above it. Symptom: of a denied cost that crosses the limit,
/// the units below it counted as within it. The Go service counts none.
// G105
#[test]
fn go_counts_follow_the_go_service() {
    let place = Place::with(
        "domain: rl\ntollgate: {}\ndescriptors:\n  - { key: a, rate_limit: { unit: year, every: 70, requests_per_unit: 20 } }\n  \
         - { key: s, shadow_mode: true, rate_limit: { unit: year, every: 70, requests_per_unit: 20 } }\n  \
         - { key: u, rate_limit: { unlimited: true } }\n",
    );
    for charging in ["count-denials", "count-first", "all-or-nothing"] {
        let args = format!("--metrics 127.0.0.1:0 --go-metrics --charging {charging}");
        let server = place.start(&args);
        block_on(async {
            for (key, hits, status) in
                [("a", 19, 200), ("a", 3, 429), ("s", 19, 200), ("s", 3, 200), ("u", 5, 200)]
            {
                let entries = format!(r#"{{"entries":[{{"key":"{key}","value":"x"}}]}}"#);
                let body = format!(r#"{{"domain":"rl","hitsAddend":{hits},"descriptors":[{entries}]}}"#);
                assert_eq!(http(&server.address("http"), "POST", "/json", &body).await.status, status);
            }
            let page = get(&server.address("metrics"), "/metrics").await.body;
            // Of a cost that is charged, the parts on both sides of the limit are counted.
            let (near, over) = if charging == "all-or-nothing" { (3, 3) } else { (4, 2) };
            for (key, count, value) in [
                ("a", "total_hits", 22),
                ("a", "within_limit", 19),
                ("a", "near_limit", near),
                ("a", "over_limit", over),
                ("a", "shadow_mode", 0),
                ("s", "within_limit", 19),
                ("s", "shadow_mode", 3),
                ("u", "total_hits", 0),
                ("u", "within_limit", 0),
            ] {
                let line =
                    format!("ratelimit_service_rate_limit_{count}{{domain=\"rl\",key1=\"{key}\"}} {value}");
                assert!(page.lines().any(|found| found == line), "{charging}: {line} is not in {page}");
            }
            assert!(page.lines().any(|line| line == "ratelimit_service_global_shadow_mode 0"), "{page}");
        });
    }
}

// G105
#[test]
fn dry_run_of_all_rules_is_counted() {
    let args = "--shadow --metrics 127.0.0.1:0 --go-metrics --go-metrics-milliseconds";
    Place::new().serve(args, async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for _ in 0..3 {
            grpc.ok(LIMIT, &bytes(ONCE)).await;
        }
        let page = get(&server.address("metrics"), "/metrics").await.body;
        for line in [
            "tollgate_service_shadow_denied_total 2",
            "ratelimit_service_global_shadow_mode 2",
            "ratelimit_service_rate_limit_over_limit{domain=\"rl\",key1=\"once\"} 2",
            // The rule itself has no `shadow_mode`.
            "ratelimit_service_rate_limit_shadow_mode{domain=\"rl\",key1=\"once\"} 0",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
        }
        let buckets = |name: &str| {
            let of = |line: &&str| line.starts_with(&format!("{name}_bucket"));
            page.lines()
                .filter(of)
                .map(|line| line.split('"').rev().nth(1).unwrap())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(buckets("tollgate_service_answer_duration_seconds").starts_with("0.00005 0.0001 "), "{page}");
        assert!(buckets("ratelimit_service_response_time_seconds").starts_with("0.05 0.1 0.25 "), "{page}");
        assert!(buckets("ratelimit_service_response_time_seconds").ends_with(" 15 20 +Inf"), "{page}");
    });
}

#[test]
fn reflection_and_kuadrant_are_off_by_default() {
    let place = Place::new();
    const CHECK: &str = "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit";
    const REFLECT: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    for (args, kuadrant, reflection) in [("", 12, 12), ("--kuadrant --reflection", 0, 0)] {
        let server = place.start(args);
        block_on(async {
            let mut grpc = Grpc::connect(&server.address("grpc")).await;
            assert_eq!(grpc.call(CHECK, &bytes(ASK)).await.status, kuadrant);
            // list_services
            assert_eq!(grpc.call(REFLECT, b"\x3a\x01*").await.status, reflection);
        });
    }
}
