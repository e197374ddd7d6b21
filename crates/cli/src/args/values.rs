//! Values that several flags of the service have.

use std::time::Duration;

use crate::serve::duration;

/// Parses a flag's variable.
pub fn truth(text: &str) -> Result<bool, String> {
    match &*text.to_ascii_lowercase() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// Parses a duration above 0.
pub fn some_time(text: &str) -> Result<Duration, String> {
    match duration::parse(text)? {
        Duration::ZERO => Err("expected a time above 0".to_owned()),
        time => Ok(time),
    }
}

/// Parses a size in bytes: `4MiB`, `512KiB` or `65536`.
pub fn size(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no size; expected one such as 4MiB, 512KiB or 65536");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit: u64 = match unit {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return Err(wrong()),
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    // HTTP/2 and gRPC count in 32 bits.
    match bytes {
        Some(bytes @ 1..=0x7fff_ffff) => usize::try_from(bytes).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}
