//! Decimal numbers.

use tollgate_report::decimal::{DecimalError, scaled};

fn whole(text: &str, power: i32) -> Result<(u64, bool), DecimalError> {
    scaled(text.as_bytes(), power).map(|scaled| (scaled.value, scaled.exact))
}

#[test]
fn fractional_seconds_are_exact() {
    assert_eq!(whole("1655071198.444458", 9), Ok((1_655_071_198_444_458_000, true)));
    assert_eq!(whole("1655071198.444458001", 9), Ok((1_655_071_198_444_458_001, true)));
    assert_eq!(whole("1.655071198444458001e9", 9), Ok((1_655_071_198_444_458_001, true)));
    assert_eq!(whole("1655071198444.458001E-3", 9), Ok((1_655_071_198_444_458_001, true)));
}

#[test]
fn truncated_digits_are_reported() {
    assert_eq!(whole("1.9999999999", 9), Ok((1_999_999_999, false)));
    assert_eq!(whole("2.000", 0), Ok((2, true)));
    assert_eq!(whole("2.001", 0), Ok((2, false)));
    assert_eq!(whole("5e-1", 0), Ok((0, false)));
    assert_eq!(whole(".5", 1), Ok((5, true)));
    assert_eq!(whole("5.", 0), Ok((5, true)));
}

#[test]
fn decimal_range_limits() {
    assert_eq!(whole("18446744073709551615", 0), Ok((u64::MAX, true)));
    assert_eq!(whole("18446744073709551616", 0), Err(DecimalError::TooLarge));
    assert_eq!(whole("1e19", 0), Ok((10_000_000_000_000_000_000, true)));
    assert_eq!(whole("1e20", 0), Err(DecimalError::TooLarge));
    assert_eq!(whole("1e999999999999", 0), Err(DecimalError::TooLarge));
    assert_eq!(whole("0e999999999999", 9), Ok((0, true)));
    assert_eq!(whole("1e-999999999999", 9), Ok((0, false)));
    assert_eq!(whole("-0", 0), Ok((0, true)));
    assert_eq!(whole("-0.1", 0), Err(DecimalError::Negative));
}

#[test]
fn invalid_decimals_are_rejected() {
    for text in ["", "-", "+", ".", "e5", "1e", "1e+", "1.2.3", "0x10", "1_000", " 1", "NaN", "inf", "١"] {
        assert_eq!(whole(text, 0), Err(DecimalError::Syntax), "{text:?}");
    }
}
