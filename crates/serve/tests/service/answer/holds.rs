//! `Reserve` and `Commit`, and queries that hold units until a report settles them.

use tollgate_serve::proto::{CommitRequest, ReserveRequest};
use tonic::Code as Status;

use super::*;

const RULES: &str = r"
tollgate: {}
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 100, hold: { life: 60s, most: 80% } } }
  - { key: plain, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: log, rate_limit: { unit: day, requests_per_unit: 100, algorithm: sliding-log } }
  - { key: own, rate_limit: { unit: day, requests_per_unit: 10, hold: { units: 4 } } }
  - { key: export, rate_limit: { in_progress: 1 } }
  - { key: stream, rate_limit: { in_progress: 1, hold: { units: 1 } } }
";

/// A service without a twin, whose holds would have identities of their own.
fn service(rules: &str) -> Service {
    Service { twin: None, ..super::service(rules) }
}

type Failure = (Status, String);

fn failure(status: tonic::Status) -> Failure {
    (status.code(), status.message().to_owned())
}

impl Service {
    fn reserve(&self, key: &str, amount: u64, ttl: i64) -> Result<(i32, String), Failure> {
        let RateLimitRequest { domain, descriptors, .. } = request([of([(key, "alice")])]);
        let ttl = (ttl != 0).then_some(prost_types::Duration { seconds: ttl, nanos: 0 });
        let request = ReserveRequest { domain, descriptors, amount, ttl };
        run(self.answerer.reserve(request, deadline()))
            .map(|answer| (answer.code, answer.reservation_id))
            .map_err(failure)
    }

    fn commit(&self, key: &str, id: &str, actual_amount: u64) -> Result<bool, Failure> {
        let RateLimitRequest { domain, descriptors, .. } = request([of([(key, "alice")])]);
        let reservation_id = Bytes::copy_from_slice(id.as_bytes());
        let request = CommitRequest { domain, descriptors, reservation_id, actual_amount };
        run(self.answerer.commit(request, deadline()))
            .map(|answer| answer.reservation_released)
            .map_err(failure)
    }

    /// Returns the remaining units of a query.
    fn left(&self, key: &str) -> u32 {
        self.ask([with_hits(of([(key, "alice")]), 0)]).statuses[0].limit_remaining
    }
}

const OK: i32 = Code::Ok as i32;
const OVER: i32 = Code::OverLimit as i32;

// G135
#[test]
fn reserve_holds_and_commit_settles() {
    let service = service(RULES);
    let (code, id) = service.reserve("user", 70, 0).unwrap();
    assert_eq!((code, id.len(), service.left("user")), (OK, 32, 30));
    assert_eq!(service.reserve("user", 20, 0).unwrap(), (OVER, String::new()), "90 would be held");
    assert_eq!(service.reserve("user", 40, 0).unwrap(), (OVER, String::new()), "30 are left");
    assert_eq!(service.commit("user", &id, 25), Ok(true));
    assert_eq!(service.left("user"), 75);
    assert_eq!(service.commit("user", &id, 5), Ok(false), "a second commit is a report");
    assert_eq!(service.left("user"), 70);
    // No rule applies to the last one at its reservation. A load could add one before the commit.
    let (_, of_no_rule) = service.reserve("none", 9, 0).unwrap();
    let unknown =
        ["", "x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "________________________________", &of_no_rule];
    for id in unknown {
        assert_eq!(service.commit("user", id, 10), Ok(false), "{id}");
    }
    assert_eq!(service.left("user"), 20, "a commit always counts the actual amount");
    let counts = service.answerer.meters().read();
    assert_eq!((counts.entries[4..6].to_vec(), counts.over_limit), (vec![4, 7], 2));
}

// G135
#[test]
fn reservation_ends_after_its_time() {
    for (ttl, life) in [(0, 60), (1_000, 60), (7, 7)] {
        let service = service(RULES);
        let (_, id) = service.reserve("user", 80, ttl).unwrap();
        service.clock.advance(Duration::from_secs(life - 1));
        assert_eq!(service.left("user"), 20, "{ttl}");
        service.clock.advance(Duration::from_secs(1));
        assert_eq!(service.left("user"), 100, "{ttl}");
        assert_eq!(service.commit("user", &id, 30), Ok(false));
        assert_eq!(service.left("user"), 70, "{ttl}: used units are counted");
    }
    assert_eq!(service(RULES).reserve("user", 1, -1).unwrap_err().0, Status::InvalidArgument);
}

/// A client of Kuadrant's operator reserves 0 units by default, and commits the used units.
// G135
#[test]
fn reserve_of_nothing_is_a_query() {
    let service = service(RULES);
    let (code, id) = service.reserve("user", 0, 0).unwrap();
    assert_eq!((code, service.left("user")), (OK, 100));
    assert_eq!(service.commit("user", &id, 120), Ok(false));
    assert_eq!(service.reserve("user", 0, 0).unwrap(), (OVER, String::new()), "no unit is left");
}

// G135
#[test]
fn limits_that_cannot_hold_are_named() {
    let service = service(RULES);
    for key in ["plain", "log"] {
        for (code, message) in
            [service.reserve(key, 1, 0).unwrap_err(), service.commit(key, "", 1).unwrap_err()]
        {
            assert_eq!(code, Status::Unimplemented);
            assert!(message.contains("hold: {}"), "{message}");
        }
        assert_eq!(service.left(key), 100);
    }
    assert_eq!(service.reserve("none", 9, 0).unwrap().0, OK, "no rule applies");
    let holding = service_with(RULES, Settings::default(), |builder| builder.hold_all(true));
    let service = Service { twin: None, ..holding };
    let (_, id) = service.reserve("plain", 90, 0).unwrap();
    assert_eq!((service.left("plain"), service.commit("plain", &id, 1)), (10, Ok(true)));
    assert_eq!(service.left("plain"), 99);
    assert_eq!(service.reserve("log", 1, 0).unwrap_err().0, Status::Unimplemented);
}

/// The query at the start of a stream holds what the rule says, and the report at its end settles it.
// G135
#[test]
fn query_holds_and_report_settles() {
    let service = service(RULES);
    let report = |hits| service.ask([with_hits(of([("own", "alice")]), hits)]).overall_code;
    assert_eq!([report(0), report(0), report(0)], [OK, OK, OVER]);
    assert_eq!(report(1), OK);
    assert_eq!(report(0), OK, "nine of ten are used or held");
    assert_eq!(report(0), OVER);
    service.clock.advance(Duration::from_secs(60));
    assert_eq!(report(9), OK, "lost reports give the units back");
}

// G135
#[test]
fn kuadrants_check_holds_only_if_it_says_ok() {
    let text = "tollgate: {}\ndescriptors:\n  - { key: a, rate_limits: [ { unit: day, requests_per_unit: 10, hold: { units: 4 } },\n      \
                { unit: hour, requests_per_unit: 5, name: hourly } ] }";
    let service = service(text);
    let call = |entry, hits| {
        let request = RateLimitRequest { hits_addend: hits, ..request([of([("a", "alice")])]) };
        service.call(request, entry).unwrap().overall_code
    };
    assert_eq!([call(Entry::Check, 1), call(Entry::Check, 1), call(Entry::Check, 1)], [OK, OK, OVER]);
    assert_eq!([call(Entry::Report, 5), call(Entry::Check, 1)], [OK, OVER], "the hourly limit is full");
    assert_eq!(call(Entry::Report, 1), OK);
    service.clock.advance(Duration::from_secs(3_600));
    assert_eq!(
        [call(Entry::Check, 1), call(Entry::Check, 1)],
        [OK, OVER],
        "six are used, and no hold was left"
    );
}

// G135
#[test]
fn request_is_in_progress_from_its_query_to_its_report() {
    let service = service(RULES);
    let ask = |hits| service.ask([with_hits(of([("stream", "alice")]), hits)]).overall_code;
    assert_eq!([ask(0), ask(0), ask(500), ask(0)], [OK, OVER, OK, OK]);
    let service = self::service(RULES);
    let call = |entry| {
        let request = RateLimitRequest { hits_addend: 1, ..request([of([("stream", "alice")])]) };
        service.call(request, entry).unwrap().overall_code
    };
    let calls = [Entry::Check, Entry::Check, Entry::Report, Entry::Check];
    assert_eq!(calls.map(call), [OK, OVER, OK, OK]);
}

/// The answer to hits that are given back tells the remaining units, and holds nothing.
// G135
#[test]
fn hits_that_are_given_back_hold_nothing() {
    let settings = Settings { negative_hits: true, ..Settings::default() };
    let service = service_with(RULES, settings, |builder| builder);
    let own = |hits| with_hits(of([("own", "alice")]), hits);
    let back = || RateLimitDescriptor { is_negative_hits: true, ..own(5) };
    assert_eq!(service.ask([own(5)]).overall_code, OK);
    assert_eq!(service.ask([back()]).statuses[0].limit_remaining, 10);
    let _ = (service.ask([back()]), service.ask([back()]));
    assert_eq!(service.ask([own(0)]).overall_code, OK, "nothing is in use");
}

/// The gateway gets no answer from the rules, so the request is not in progress, and nothing will settle it.
// G135
#[test]
fn request_without_an_answer_holds_nothing() {
    let rules = "tollgate: { timeout: 500ms }\ndescriptors:\n  - { key: shared, rate_limit: { unit: year, requests_per_unit: 9, store: redis, mode: atomic, on_failure: open } }\n  \
                 - { key: export, rate_limit: { in_progress: 1 } }\n  - { key: own, rate_limit: { unit: day, requests_per_unit: 10, hold: { units: 4 } } }";
    let settings = Settings { unavailable_without_store: true, ..Settings::default() };
    let client = tollgate_redis::Client::open("redis://127.0.0.1:1/").unwrap();
    let service = service_with(rules, settings, |builder| builder.shared(client.clone()));
    let all = [of([("shared", "")]), of([("export", "alice")]), with_hits(of([("own", "alice")]), 0)];
    for _ in 0..2 {
        let status = service.call(request(all.clone()), Entry::ShouldRateLimit).unwrap_err();
        assert_eq!(status.code(), Status::Unavailable);
    }
    let own = service.ask([with_hits(of([("own", "alice")]), 0)]).statuses[0].limit_remaining;
    assert_eq!((service.ask([of([("export", "alice")])]).overall_code, own), (OK, 6));
}

/// A reservation that is refused charges nothing, also if a descriptor has its own cost.
// G135
#[test]
fn refused_reservation_charges_nothing() {
    let service = service(
        "tollgate: {}\ndescriptors:\n  - { key: user, rate_limit: { unit: day, requests_per_unit: 100, hold: {} } }\n  \
         - { key: full, rate_limit: { unit: day, requests_per_unit: 1, hold: {} } }",
    );
    let reserve = |descriptors: Vec<RateLimitDescriptor>| {
        let RateLimitRequest { domain, descriptors, .. } = request(descriptors);
        run(service
            .answerer
            .reserve(ReserveRequest { domain, descriptors, amount: 1, ttl: None }, deadline()))
        .unwrap()
        .code
    };
    assert_eq!(reserve(vec![of([("full", "alice")])]), OK);
    let user = || with_hits(of([("user", "alice")]), 5);
    assert_eq!(reserve(vec![user(), with_hits(of([("full", "alice")]), 0)]), OVER, "no unit is left");
    assert_eq!(service.left("user"), 100);
}

/// A dry run shows in the metrics what would be denied, whichever way a request comes.
// G135
#[test]
fn reservation_that_a_dry_run_would_deny_is_counted() {
    for entry in [Entry::ShouldRateLimit, Entry::Reserve] {
        let service = service_with(RULES, Settings::default(), |builder| builder.shadow(true));
        for _ in 0..2 {
            match entry {
                Entry::Reserve => assert_eq!(service.reserve("user", 70, 0).unwrap().0, OK),
                _ => assert_eq!(service.ask([with_hits(of([("user", "alice")]), 70)]).overall_code, OK),
            }
        }
        assert_eq!(service.answerer.meters().read().shadow_denied, 1, "{entry:?}");
    }
}
