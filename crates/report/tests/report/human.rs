//! Numbers as people read them.

use std::time::Duration;

use tollgate_report::human::{bytes, chance, count, counted, duration, share, utc};

#[test]
fn numbers() {
    assert_eq!([count(0), count(999), count(1_000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(counted(1, "line"), "1 line");
    assert_eq!([bytes(1_023), bytes(1_536), bytes(5 << 20)], ["1023 B", "1.5 KiB", "5.0 MiB"]);
}

#[test]
fn partial_shares_never_show_0_or_100() {
    assert_eq!([share(0, 5), share(5, 5), share(0, 0)], ["0 %", "100 %", "0 %"]);
    assert_eq!([share(1, 3), share(1, 1_000), share(1, 10_000_000)], ["33.33 %", "0.100 %", "<0.001 %"]);
    assert_eq!([share(999_999, 1_000_000), share(12, 100_000)], ["99.99 %", "0.012 %"]);
}

#[test]
fn chances_are_shares() {
    assert_eq!(
        [chance(0.0), chance(1.0), chance(1e-300), chance(1.0 - f64::EPSILON), chance(f64::NAN)],
        ["0 %", "100 %", "<0.001 %", "99.99 %", "0 %"]
    );
    assert_eq!(
        [chance(0.5), chance(0.0012), chance(2.0), chance(-1.0)],
        ["50.00 %", "0.120 %", "100 %", "0 %"]
    );
}

#[test]
fn durations_show_two_units() {
    let texts =
        [0, 59_500, 60_000, 61_000, 3_660_000, 90_000_000].map(|ms| duration(Duration::from_millis(ms)));
    assert_eq!(texts, ["0 s", "59.5 s", "1 min", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    assert_eq!(duration(Duration::from_nanos(1_500)), "1.5 µs");
    assert_eq!(duration(Duration::from_nanos(1)), "1 ns");
    assert_eq!(duration(Duration::from_micros(1_250)), "1.25 ms");
}

#[test]
fn times_are_utc() {
    assert_eq!(utc(1_498_780_801_000_000_000), "2017-06-30 00:00:01");
    assert_eq!(utc(1_655_071_198_444_458_000), "2022-06-12 21:59:58.444458");
    assert_eq!(utc(u64::MAX), "2554-07-21 23:34:33.709551615");
}
