//! Durations of flags.

use std::time::Duration;

use tollgate_serve::duration::parse;

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
        ("1d12h", 129_600_000_000_000),
    ] {
        assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
    }
    for text in ["", "15", "ms", ".s", "-1s", "1w", "1.2.3s", "99999999999999h", "1s x", "é"] {
        assert!(parse(text).is_err(), "{text}");
    }
}
