//! Large numbers, fractions, and names of options in commands.

use super::*;

/// Cause: each quota was in a compact store, whose words have no room for bursts above 2^25 or rates above 2^31 a second. Symptom: limits of
/// bytes were refused.
// G140
#[test]
fn limits_of_bytes_are_counted_exactly() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    for (seconds, line, expected) in [
        (0, "CL.THROTTLE k 67108864 67108864 1", "*5|:0|:67108865|:67108864|:-1|:1|"),
        (0, "CL.THROTTLE k 67108864 67108864 1 67108864", "*5|:0|:67108865|:0|:-1|:2|"),
        // The interval of a unit is rounded up to the next 32nd of a nanosecond, here by 0.034 %.
        (0, "GCRA k 67108864 67108864 1.0", "*5|:1|:67108865|:0|$11|0.000000015|$11|1.000341519|"),
        (0, "CL.THROTTLE k 67108864 67108864 1 0", "*5|:0|:67108865|:0|:-1|:2|"),
        (1, "CL.THROTTLE k 67108864 67108864 1 67085954", "*5|:1|:67108865|:67085953|:1|:1|"),
        (0, "CL.THROTTLE k 67108864 67108864 1 67085953", "*5|:0|:67108865|:0|:-1|:2|"),
        // Other keys have a burst of their own.
        (0, "CL.THROTTLE j 67108864 67108864 1 67108865", "*5|:0|:67108865|:0|:-1|:2|"),
        (0, "CL.THROTTLE k 33554431 1000 1 33554432", "*5|:0|:33554432|:0|:-1|:33555|"),
        (0, "CL.THROTTLE k 33554432 1000 1 33554433", "*5|:0|:33554433|:0|:-1|:33555|"),
        (0, "CL.THROTTLE k 33554432 1000 1 1000", "*5|:1|:33554433|:0|:1|:33555|"),
        // A rate above 2^31 a second, and the largest burst.
        (0, "CL.THROTTLE k 999999 10000000000 1 1000000", "*5|:0|:1000000|:0|:-1|:1|"),
        (
            0,
            "CL.THROTTLE k 1099511627775 1099511627776 86400 1099511627776",
            "*5|:0|:1099511627776|:0|:-1|:86415|",
        ),
    ] {
        endpoint.clock.advance(Duration::from_secs(seconds));
        assert_eq!(client.say(line), expected, "{line}");
    }
}

/// The memory of a limit of bytes is bounded as that of others, and its usage is taken over.
// G140
#[test]
fn limits_of_bytes_keep_their_bounds() {
    let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000));
    let quotas = |memory: usize| Quotas::new(clock.clone(), 2, Capacity::memory(memory));
    let quota = ClientQuota { burst: 1 << 30, count: 1 << 30, period_ns: 1_000_000_000_000 };
    let (user, first) = (User::anyone(), quotas(256 << 10));
    let ask = |quotas: &Quotas<ManualClock>, key: u64, units: u64| {
        quotas.check(quota, &key.to_le_bytes(), units, &user).unwrap()
    };
    let admitted = (0..100_000).filter(|key| ask(&first, *key, 1 << 29).is_allowed()).count();
    assert!((3_000..=4_096).contains(&admitted), "{admitted} keys in 256 KiB");
    // Keys that owe are known, and one without room is denied.
    assert!(ask(&first, 0, 1 << 29).is_allowed() && ask(&first, 0, 1).is_denied());
    assert!(ask(&first, 200_000, 1).is_denied());
    let mut bytes = Vec::new();
    first.save(&mut bytes).unwrap();
    for memory in [256 << 10, 1 << 20] {
        let mut second = quotas(memory);
        assert_eq!(second.restore(&mut &bytes[..]).ok(), Some(1));
        assert!(ask(&second, 0, 1).is_denied());
        assert_eq!(ask(&second, 1, 0).remaining(), 1 << 29);
    }
    let error = quotas(64 << 10).restore(&mut &bytes[..]).unwrap_err();
    assert!(error.to_string().contains("needs the earlier --resp-quota-memory"), "{error}");
}

/// The period of `GCRA` is a number of seconds in the forms of Redis's own parser of doubles, with the cases of its tests. Cause: a period of
/// less than a second was refused. Forms of C that no client sends, such as hexadecimal ones, are errors.
#[test]
fn periods_have_the_forms_of_redis() {
    let endpoint = endpoint();
    for (text, seconds) in [
        ("60", "60"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("+5", "5"),
        ("0005", "5"),
        ("1e3", "1000"),
        ("1E+3", "1000"),
        ("25e-2", "0.25"),
        ("0.001", "0.001"),
        ("1e-9", "0.000000001"),
        ("1e9", "1000000000"),
    ] {
        let answer = endpoint.say(&format!("HELLO 3\r\nGCRA {text} 0 1 {text}"));
        let answer = answer.split_once("modules|*0|").unwrap().1.to_owned();
        let reset = answer.strip_prefix("*5|:0|:1|:0|,-1|,").expect(&answer).trim_end_matches('|');
        let (told, meant): (f64, f64) = (reset.parse().unwrap(), seconds.parse().unwrap());
        // A compact store rounds up times by less than 1/256.
        assert!((told - meant).abs() <= meant / 256.0 + 2e-9, "{text}: {reset}");
    }
    let endpoint = self::endpoint();
    assert!(endpoint.say("GCRA mykey 10 5 0.5").starts_with("*5|:0|:11|:10|$2|-1|"));
    for text in [
        "0",
        "-1",
        "notanumber",
        "''",
        "1e12",
        "nan",
        "inf",
        "-inf",
        "0x10",
        "1,5",
        "5s",
        "' 5'",
        "'5 '",
        "1e",
        "e3",
        ".",
    ] {
        let answer = endpoint.say(&format!("GCRA mykey 10 5 {text}"));
        assert_eq!(answer, "-ERR period is no number of seconds above 0, or more than 584 years|", "{text}");
    }
}

/// Cause: a first key that was equal to an option in any letters was taken for the option. Symptom: another rule was asked, with another cost.
// G141
#[test]
fn entries_may_have_the_names_of_options() {
    const NAMES: &str = "{ domain: d, tollgate: {}, descriptors: [
        { key: hits, rate_limit: { name: of-hits, unit: hour, requests_per_unit: 10 }, descriptors: [ { key: user, rate_limit: { name: both, unit: hour, requests_per_unit: 7 } } ] },
        { key: ttl, rate_limit: { name: of-ttl, unit: hour, requests_per_unit: 9, hold: {} } },
        { key: HITS, rate_limit: { name: loud, unit: hour, requests_per_unit: 5 } },
        { key: entries, rate_limit: { name: of-entries, unit: hour, requests_per_unit: 6 } },
        { key: user, rate_limit: { name: of-user, unit: hour, requests_per_unit: 8 } } ] }";
    let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000));
    let endpoint = TestEndpoint::new(rules(&clock, NAMES), clock, Settings::default());
    for (line, part) in [
        ("CHECK d HITS 3 user a", "*6|:0|:8|:5|"),
        ("CHECK d ENTRIES hits 5 user a", "*6|:0|:7|:6|"),
        ("CHECK d HITS 2 ENTRIES hits 5", "*6|:0|:10|:8|"),
        ("CHECK d entries HITS 5", "*6|:0|:5|:4|"),
        ("PEEK d ENTRIES hits 5", "*6|:0|:10|:8|"),
        ("PEEK d hits 5", "*6|:0|:10|:8|"),
        ("CHECK d entries 5", "*6|:0|:6|:5|"),
        ("CHECK d ttl 5", "*6|:0|:9|:8|"),
        ("HOLD d HITS 2 TTL 5 ENTRIES ttl 6", "*2|:0|"),
        ("COMMIT d x 1 ENTRIES ttl 6", ":0|"),
        ("CHECK d hits 5 user a", "-ERR hits may be the option HITS or the key of an entry;"),
        ("CHECK d Hits 5", "-ERR hits may be the option"),
        ("HOLD d ttl 5 user a", "-ERR ttl may be the option TTL"),
        ("HOLD d HITS 2 ttl 5 user a", "-ERR ttl may be the option TTL"),
        ("CHECK d HITS 2 ENTRIES", "-ERR expected pairs"),
        ("CHECK d hats 5 user", "-ERR expected pairs"),
    ] {
        let answer = endpoint.say(&format!("TOLLGATE.{line}"));
        assert!(answer.starts_with(part), "{line}: {answer}");
    }
}
