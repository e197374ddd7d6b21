//! What a request may contain.

use super::*;

const RULES: &str = r"
descriptors:
  - key: foo
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: free
    rate_limit: { unlimited: true }
  - key: deep
    descriptors:
      - key: deeper
        rate_limit: { unit: hour, requests_per_unit: 5 }
";

const NONE: &str = "OK 0";

#[test]
fn request_without_domain_or_descriptors_is_invalid() {
    let service = service(RULES);
    let empty = RateLimitRequest { domain: Bytes::new(), ..request([of([("foo", "a")])]) };
    for (request, message) in [
        (empty, "the domain is empty"),
        (request([]), "the request has no descriptors"),
        (RateLimitRequest::default(), "the domain is empty"),
    ] {
        let status = service.call(request, Entry::ShouldRateLimit).unwrap_err();
        assert_eq!((status.code(), status.message()), (tonic::Code::InvalidArgument, message));
    }
    assert_eq!(service.answerer.meters().read().codes[3], 3);
}

#[test]
fn request_before_the_first_load_is_unavailable() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    let clock = ManualClock::new(NOW);
    let rules = Rules::builder().start_without_rules(true).clock(clock.clone()).read([&path]).unwrap();
    let rules = Arc::new(rules);
    let service =
        Service { answerer: Answerer::new(Arc::clone(&rules), Settings::default()), clock, twin: None };
    let ask = || service.call(request([of([("foo", "a")])]), Entry::ShouldRateLimit);
    let status = ask().unwrap_err();
    assert_eq!((status.code(), status.message()), (tonic::Code::Unavailable, "no rules are loaded yet"));
    std::fs::write(&path, format!("domain: rl\n{RULES}")).unwrap();
    rules.reload().unwrap();
    assert_eq!(shown(&ask().unwrap()), "OK: OK 10/MINUTE 9 58s");
    // A later failure keeps the rules.
    std::fs::write(&path, "domain: [").unwrap();
    rules.reload().unwrap_err();
    assert_eq!(shown(&ask().unwrap()), "OK: OK 10/MINUTE 8 58s");
}

// G105
#[test]
fn unknown_domain_has_plain_statuses() {
    let service = service(RULES);
    for domain in [&b"other"[..], b"\xff", b"r"] {
        let request = RateLimitRequest {
            domain: Bytes::copy_from_slice(domain),
            ..request([of([("foo", "a")]), with_limit(of([("foo", "a")]), 0, 1), of([])])
        };
        let response = service.call(request, Entry::ShouldRateLimit).unwrap();
        assert_eq!(shown(&response), "OK: OK 0, OK 0, OK 0");
    }
}

#[test]
fn descriptors_without_a_limit_have_plain_statuses() {
    let service = service(RULES);
    for (descriptor, status) in [
        (of([]), NONE),
        (of([("bar", "a")]), NONE),
        (of([("foo", "a"), ("foo", "a")]), NONE),
        (of([("deep", "a")]), NONE),
        (of([("deep", "a"), ("deeper", "b")]), "OK 5/HOUR 4 2818s"),
        (of([("", "a")]), NONE),
        (of([("", "")]), NONE),
        // An empty value is an ordinary value. Gateways send it for a header field without content.
        (of([("foo", "")]), "OK 10/MINUTE 9 58s"),
        (of([("foo", "")]), "OK 10/MINUTE 8 58s"),
        (of([("free", "a")]), "OK 4294967295"),
    ] {
        assert_eq!(service.told([descriptor]), format!("OK: {status}"));
    }
}

// G105
#[test]
fn answer_has_one_status_for_each_descriptor_in_order() {
    let service = service(RULES);
    let [a, b] = ["a", "b"].map(|value| of([("foo", value)]));
    assert_eq!(
        service.told([of([]), a.clone(), of([("free", "a")]), b, a, of([("bar", "x")])]),
        "OK: OK 0, OK 10/MINUTE 9 58s, OK 4294967295, OK 10/MINUTE 9 58s, OK 10/MINUTE 8 58s, OK 0"
    );
}

// G105
#[test]
fn hits_are_those_of_the_descriptor_or_of_the_request() {
    let foo = || of([("foo", "a")]);
    for (hits_addend, descriptor, left) in [
        (0, foo(), 9),
        (1, foo(), 9),
        (7, foo(), 3),
        (0, with_hits(foo(), 0), 10),
        (7, with_hits(foo(), 0), 10),
        (7, with_hits(foo(), 2), 8),
        (0, with_hits(foo(), 10), 0),
    ] {
        let service = service(RULES);
        let request = RateLimitRequest { hits_addend, ..request([descriptor]) };
        let response = service.call(request, Entry::ShouldRateLimit).unwrap();
        assert_eq!(shown(&response), format!("OK: OK 10/MINUTE {left} 58s"));
    }
}

// G106
#[test]
fn hits_saturate() {
    let service = service(RULES);
    let foo = || of([("foo", "a")]);
    for hits in [11, u64::from(u32::MAX), u64::from(u32::MAX) + 2, u64::MAX] {
        assert_eq!(service.told([with_hits(foo(), hits)]), "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 58s");
        assert_eq!(
            service.told([with_hits(foo(), hits), with_hits(foo(), hits)]),
            "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 58s, OVER_LIMIT 10/MINUTE 0 58s"
        );
    }
    let most = RateLimitRequest { hits_addend: u32::MAX, ..request([foo()]) };
    let response = service.call(most, Entry::ShouldRateLimit).unwrap();
    assert_eq!(shown(&response), "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 58s");
    let free = [with_hits(of([("free", "a")]), u64::MAX)];
    assert_eq!(service.told(free), "OK: OK 4294967295");
}

// G105
#[test]
fn limit_of_the_request_replaces_the_limit_of_the_rules() {
    let shadow = "
descriptors:
  - key: foo
    shadow_mode: true
    rate_limit: { name: trial, unit: minute, requests_per_unit: 10 }
";
    let service = all_or_nothing(shadow);
    let own = |requests, unit| with_limit(of([("foo", "a")]), requests, unit);
    for (descriptor, told) in [
        (own(42, 3), "OK: OK 42/HOUR 41 2818s"),
        (own(1, 3), "OVER_LIMIT: OVER_LIMIT 1/HOUR 0 2818s"),
        (own(2, 3), "OK: OK 2/HOUR 0 2818s"),
        (own(2, 1), "OK: OK 2/SECOND 1 1s"),
        (own(2, 2), "OK: OK 2/MINUTE 1 58s"),
        (own(2, 4), "OK: OK 2/DAY 1 35218s"),
        (own(0, 4), "OVER_LIMIT: OVER_LIMIT 0/DAY 0 35218s"),
        (own(u32::MAX, 5), "OK: OK 4294967295/MONTH 4294967294 1072018s"),
        (own(7, 6), "OK: OK 7/YEAR 6 7552018s"),
        // Entries that no rule matches.
        (with_limit(of([("nothing", "a")]), 3, 2), "OK: OK 3/MINUTE 2 58s"),
        (with_limit(of([]), 3, 2), "OK: OK 3/MINUTE 2 58s"),
    ] {
        assert_eq!(service.told([descriptor]), told);
    }
}

#[test]
fn limit_with_an_unknown_unit_is_invalid() {
    let service = service(RULES);
    for unit in [0, 7, 99, -1] {
        let status = service
            .call(request([with_limit(of([("foo", "a")]), 1, unit)]), Entry::ShouldRateLimit)
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        assert_eq!(status.message(), format!("the limit of a descriptor has the unknown unit {unit}"));
    }
    assert_eq!(service.told([of([("foo", "a")])]), "OK: OK 10/MINUTE 9 58s");
}

#[test]
fn giving_hits_back_is_off_by_default() {
    let service = service(RULES);
    let negative = || RateLimitDescriptor { is_negative_hits: true, ..with_hits(of([("foo", "a")]), 5) };
    let status = service.call(request([of([("foo", "a")]), negative()]), Entry::ShouldRateLimit).unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    assert_eq!(service.told([of([("foo", "a")])]), "OK: OK 10/MINUTE 9 58s");
}

#[test]
fn hits_are_refunded_if_permitted() {
    let settings = Settings { negative_hits: true, ..Settings::default() };
    let service = service_with(RULES, settings, |builder| builder.default_charging(Charging::AllOrNothing));
    let foo = |value| of([("foo", value)]);
    let back = |hits, value| RateLimitDescriptor { is_negative_hits: true, ..with_hits(foo(value), hits) };
    assert_eq!(service.told([with_hits(foo("a"), 8)]), "OK: OK 10/MINUTE 2 58s");
    assert_eq!(service.told([back(5, "a")]), "OK: OK 10/MINUTE 7 58s");
    // The other descriptors are decided as usual.
    assert_eq!(
        service.told([foo("b"), back(2, "a"), foo("b")]),
        "OK: OK 10/MINUTE 9 58s, OK 10/MINUTE 9 58s, OK 10/MINUTE 8 58s"
    );
    assert_eq!(
        service.told([with_hits(foo("b"), 9), back(u64::MAX, "a")]),
        "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 58s, OK 10/MINUTE 10 58s"
    );
    // A report gives back too; Kuadrant's check counts nothing.
    let request = || request([back(1, "b")]);
    assert_eq!(service.call(request(), Entry::Check).unwrap().overall_code, 1);
    assert_eq!(service.told([with_hits(foo("b"), 0)]), "OK: OK 10/MINUTE 8 58s");
    assert_eq!(service.call(request(), Entry::Report).unwrap().overall_code, 1);
    assert_eq!(service.told([with_hits(foo("b"), 0)]), "OK: OK 10/MINUTE 9 58s");
}

// G106
#[test]
fn bytes_that_are_not_text_are_counted() {
    let service = service(RULES);
    let odd = |value: &'static [u8]| {
        let pair = Pair { key: Bytes::from_static(b"foo"), value: Bytes::from_static(value) };
        RateLimitDescriptor { entries: vec![pair], ..RateLimitDescriptor::default() }
    };
    for (value, left) in
        [(&b"\xff"[..], 9), (b"\xff", 8), (b"\xfe", 9), (b"Jos\xe9", 9), (b"\0", 9), (b"\xff", 7)]
    {
        assert_eq!(service.told([odd(value)]), format!("OK: OK 10/MINUTE {left} 58s"), "{value:?}");
    }
}
