//! Durations of the command line, in the form of the Go service's variables: `15ms`, `30m`, `1h30m`. Days, as in rules, are
//! added.

use std::time::Duration;

/// The units, the longest names first.
const UNITS: [(&str, u64); 10] = [
    ("min", 60_000_000_000),
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Parses a duration: one or more numbers with their units, or `0`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; expected one such as 15ms, 30s, 1h30m or 7d");
    let mut rest = text;
    let mut total: u64 = 0;
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(end);
        let (unit, nanos) = UNITS.iter().find(|(unit, _)| after.starts_with(unit)).ok_or_else(wrong)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
        // Nine digits are exact to a nanosecond for a second, which is enough here.
        let digits = &fraction[..fraction.len().min(9)];
        let part: u64 = if digits.is_empty() { 0 } else { digits.parse().map_err(|_| wrong())? };
        let scale = 10_u128.pow(u32::try_from(digits.len()).unwrap_or(9));
        let part = u64::try_from(u128::from(part) * u128::from(*nanos) / scale).unwrap_or(u64::MAX);
        let value = whole.checked_mul(*nanos).and_then(|value| value.checked_add(part)).ok_or_else(wrong)?;
        total = total.checked_add(value).ok_or_else(wrong)?;
        rest = &after[unit.len()..];
    }
    if text.is_empty() { Err(wrong()) } else { Ok(Duration::from_nanos(total)) }
}
