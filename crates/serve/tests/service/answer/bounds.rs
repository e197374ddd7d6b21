//! Bounds, and counts of answers.

use super::*;

const RULES: &str = "descriptors: [{ key: a, rate_limit: { unit: hour, requests_per_unit: 1000 } }]";

// G106
#[test]
fn too_many_descriptors_or_entries_are_invalid() {
    let service = service(RULES);
    let many = |descriptors: usize, entries: usize| {
        let pair = Pair { key: Bytes::from_static(b"a"), value: Bytes::from_static(b"x") };
        let one = RateLimitDescriptor { entries: vec![pair; entries], ..RateLimitDescriptor::default() };
        request(vec![one; descriptors])
    };
    assert_eq!(service.call(many(64, 1), Entry::ShouldRateLimit).unwrap().statuses.len(), 64);
    assert_eq!(service.call(many(64, 32), Entry::ShouldRateLimit).unwrap().statuses.len(), 64);
    for (request, message) in [
        (many(65, 1), "the request has 65 descriptors; the most is 64"),
        (many(1, 33), "descriptor 0 has 33 entries; the most is 32"),
    ] {
        let status = service.call(request, Entry::ShouldRateLimit).unwrap_err();
        assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, message));
    }
}

// G106
#[test]
fn long_values_are_counted() {
    let service = service(RULES);
    let told = |value: &str| service.told([of([("a", value)])]);
    let long = "x".repeat(100_000);
    assert_eq!(told(&long), "OK: OK 1000/HOUR 999 2818s");
    assert_eq!(told(&long), "OK: OK 1000/HOUR 998 2818s");
    assert_eq!(told(&format!("{long}y")), "OK: OK 1000/HOUR 999 2818s");
}

#[test]
fn too_many_hits_count_as_the_most() {
    let settings = Settings { max_hits: 10, ..Settings::default() };
    let service = service_with(RULES, settings, |builder| builder);
    assert_eq!(service.told([with_hits(of([("a", "")]), u64::MAX)]), "OK: OK 1000/HOUR 990 2818s");
}

// G106
#[test]
fn overload_is_refused_at_once() {
    let settings = Settings { max_in_flight: 0, ..Settings::default() };
    let service = service_with(RULES, settings, |builder| builder);
    let status = service.call(request([of([("a", "")])]), Entry::ShouldRateLimit).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let counts = service.answerer.meters().read();
    assert_eq!((counts.overloads, counts.codes[14], counts.in_flight), (1, 1, 0));
}

#[test]
fn dropped_request_counts_as_cancelled() {
    let meters = Meters::default();
    let one = meters.begin(Entry::Json, 2).unwrap();
    let other = meters.begin(Entry::Json, 2).unwrap();
    assert!(meters.begin(Entry::Json, 2).is_none());
    assert_eq!(meters.read().in_flight, 2);
    drop(one);
    other.end(tonic::Code::Ok, None);
    let counts = meters.read();
    assert_eq!((counts.in_flight, counts.overloads, counts.entries[3]), (0, 1, 3));
    assert_eq!([0, 1, 14].map(|code: usize| counts.codes[code]), [1, 1, 1]);
    assert_eq!(counts.times.iter().sum::<u64>(), 2, "a dropped request has no time");
}

#[test]
fn late_answers_are_counted() {
    let meters = Meters::default();
    for (after_us, late) in [(0, 0), (4_999, 0), (5_000, 1), (100_000, 2)] {
        let request = meters.begin(Entry::Report, 9).unwrap();
        let deadline = request.began();
        request.end_at(deadline + Duration::from_micros(after_us), tonic::Code::Ok, Some(deadline));
        assert_eq!(meters.read().late, late);
    }
}
