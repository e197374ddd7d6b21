//! One file of rules, each for one tenant with a count for each client, and what a user would write otherwise: a map
//! from the tenant to a limiter of governor.

use std::collections::HashMap;
use std::fmt::Write as _;

use serde_json::{Value, json};
use tollgate_rules::{Config, Descriptor, Rules};

use crate::child::{resident, serve};
use crate::limiters::{GovernorOf, PLENTY, call, governor, turn};
use crate::subject::Contender;
use crate::support::{XorShift, stopwatch};

pub(crate) const SUBJECTS: [&str; 2] = ["tollgate rules", "governor, a map by tenant"];
/// The requests of a turn with many rules, which starts again after the last.
const REQUESTS: u64 = 1 << 17;

#[derive(Clone)]
struct Request {
    tenant: String,
    client: String,
}

fn request(tenant: u64) -> Request {
    Request { tenant: format!("t{tenant}"), client: "203.0.113.7".to_owned() }
}

fn text(size: u64) -> String {
    let mut text = "domain: bench\ntollgate: {}\ndescriptors:\n".to_owned();
    for tenant in 0..size {
        let limit =
            "rate_limit: { unit: second, requests_per_unit: 10000000, algorithm: gcra, burst: 30000000 }";
        writeln!(
            text,
            "  - {{ key: tenant, value: t{tenant}, descriptors: [ {{ key: client, {limit} }} ] }}"
        )
        .expect("writing to a String never fails");
    }
    text
}

/// Returns the contender, and the milliseconds in which it was read and loaded.
fn build(subject: &str, size: u64) -> (Box<dyn Contender<Request>>, Value) {
    if subject == SUBJECTS[0] {
        let text = text(size);
        let start = stopwatch();
        let config = Config::from_yaml("bench.yaml", &text).unwrap_or_else(|error| panic!("{error}"));
        let rules = Rules::builder().load([config]).unwrap_or_else(|error| panic!("{error}"));
        let load_ms = start.elapsed().as_secs_f64() * 1e3;
        let check = call(move |request: &Request| {
            let entries = [("tenant", &*request.tenant), ("client", &*request.client)];
            rules.check("bench", &[Descriptor::new(&entries)]).is_allowed()
        });
        return (check, json!(load_ms));
    }
    let limiters: HashMap<String, GovernorOf<String>, ahash::RandomState> =
        (0..size).map(|tenant| (format!("t{tenant}"), governor(PLENTY))).collect();
    let check = call(move |request: &Request| {
        limiters.get(&request.tenant).is_none_or(|limiter| limiter.check_key(&request.client).is_ok())
    });
    (check, Value::Null)
}

/// In a child process: measures one subject with this number of rules.
pub(crate) fn answer(subject: &str, size: u64, calls: u64) {
    drop(build(subject, 1));
    let before = resident();
    let (contender, load_ms) = build(subject, size);
    let loaded = resident().saturating_sub(before);
    for tenant in 0..size {
        assert_eq!(contender.run(&[request(tenant)], 1), 1);
    }
    let used = resident().saturating_sub(before);
    let mut random = XorShift::new(size);
    // With few rules, the requests fit in the second-level cache.
    let requests = if size <= 1_000 { 1 << 10 } else { REQUESTS };
    let stream = vec![(0..requests).map(|_| request(random.below(size))).collect::<Vec<_>>()];
    serve(&json!({ "load_ms": load_ms, "bytes_loaded": loaded, "bytes": used }), || {
        turn(&*contender, &stream, calls)
    });
}
