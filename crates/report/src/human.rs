//! Numbers, shares, times and durations for people.

use std::time::Duration;

use clap::ValueEnum;

/// Returns a value's name on the command line, which is also its name in JSON and in tables.
pub fn name(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// `451581` as `451,581`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok());
    groups.collect::<Vec<_>>().join(",")
}

/// `1 line`, `2 lines`.
pub fn counted(n: u64, what: &str) -> String {
    format!("{} {what}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Writes a part of a whole in percent, with enough digits to differ from 0 % and from 100 %.
pub fn share(part: u64, whole: u64) -> String {
    if part == 0 || whole == 0 {
        return "0 %".to_owned();
    }
    if part == whole {
        return "100 %".to_owned();
    }
    // In thousandths of a percent, rounded down; exact in integers for every trace that fits in memory.
    let thousandths = u128::from(part) * 100_000 / u128::from(whole);
    match thousandths {
        0 => "<0.001 %".to_owned(),
        1..=999 => format!("0.{thousandths:03} %"),
        _ => {
            let hundredths = (u128::from(part) * 20_000 / u128::from(whole)).div_ceil(2).min(9_999);
            format!("{}.{:02} %", hundredths / 100, hundredths % 100)
        }
    }
}

/// Writes a chance from 0 to 1 in percent, as [`share`] does.
pub fn chance(chance: f64) -> String {
    const WHOLE: u64 = 1_000_000_000;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "`as` saturates; NaN is none"
    )]
    let part = (chance * WHOLE as f64).round() as u64;
    // A chance above 0 is not rounded to 0 %, and a chance below 1 is not rounded to 100 %.
    let (least, most) = (u64::from(chance > 0.0), WHOLE - u64::from(chance < 1.0));
    share(part.clamp(least, most), WHOLE)
}

/// Writes a duration in its two largest units.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let two = |large: u64, name: &str, small: u64, small_name: &str| match small {
        0 => format!("{} {name}", count(large)),
        _ => format!("{} {name} {small} {small_name}", count(large)),
    };
    match seconds {
        0 if duration.is_zero() => "0 s".to_owned(),
        0 if duration.subsec_nanos() < 1_000 => format!("{} ns", duration.subsec_nanos()),
        0 if duration.subsec_nanos() < 1_000_000 => decimal(u64::from(duration.subsec_nanos()), 1_000, "µs"),
        0 => decimal(u64::from(duration.subsec_micros()), 1_000, "ms"),
        1..60 => decimal(seconds * 1_000 + u64::from(duration.subsec_millis()), 1_000, "s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

fn decimal(value: u64, unit: u64, name: &str) -> String {
    let fraction = format!("{:03}", value % unit);
    match fraction.trim_end_matches('0') {
        "" => format!("{} {name}", value / unit),
        digits => format!("{}.{digits} {name}", value / unit),
    }
}

/// Returns a duration's nanoseconds; periods and waits are below 585 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes a time in UTC.
pub fn datetime(nanos: u64) -> jiff::civil::DateTime {
    let time = jiff::Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    time.to_zoned(jiff::tz::TimeZone::UTC).datetime()
}

/// Writes a time in UTC, to the second or with its fraction.
pub fn utc(nanos: u64) -> String {
    datetime(nanos).to_string().replace('T', " ")
}

/// Writes bytes in binary units.
pub fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{}.{} KiB", n / 1024, n % 1024 * 10 / 1024),
        _ => format!("{}.{} MiB", count(n / 1_048_576), n % 1_048_576 * 10 / 1_048_576),
    }
}

/// Writes bytes in the syntax of flags, in the largest unit that gives a whole number.
pub fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
        bytes => format!("{bytes}B"),
    }
}
