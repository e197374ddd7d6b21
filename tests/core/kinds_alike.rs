//! The library decides each kind of limit as rules and the service do.

use tollgate::{
    Block, Blocked, Class, Decision, Distinct, FixedWindow, ManualClock, Quota, RateLimiter, Timestamp,
};

use crate::alike::{Case, Kind, Seen, cases};
use std::time::Duration;

fn seen(decision: &Decision) -> Seen {
    Seen {
        is_allowed: decision.is_allowed(),
        left: decision.remaining(),
        wait: decision.retry_after().map(|wait| wait.as_secs()),
        is_block: Some(decision.is_block()),
    }
}

fn last<'e>(entries: &[(&str, &'e str)]) -> &'e str {
    entries.last().expect("a request has entries").1
}

/// Plays a case on one decision for each request: at a time, for the values of the first and of the last entry.
fn play(case: &Case, decide: impl Fn(Timestamp, &str, &str) -> Decision) {
    case.play(|now, entries| seen(&decide(Timestamp::from_secs(now), entries[0].1, last(entries))));
}

#[test]
fn library_decides_each_kind_alike() {
    let clock = ManualClock::default;
    let block = Block::of(Duration::from_secs(600));
    let two = Quota::per_minute(2);
    for case in cases(cfg!(feature = "calendar")) {
        match case.kind {
            Kind::Block => {
                let block = block.at_most(Duration::from_secs(3_600));
                let limiter = RateLimiter::builder(Blocked::new(two, block)).clock(clock()).keyed::<String>();
                play(case, |now, key, _| limiter.at(now).check(key));
            }
            Kind::CompactBlock => {
                let limiter =
                    RateLimiter::builder(Blocked::new(two, block)).clock(clock()).compact().unwrap();
                play(case, |now, key, _| limiter.at(now).check(key));
            }
            Kind::Classes => {
                let window = FixedWindow::new(Quota::per_minute(4));
                let limiter = RateLimiter::builder(window).clock(clock()).direct();
                play(case, |now, class, _| {
                    let class = if class == "high" { Class::ALL } else { Class::percent(50) };
                    limiter.at(now).check_class(1, class)
                });
            }
            Kind::Calendar => calendar(case),
            Kind::Distinct => {
                let window = FixedWindow::new(Quota::per_hour(2));
                let limiter = RateLimiter::builder(window).clock(clock()).compact().unwrap();
                let values = Distinct::new(limiter, 1_000).unwrap();
                play(case, |now, key, value| values.at(now).check(key, value));
            }
            // The library finds no rule for an address, and the layer's `PrefixLimits` has tests of its own.
            Kind::Ranges | Kind::Prefixes => {}
        }
    }
}

#[cfg(feature = "calendar")]
fn calendar(case: &Case) {
    use tollgate::calendar::CalendarPeriod;
    use tollgate::{Calendar, CalendarWindow};

    let days = Calendar::new("Europe/Berlin", CalendarPeriod::Day).unwrap();
    let build = RateLimiter::builder(CalendarWindow::new(days, 2)).clock(ManualClock::default());
    let limiter = build.keyed::<String>();
    play(case, |now, key, _| limiter.at(now).check(key));
}

#[cfg(not(feature = "calendar"))]
fn calendar(_: &Case) {}
