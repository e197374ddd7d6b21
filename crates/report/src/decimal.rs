//! Conversion of decimal text to whole numbers, without floats. `1655071198.444458` seconds are exactly
//! 1,655,071,198,444,458,000 nanoseconds, which no `f64` can represent.

/// A decimal number scaled by a power of ten.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Scaled {
    /// The whole part; digits below it are cut off.
    pub value: u64,
    /// Whether no digit was cut off.
    pub exact: bool,
}

/// The reason why a text is not a valid number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DecimalError {
    /// Not of the form `digits[.digits][e±digits]`.
    Syntax,
    /// Below zero.
    Negative,
    /// Above `u64::MAX` once scaled.
    TooLarge,
}

/// Returns the text's value times ten to the `power`.
///
/// # Errors
/// Returns an error if the text is not a decimal number, is negative, or exceeds 64 bits once scaled.
pub fn scaled(text: &[u8], power: i32) -> Result<Scaled, DecimalError> {
    let text = str::from_utf8(text).map_err(|_| DecimalError::Syntax)?;
    let (negative, text) = sign(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, text)) => (mantissa, exponent(text)?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(DecimalError::Syntax);
    }
    // Digits in order; the first `keep` of them are the whole part of the scaled number.
    let keep = i64::try_from(whole.len()).unwrap_or(i64::MAX) + i64::from(power) + i64::from(exponent);
    let mut value: u64 = 0;
    let mut exact = true;
    let mut seen: i64 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        if seen < keep {
            value = push(value, digit - b'0')?;
            seen += 1;
        } else if digit != b'0' {
            exact = false;
            break;
        }
    }
    // Zero stays zero at every scale; any other number overflows within twenty steps.
    while seen < keep && value > 0 {
        value = push(value, 0)?;
        seen += 1;
    }
    if negative && (value > 0 || !exact) {
        return Err(DecimalError::Negative);
    }
    Ok(Scaled { value, exact })
}

fn push(value: u64, digit: u8) -> Result<u64, DecimalError> {
    value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit))).ok_or(DecimalError::TooLarge)
}

/// Returns whether the text begins with a minus, and the text after the sign.
fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses the exponent, limited to ±10,000: beyond that every number is zero or too large.
fn exponent(text: &str) -> Result<i32, DecimalError> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !is_digits(digits) {
        return Err(DecimalError::Syntax);
    }
    let size = digits.bytes().fold(0, |size: i32, digit| (size * 10 + i32::from(digit - b'0')).min(10_000));
    Ok(if negative { -size } else { size })
}
