//! Quotas and capacities, and their texts.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{Capacity, Quota, QuotaError, Timestamp};
use tollgate_testing::operations::run_cases;

// G43
#[test]
fn invalid_quotas_are_errors() {
    let cases: [(Result<Quota, QuotaError>, &str); 6] = [
        (Quota::try_new(0, Duration::from_secs(1)), "limit"),
        (Quota::try_new(1, Duration::ZERO), "period"),
        (Quota::per_second(1).try_burst(0), "burst"),
        (Quota::try_new(33, Duration::from_nanos(1)), "32 units per nanosecond"),
        (Quota::try_new(1, Duration::MAX), "292 years"),
        (Quota::per_day(1).try_burst(u64::MAX), "292 years"),
    ];
    for (result, needle) in cases {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(needle), "{text:?} does not contain {needle:?}");
    }
}

// G43
#[test]
fn extreme_quotas_are_valid() {
    assert_eq!(Quota::new(32, Duration::from_nanos(1)).limit(), 32);
    let century = Duration::from_secs(100 * 366 * 86_400);
    assert_eq!(Quota::new(1, century).period(), century);
    assert_eq!(Quota::per_second(1).burst(9_223_372_036).burst_size(), 9_223_372_036);
    assert!(Quota::per_second(1).try_burst(9_223_372_037).is_err());
}

// G43
#[test]
fn quota_texts_parse_and_print() {
    for (text, quota, printed) in [
        ("100/60s", Quota::per_minute(100), "100/min"),
        ("5/min burst 20", Quota::per_minute(5).burst(20), "5/min burst 20"),
        ("1000/h", Quota::per_hour(1000), "1000/h"),
        (
            " 1_000 / 2 hours burst 7 ",
            Quota::new(1000, Duration::from_secs(7200)).burst(7),
            "1000/2h burst 7",
        ),
        ("3/250ms", Quota::new(3, Duration::from_millis(250)), "3/250ms"),
        ("1/90s", Quota::new(1, Duration::from_secs(90)), "1/90s"),
        ("1/36500d", Quota::new(1, Duration::from_secs(36_500 * 86_400)), "1/36500d"),
        ("5/week", Quota::new(5, Duration::from_secs(7 * 86_400)), "5/7d"),
        ("5/2 weeks", Quota::new(5, Duration::from_secs(14 * 86_400)), "5/14d"),
        ("5/month", Quota::new(5, Duration::from_secs(30 * 86_400)), "5/30d"),
        ("5/year", Quota::new(5, Duration::from_secs(365 * 86_400)), "5/365d"),
        ("7/µs", Quota::new(7, Duration::from_micros(1)), "7/us"),
    ] {
        let parsed: Quota = text.parse().unwrap();
        assert_eq!(parsed, quota, "{text}");
        assert_eq!(parsed.to_string(), printed, "{text}");
        assert_eq!(printed.parse::<Quota>().unwrap(), quota);
    }
}

// G43
#[test]
fn parse_errors_show_input_and_valid_form() {
    for (text, needle) in [
        ("", "\"/\""),
        ("100", "\"/\""),
        ("/s", "before the \"/\""),
        ("-1/s", "before the \"/\""),
        ("1.5/s", "before the \"/\""),
        ("1__0/s", "before the \"/\""),
        ("10_/s", "before the \"/\""),
        ("100/", "after the \"/\""),
        ("100/60", "after the \"/\""),
        ("100/60parsecs", "after the \"/\""),
        ("100/s burst", "after \"burst\""),
        ("100/s burst 2 3", "after \"burst\""),
        ("100/s burst -2", "after \"burst\""),
        ("0/s", "at least 1"),
        ("1/0s", "at least 1 ns"),
        ("1/s burst 0", "at least 1"),
        ("99999999999999999999/s", "above 18446744073709551615"),
        ("1/99999999999999d", "above 18446744073709551615"),
        ("1/200000d", "292 years"),
    ] {
        let error = text.parse::<Quota>().unwrap_err().to_string();
        assert!(error.contains(needle), "{text:?}: {error}");
        assert!(error.contains(&format!("{text:?}")), "{text:?}: {error}");
        assert!(error.contains("100/60s"), "{text:?}: {error}");
    }
}

#[test]
fn long_text_is_cut_in_error() {
    let error = "9".repeat(10_000).parse::<Quota>().unwrap_err().to_string();
    assert!(error.len() < 400);
}

#[test]
fn memory_texts_are_parsed_or_refused() {
    for (text, bytes) in [
        ("4MiB", 4 << 20),
        (" 512 kib ", 512 << 10),
        ("1.5GiB", 3 << 29),
        ("64kB", 64_000),
        ("4096", 4096),
        (".5m", 1 << 19),
    ] {
        assert_eq!(text.parse(), Ok(Capacity::memory(bytes)), "{text}");
    }
    for (text, problem) in [
        ("", "number is missing"),
        ("MiB", "number is missing"),
        ("4 MeB", "unit"),
        ("-4MiB", "unit"),
        ("1.2.3MiB", "two decimal points"),
        ("1.123456789.2MiB", "two decimal points"),
        ("99999999999999999999", "too large"),
        ("9999999TiB", "address space"),
        ("0", "less than 1 byte"),
    ] {
        let error = text.parse::<Capacity>().unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("4MiB"), "{text}: {error}");
    }
}

/// The quota of a rate in floating point has that rate, to a part in 10⁹, and never exceeds it by more than the precision of the
/// number. Other numbers are errors with a remedy.
// G155
#[test]
fn quota_has_the_rate_of_its_number() {
    let exact = |rate: f64| Quota::from_rate(rate, 3).map(|quota| (quota.limit(), quota.period()));
    let seconds = Duration::from_secs;
    for (rate, limit, period) in [
        (1.0, 1, seconds(1)),
        (100.0, 100, seconds(1)),
        (2.5, 25, seconds(10)),
        (33.3, 333, seconds(10)),
        (0.5, 1, seconds(2)),
        (0.001, 1, seconds(1_000)),
        (1.0 / 3.0, 1, seconds(3)),
        (1e9, 1_000_000_000, seconds(1)),
    ] {
        assert_eq!(exact(rate), Ok((limit, period)), "{rate}");
    }
    for (rate, text) in [
        (f64::NAN, "not a number"),
        (-f64::NAN, "not a number"),
        (-1.0, "negative"),
        (f64::NEG_INFINITY, "negative"),
        (0.0, "zero"),
        (-0.0, "zero"),
        (f64::INFINITY, "infinite"),
        (f64::MAX, "32 units per nanosecond"),
        (1e11, "32 units per nanosecond"),
        (f64::MIN_POSITIVE, "292 years"),
        (1e-10, "292 years"),
    ] {
        let error = Quota::from_rate(rate, 3).unwrap_err().to_string();
        assert!(error.contains(text), "{rate}: {error}");
    }
    assert!(Quota::from_rate(1.0, 0).is_err());
    let rates = (1e-9_f64.ln()..32e9_f64.ln()).prop_map(f64::exp);
    let share = run_cases("rates", 4_000, &rates, |rate| {
        let Ok(quota) = Quota::from_rate(rate, 1) else { return false };
        assert_eq!(quota.burst_size(), 1);
        #[expect(clippy::cast_precision_loss, reason = "the error is far below the bound")]
        let found = quota.limit() as f64 * 1e9 / quota.period().as_nanos() as f64;
        assert!(found <= rate * (1.0 + 4.0 * f64::EPSILON), "{rate}: {found}");
        assert!(found >= rate * (1.0 - 1.1e-9), "{rate}: {found}");
        true
    });
    assert!(share > 0.95, "{share}");
}

/// An instant and a time that one anchor joins: the same distance, in both directions, without a panic.
// G155
#[test]
#[expect(clippy::disallowed_methods, reason = "any instant will do")]
fn instants_and_times_have_the_same_distance() {
    let then = std::time::Instant::now();
    let cases = (any::<u64>(), -1_000_000_000_000_i64..1_000_000_000_000);
    let _ = run_cases("instants", 2_000, &cases, |(at, offset)| {
        let anchor = (then, Timestamp::from_nanos(at));
        let by = Duration::from_nanos(offset.unsigned_abs());
        let instant = if offset < 0 { then.checked_sub(by) } else { then.checked_add(by) };
        let Some(instant) = instant else { return false };
        let expected = at.saturating_add_signed(offset);
        let time = Timestamp::from_instant(instant, anchor);
        assert_eq!(time, Timestamp::from_nanos(expected));
        if at.checked_add_signed(offset).is_some() {
            assert_eq!(time.to_instant(anchor), Some(instant));
        }
        for far in [Timestamp::ZERO, Timestamp::MAX] {
            if let Some(instant) = far.to_instant(anchor) {
                assert_eq!(Timestamp::from_instant(instant, anchor), far);
            }
        }
        true
    });
}
