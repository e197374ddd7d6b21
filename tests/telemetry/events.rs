//! The `tracing` events that a subscriber receives.

use crate::listener::{events, fields};
use std::time::Duration;
use tollgate::telemetry::{Denial, DenialLog, Level};

const DENIAL: Denial<'static> = Denial {
    domain: "api",
    rule: "per-ip",
    retry_after: Some(Duration::from_micros(1_500)),
    shadow: false,
    key: "203.0.113.7",
};

// G73
#[test]
fn denial_event_omits_key() {
    let seen = events(|| DenialLog::default().record(&DENIAL));
    let expected = fields([
        ("domain", "\"api\""),
        ("rule", "\"per-ip\""),
        ("retry_after_ms", "2"),
        ("shadow", "false"),
        ("message", "rate limited"),
    ]);
    assert_eq!(seen, [(tracing::Level::DEBUG, "tollgate".to_owned(), expected)]);
}

#[test]
fn denial_event_has_key_on_request() {
    let log = DenialLog::at(Level::Warn).with_keys(true);
    let seen = events(|| log.record(&Denial { retry_after: None, shadow: true, ..DENIAL }));
    let expected = fields([
        ("domain", "\"api\""),
        ("rule", "\"per-ip\""),
        ("shadow", "true"),
        ("key", "\"203.0.113.7\""),
        ("message", "rate limited"),
    ]);
    assert_eq!(seen, [(tracing::Level::WARN, "tollgate".to_owned(), expected)]);
}

#[test]
fn denial_event_has_configured_level() {
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    let seen = events(|| levels.map(DenialLog::at).iter().for_each(|log| log.record(&DENIAL)));
    let seen: Vec<tracing::Level> = seen.into_iter().map(|(level, ..)| level).collect();
    use tracing::Level as L;
    assert_eq!(seen, [L::ERROR, L::WARN, L::INFO, L::DEBUG, L::TRACE]);
}
