//! Times of records.

use tollgate_cli::input::time::{TimeError, TimeFormat, TimeParser};

const T: u64 = 1_498_780_801_000_000_000;

fn parse(format: &str, text: &str) -> Result<u64, TimeError> {
    TimeParser::new(format.parse().unwrap(), &[]).parse(text.as_bytes())
}

#[test]
fn all_time_formats_agree() {
    for text in [
        "2017-06-30T00:00:01Z",
        "2017-06-30 00:00:01",
        "2017-06-30T00:00:01.000000000999Z",
        "2017-06-29T20:00:01-04:00",
        "2017-06-29 20:00:01-0400",
        "30/Jun/2017:00:00:01 +0000",
        "[29/Jun/2017:20:00:01 -0400]",
        "30/jun/2017:00:00:01",
        "2017-06-30 00:00:01 UTC",
        "2017-06-30 00:00:01 +0000",
        "2017-06-29 20:00:01 -04:00",
        "2017-06-30 00:00:01.0 +0000 UTC",
        "2017-06-30T00:00:01,000",
        "2017-06-30T00:00:01.000+0000",
        "2017/06/30 00:00:01",
        "2017/06/30T00:00:01Z",
        "2017/06/29 20:00:01 -0400",
        "[2017-06-30T00:00:01Z]",
        "\"2017-06-30T00:00:01Z\"",
        "30/Jun/2017:00:00:01.000",
        "Fri Jun 30 00:00:01 2017",
        "Fri Jun 30 00:00:01.000000 2017",
        "Fri Jun 30 00:00:01 UTC 2017",
        "Thu Jun 29 20:00:01 -0400 2017",
        "Friday, 30-Jun-17 00:00:01 GMT",
        "Fri, 30 Jun 2017 00:00:01 GMT",
        "Thu, 29 Jun 2017 20:00:01 -0400",
        "30 Jun 2017 00:00:01.000",
        "30-Jun-2017 00:00:01.000",
        "Jun 30, 2017 @ 00:00:01.000",
        "20170630 000001",
        "20170630T00:00:01Z",
        "1498780801",
        "1498780801.0000000009",
        "1.498780801E9",
        "1.498780801E+12",
        "1498780801000",
        "1498780801000000",
        "1498780801000000000",
    ] {
        assert_eq!(parse("auto", text), Ok(T), "{text}");
    }
    assert_eq!(parse("%d.%m.%Y %H:%M:%S", "30.06.2017 00:00:01"), Ok(T));
    assert_eq!(parse("%d.%m.%Y %H:%M:%S %z", "29.06.2017 20:00:01 -0400"), Ok(T));
    assert_eq!(parse("%s", "1498780801"), Ok(T));
    assert_eq!(parse("ms", "1498780801000.25"), Ok(T + 250_000));
}

#[test]
fn fractions_keep_every_digit() {
    assert_eq!(parse("auto", "1655071198.444458"), Ok(1_655_071_198_444_458_000));
    assert_eq!(parse("auto", "2017-06-30T00:00:01.123456789Z"), Ok(T + 123_456_789));
    assert_eq!(parse("auto", "30/Jun/2017:00:00:01.25 +0000"), Ok(T + 250_000_000));
}

#[test]
fn field_name_determines_unit() {
    let mut parser = TimeParser::new(TimeFormat::Auto, &["start_ms".to_owned()]);
    assert_eq!(parser.parse(b"5000"), Ok(5_000_000_000));
    assert_eq!(parser.format().to_string(), "ms");
    assert_eq!(parser.parse(b"2017-06-30T00:00:01Z"), Err(TimeError::Syntax));
}

/// A second in milliseconds is in 1970, and ticks since year 1 are in 1990 as nanoseconds.
#[test]
fn implausible_numbers_are_rejected() {
    let auto = || TimeParser::new(TimeFormat::Auto, &["ts".to_owned()]);
    for ticks in ["638641653360000000", "133730421360000000"] {
        assert_eq!(auto().parse(ticks.as_bytes()), Err(TimeError::Implausible));
    }
    let mut parser = auto().plausible();
    assert_eq!(parser.parse(b"12"), Err(TimeError::Implausible));
    assert_eq!(parser.parse(b"1498780801000"), Ok(T));
    for wrong in [&b"1498780801"[..], b"0", b"4102444800000"] {
        assert_eq!(parser.parse(wrong), Err(TimeError::Implausible));
    }
    assert_eq!(parser.parse(b"631152000000"), Ok(631_152_000_000_000_000));
    // A format that the user names is no guess.
    assert_eq!(TimeParser::new("s".parse().unwrap(), &[]).plausible().parse(b"12"), Ok(12_000_000_000));
}

#[test]
fn bad_first_value_keeps_auto_format() {
    let mut parser = TimeParser::new(TimeFormat::Auto, &[]);
    assert_eq!(parser.parse(b"-"), Err(TimeError::Syntax));
    assert_eq!(parser.parse(b"2017-99-30T00:00:01Z"), Err(TimeError::Syntax));
    assert_eq!(parser.parse(b"1498780801"), Ok(T));
}

#[test]
fn invalid_times_are_rejected() {
    assert_eq!(parse("clf", "31/Feb/2017:00:00:01 +0000"), Err(TimeError::NoSuchTime));
    assert_eq!(parse("clf", "30/Jun/2017:24:00:01 +0000"), Err(TimeError::NoSuchTime));
    assert_eq!(parse("clf", "30/Jun/2017:00:00:01 +9999"), Err(TimeError::NoSuchTime));
    assert_eq!(parse("clf", "30/Jun/2017:00:00:01 UTC"), Err(TimeError::Syntax));
    assert_eq!(parse("clf", "30/Jun/2\x0017:00:00:01"), Err(TimeError::Syntax));
    assert_eq!(parse("rfc3339", "1969-12-31T23:59:59Z"), Err(TimeError::OutOfRange));
    assert_eq!(parse("rfc3339", "9999-12-31T23:59:59"), Err(TimeError::OutOfRange));
    assert_eq!(parse("s", "-1"), Err(TimeError::OutOfRange));
    assert_eq!(parse("s", "18446744074"), Err(TimeError::OutOfRange));
    assert_eq!(parse("auto", ""), Err(TimeError::Syntax));
    assert!("yesterday".parse::<TimeFormat>().is_err());
}

#[test]
fn leap_second_equals_second_before() {
    assert_eq!(parse("clf", "31/Dec/2016:23:59:60 +0000"), parse("clf", "31/Dec/2016:23:59:59 +0000"));
}
