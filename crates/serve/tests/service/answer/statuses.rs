//! The status of a descriptor, and the overall code.

use super::*;

// G105
#[test]
fn status_describes_the_rule_that_applies() {
    let service = all_or_nothing(
        r"
descriptors:
  - key: limit
    rate_limit: { unit: minute, requests_per_unit: 2 }
  - key: named
    rate_limit: { name: per-ip, unit: week, requests_per_unit: 2 }
  - key: shadow
    shadow_mode: true
    rate_limit: { unit: hour, requests_per_unit: 2 }
  - key: zero
    rate_limit: { unit: second, requests_per_unit: 0 }
  - key: free
    rate_limit: { unlimited: true }
",
    );
    let minute = |left: u32| format!("OK: OK 2/MINUTE {left} 58s");
    let limit = || of([("limit", "")]);
    assert_eq!(service.told([limit()]), minute(1));
    // A cost that is refused has 0 left, although a lower cost would be admitted.
    assert_eq!(service.told([with_hits(limit(), 2)]), "OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 58s");
    assert_eq!(service.told([limit()]), minute(0));
    assert_eq!(service.told([limit()]), "OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 58s");
    for (key, first, third) in [
        ("named", "OK: OK 2/WEEK \"per-ip\" 1", "OVER_LIMIT: OVER_LIMIT 2/WEEK \"per-ip\" 0"),
        ("shadow", "OK: OK 2/HOUR 1", "OK: OK 2/HOUR 0"),
        ("zero", "OVER_LIMIT: OVER_LIMIT 0/SECOND 0", "OVER_LIMIT: OVER_LIMIT 0/SECOND 0"),
    ] {
        let told = [(); 3].map(|()| service.told([of([(key, "")])]));
        let text = |told: &str| told.rsplit_once(' ').unwrap().0.to_owned();
        assert_eq!([text(&told[0]), text(&told[2])], [first, third]);
    }
    assert_eq!(service.told([of([("free", "")])]), "OK: OK 4294967295");
}

/// The protocol has 32 bits for the limit and for the rest.
// G105
#[test]
fn figures_beyond_32_bits_saturate() {
    let limit = "{ unit: month, requests_per_unit: 5000000000 }";
    let service =
        all_or_nothing(&format!("tollgate: {{}}\ndescriptors: [{{ key: usd, rate_limit: {limit} }}]"));
    let told = |hits| service.told([with_hits(of([("usd", "")]), hits)]);
    assert!(told(1).starts_with("OK: OK 4294967295/MONTH 4294967295 "), "{}", told(0));
    assert!(told(4_999_999_990).starts_with("OK: OK 4294967295/MONTH 9 "), "{}", told(0));
    assert!(told(10).starts_with("OVER_LIMIT: OVER_LIMIT 4294967295/MONTH 0 "), "{}", told(0));
}

// G105
#[test]
fn window_ends_at_multiples_of_its_unit() {
    // Seconds of 1970-01-01 and later.
    for (unit, rows) in [
        ("second", &[(0, 1), (1, 1), (1_789_999_982, 1)][..]),
        ("minute", &[(0, 60), (1, 59), (59, 1), (60, 60), (1_789_999_982, 58)]),
        ("hour", &[(0, 3_600), (1, 3_599), (7_199, 1)]),
        ("day", &[(0, 86_400), (86_399, 1)]),
        ("week", &[(0, 604_800), (604_799, 1)]),
        ("month", &[(0, 2_592_000), (2_591_999, 1)]),
        ("year", &[(0, 31_536_000), (31_535_999, 1)]),
    ] {
        for &(now, left) in rows {
            let rules =
                format!("descriptors: [{{ key: a, rate_limit: {{ unit: {unit}, requests_per_unit: 9 }} }}]");
            let service = service(&rules);
            for (half_second, expected) in [(0, left), (1, left)] {
                service.clock.set(Timestamp::from_nanos(now * 1_000_000_000 + half_second * 500_000_000));
                let response = service.ask([with_hits(of([("a", "")]), 0)]);
                let told = response.statuses[0].duration_until_reset.unwrap().seconds;
                assert_eq!(told, expected, "{unit} at {now}");
            }
        }
    }
}

// G105
#[test]
fn replaced_rule_is_not_counted() {
    let service = service(
        r"
descriptors:
  - key: plan
    value: gold
    rate_limit: { unit: minute, requests_per_unit: 9, replaces: [{ name: base }] }
  - key: user
    rate_limit: { name: base, unit: minute, requests_per_unit: 1 }
",
    );
    let user = || of([("user", "a")]);
    for left in [8, 7] {
        assert_eq!(
            service.told([of([("plan", "gold")]), user()]),
            format!("OK: OK 9/MINUTE {left} 58s, OK 0")
        );
    }
    assert_eq!(service.told([user()]), "OK: OK 1/MINUTE \"base\" 0 58s");
}

#[test]
fn replaced_rule_is_quota_with_room() {
    const RULES: &str = r"
descriptors:
  - { key: gold, rate_limit: { unit: day, requests_per_unit: 0, replaces: [{ name: base }] } }
  - { key: user, rate_limit: { name: base, unit: day, requests_per_unit: 0 } }
";
    let service = service_with(RULES, Settings::default(), |builder| builder.quota(true));
    let response = service.ask([of([("gold", "")]), of([("user", "")])]);
    assert_eq!((response.overall_code, response.statuses[0].code, response.statuses[1].code), (1, 2, 1));
    let own = with_limit(of([("user", "")]), 0, 4);
    assert_eq!(service.ask([own.clone(), of([("none", "")])]).overall_code, 1);
    assert_eq!(service.ask([own]).overall_code, 2);
}

// G105
#[test]
fn overall_code_follows_the_statuses() {
    const RULES: &str = r"
descriptors:
  - { key: R+, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: R-, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: Q+, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: Q-, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: S-, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: U, rate_limit: { unlimited: true } }
";
    let codes = |response: &RateLimitResponse| {
        let letter = |code: i32| match Code::try_from(code).unwrap() {
            Code::Ok => 'o',
            Code::OverLimit => '!',
            Code::Unknown => '?',
        };
        let statuses: String = response.statuses.iter().map(|status| letter(status.code)).collect();
        format!("{statuses} {}", letter(response.overall_code))
    };
    // The last column has the global quota mode.
    for (keys, regular, dry_run, quota) in [
        ("R+", "o o", "o o", "o o"),
        ("R-", "! !", "! o", "! !"),
        ("R+ R-", "o! !", "o! o", "o! o"),
        ("Q+", "o o", "o o", "o o"),
        ("Q-", "! !", "! o", "! !"),
        ("Q+ Q-", "o! o", "o! o", "o! o"),
        ("Q- Q-", "!! !", "!! o", "!! !"),
        ("R+ Q-", "o! !", "o! o", "o! o"),
        ("R- Q+", "!o !", "!o o", "!o o"),
        ("S-", "o o", "o o", "o o"),
        ("S- R+", "oo o", "oo o", "oo o"),
        ("U Q-", "o! !", "o! o", "o! !"),
        ("none Q-", "o! !", "o! o", "o! o"),
        ("none R+", "oo o", "oo o", "oo o"),
    ] {
        let descriptors = || keys.split(' ').map(|key| of([(key, "")]));
        let ask = |service: &Service| codes(&service.ask(descriptors()));
        assert_eq!(ask(&service(RULES)), regular, "{keys}");
        let dry = service_with(RULES, Settings::default(), |builder| builder.shadow(true));
        assert_eq!(ask(&dry), dry_run, "{keys}");
        let quotas = service_with(RULES, Settings::default(), |builder| builder.quota(true));
        assert_eq!(ask(&quotas), quota, "{keys}");
    }
}

// G105
#[test]
fn query_counts_nothing() {
    // With "count-first", used units go beyond the limit.
    let service = service(
        "tollgate: { charging: count-first }
descriptors: [{ key: a, rate_limit: { unit: minute, requests_per_unit: 4 } }]",
    );
    let hits = |hits| [with_hits(of([("a", "")]), hits)];
    assert_eq!(service.told(hits(0)), "OK: OK 4/MINUTE 4 58s");
    assert_eq!(service.told(hits(3)), "OK: OK 4/MINUTE 1 58s");
    assert_eq!(service.told(hits(0)), "OK: OK 4/MINUTE 1 58s");
    assert_eq!(service.told(hits(1)), "OK: OK 4/MINUTE 0 58s");
    assert_eq!(service.told(hits(0)), "OK: OK 4/MINUTE 0 58s");
    assert_eq!(service.told(hits(1)), "OVER_LIMIT: OVER_LIMIT 4/MINUTE 0 58s");
    assert_eq!(service.told(hits(0)), "OVER_LIMIT: OVER_LIMIT 4/MINUTE 0 58s");
}

// G105
#[test]
fn other_algorithms_have_a_limit_per_period() {
    let rule = |rule: &str| {
        all_or_nothing(&format!("tollgate: {{}}\ndescriptors: [{{ key: a, rate_limit: {{ {rule} }} }}]"))
    };
    let told = |service: &Service, hits| service.told([with_hits(of([("a", "")]), hits)]);
    // The limit of ten per minute refills one unit in six seconds.
    let gcra = rule("algorithm: gcra, unit: minute, requests_per_unit: 10");
    assert_eq!(told(&gcra, 3), "OK: OK 10/MINUTE 7 18s");
    assert_eq!(told(&gcra, 9), "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 12s");
    assert_eq!(told(&gcra, 0), "OK: OK 10/MINUTE 7 18s");
    // A cost that never fits: the time until all units are available.
    assert_eq!(told(&gcra, 11), "OVER_LIMIT: OVER_LIMIT 10/MINUTE 0 18s");
    let burst = rule("algorithm: token-bucket, unit: second, requests_per_unit: 10, burst: 20");
    assert_eq!(told(&burst, 1), "OK: OK 10/SECOND 19 1s");
    let every = rule("algorithm: sliding-window, unit: second, every: 10, requests_per_unit: 3");
    assert_eq!(told(&every, 1), "OK: OK 3/UNKNOWN 2 18s");
    let every = rule("unit: second, every: 10, requests_per_unit: 3");
    assert_eq!(told(&every, 1), "OK: OK 3/UNKNOWN 2 8s");
}

#[test]
fn status_shows_the_strictest_limit() {
    let service = service(
        r"tollgate: {}
descriptors:
  - key: a
    rate_limits:
      - { name: fast, unit: second, requests_per_unit: 2 }
      - { name: slow, unit: hour, requests_per_unit: 3 }
",
    );
    let told = || service.told([of([("a", "")])]);
    assert_eq!(told(), "OK: OK 2/SECOND \"fast\" 1 1s");
    assert_eq!(told(), "OK: OK 2/SECOND \"fast\" 0 1s");
    assert_eq!(told(), "OVER_LIMIT: OVER_LIMIT 2/SECOND \"fast\" 0 1s");
    service.clock.advance(Duration::from_secs(1));
    assert_eq!(told(), "OK: OK 3/HOUR \"slow\" 0 2817s");
    assert_eq!(told(), "OVER_LIMIT: OVER_LIMIT 3/HOUR \"slow\" 0 2817s");
}

// G105
#[test]
fn answer_comes_from_one_load_of_the_rules() {
    let text = |limit: u32| {
        let descriptors = ["a", "b", "c"]
            .map(|key| format!("{{ key: {key}, rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}"));
        format!("domain: rl\ndescriptors: [{}]", descriptors.join(", "))
    };
    let config = |limit| Config::from_yaml("rules", &text(limit)).unwrap();
    let clock = ManualClock::new(NOW);
    let rules = Arc::new(Rules::builder().clock(clock.clone()).load([config(1_000_000)]).unwrap());
    let service =
        Service { answerer: Answerer::new(Arc::clone(&rules), Settings::default()), clock, twin: None };
    std::thread::scope(|scope| {
        let loads = scope.spawn(|| {
            for limit in 1_000_001..1_000_060 {
                rules.replace([config(limit)]).unwrap();
            }
        });
        while !loads.is_finished() {
            let response = service.ask(["a", "b", "c"].map(|key| of([(key, "")])));
            let limits: Vec<_> =
                response.statuses.iter().map(|status| status.current_limit.clone().unwrap()).collect();
            assert!(limits.windows(2).all(|pair| pair[0] == pair[1]), "{limits:?}");
        }
        loads.join().unwrap();
    });
}

/// A pattern for token budgets: a query at the request, and a report of the true cost after the response.
// G105
#[test]
fn report_beyond_the_limit_stays_counted() {
    for (limit, cost, queries) in [
        (4, 2, &["OK 4/DAY 4", "OK 4/DAY 2", "OK 4/DAY 0", "OVER_LIMIT 4/DAY 0"][..]),
        (100, 60, &["OK 100/DAY 100", "OK 100/DAY 40", "OVER_LIMIT 100/DAY 0"]),
    ] {
        let rules = format!(
            "descriptors: [{{ key: tokens, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}, {{ key: other, rate_limit: {{ unit: day, requests_per_unit: 9 }} }}]"
        );
        let service = service(&rules);
        let tokens = |hits| with_hits(of([("tokens", "")]), hits);
        for query in queries {
            let told = service.told([tokens(0)]);
            assert!(told.contains(&format!(": {query} ")), "{told}");
            let _ = service.told([tokens(cost)]);
        }
        // What one rule refuses is not charged to another.
        let other = service.ask([tokens(1), of([("other", "")])]);
        assert_eq!((other.overall_code, other.statuses[1].limit_remaining), (2, 9));
        assert_eq!(service.ask([of([("other", "")])]).statuses[0].limit_remaining, 8);
    }
}

/// The duration of a denial lasts until the block ends. The service's default counts denied requests.
#[test]
fn status_of_a_blocked_key_has_the_end_of_its_block() {
    let service = service(
        r"
tollgate: {}
descriptors:
  - key: login
    rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: { for: 10m, at_most: 1h } }
",
    );
    let login = || of([("login", "x")]);
    assert_eq!(service.told([login()]), "OK: OK 2/MINUTE 1 30s");
    assert_eq!(service.told([login()]), "OK: OK 2/MINUTE 0 60s");
    for left in [600, 590, 580] {
        assert_eq!(service.told([login()]), format!("OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 {left}s"));
        service.clock.advance(Duration::from_secs(10));
    }
    assert_eq!(service.told([with_hits(login(), 0)]), "OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 570s");
    service.clock.advance(Duration::from_secs(570));
    assert_eq!(service.told([login()]), "OK: OK 2/MINUTE 0 60s");
    assert_eq!(service.told([login()]), "OVER_LIMIT: OVER_LIMIT 2/MINUTE 0 1200s");
}
