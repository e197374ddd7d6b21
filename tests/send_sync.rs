//! Public types may be shared between threads, and all of them can be printed.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tollgate::{
    Clock, CoarseClock, Decision, Direct, FixedWindow, Gcra, Keyed, LeakyBucketMeter, LeakyBucketQueue,
    ManualClock, MinimumSpacing, Outcome, QuantaClock, Quota, QuotaError, RateLimiter, SlidingLog,
    SlidingWindow, StdClock, SubWindow, Timestamp, TokenBucket, WhenFull,
};

fn shared<T: Send + Sync + Debug + 'static>() {}
fn value<T: Send + Sync + Debug + Clone + 'static>() {}
fn small<T: Send + Sync + Debug + Copy + PartialEq + 'static>() {}
fn clock<T: Clock + Send + Sync + Debug + 'static>() {}

#[test]
fn everything_is_shareable_and_printable() {
    small::<Timestamp>();
    small::<Quota>();
    small::<Decision>();
    small::<Outcome>();
    small::<WhenFull>();
    value::<QuotaError>();
    value::<ManualClock>();
    clock::<QuantaClock>();
    clock::<StdClock>();
    clock::<CoarseClock>();
    clock::<ManualClock>();
    clock::<Arc<ManualClock>>();
    value::<Gcra>();
    value::<TokenBucket>();
    value::<LeakyBucketMeter>();
    value::<LeakyBucketQueue>();
    value::<FixedWindow>();
    value::<SlidingWindow>();
    value::<SubWindow>();
    value::<SlidingLog>();
    value::<MinimumSpacing>();
    shared::<RateLimiter>();
    shared::<RateLimiter<Direct>>();
    shared::<RateLimiter<Direct<SlidingLog>, StdClock>>();
    shared::<RateLimiter<Keyed<IpAddr>>>();
    shared::<RateLimiter<Keyed<(u64, String), SubWindow>, ManualClock>>();
}

#[test]
fn errors_are_errors() {
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<QuotaError>();
}

#[test]
fn what_is_printed_names_its_type() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    let direct = RateLimiter::builder(Gcra::new(Quota::per_second(5))).clock(manual.clone()).direct();
    let keyed = RateLimiter::builder(Gcra::new(Quota::per_second(5))).clock(manual.clone()).keyed::<String>();
    let decision = keyed.check("somebody");
    for (text, name) in [
        (format!("{manual:?}"), "ManualClock"),
        (format!("{direct:?}"), "RateLimiter"),
        (format!("{keyed:?}"), "RateLimiter"),
        (format!("{decision:?}"), "Decision"),
        (format!("{:?}", Gcra::new(Quota::per_second(5))), "Gcra"),
        (format!("{:?}", TokenBucket::interval(Quota::per_second(5))), "TokenBucket"),
        (format!("{:?}", MinimumSpacing::new(Duration::from_secs(2))), "MinimumSpacing"),
    ] {
        assert!(text.contains(name), "{text}");
    }
}
