//! Durations of the command line, in the form of the Go service's variables: `15ms`, `30m`, `1h30m`.

use std::time::Duration;

/// The units, the longest names first.
const UNITS: [(&str, u64); 9] = [
    ("min", 60_000_000_000),
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a duration: one or more numbers with their units, or `0`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; expected one such as 15ms, 30s, 30m or 1h30m");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_parse_as_in_go() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("15ms", 15_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("2m500ms", 120_500_000_000),
            ("3us", 3_000),
            ("5min", 300_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "15", "ms", ".s", "-1s", "1d", "1.2.3s", "99999999999999h", "1s x", "é"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
