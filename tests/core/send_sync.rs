//! Every public type can be shared between threads and implements `Debug`.

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tollgate::sketch::TatSketch;
use tollgate::{
    Adjustable, Capacity, Carry, Clock, CoarseClock, Compact, Decision, DefaultClock, Direct, FixedWindow,
    Gcra, Keyed, ManualClock, MinimumSpacing, Outcome, Overflow, Quota, QuotaError, RateLimiter, Sketch,
    SlidingLog, SlidingWindow, StdClock, SubWindow, Timestamp, TokenBucket, WhenFull, joint::BoundLimit,
    joint::JointDecision, stores::CapacityError, stores::Gauges, stores::Saturation, stores::SnapshotError,
    stores::Tier, waiting::Jitter, waiting::NotReady,
};
use tollgate_testing::kinds::ALL;
use tollgate_testing::oracle::Spec;

fn shared<T: Send + Sync + Debug + 'static>() {}
fn value<T: Send + Sync + Debug + Clone + 'static>() {}
fn same_value<T: Send + Sync + Debug + Clone + 'static>(_: T) {}
fn small<T: Send + Sync + Debug + Copy + PartialEq + 'static>() {}
fn clock<T: Clock + Send + Sync + Debug + 'static>() {}

#[test]
fn public_types_are_shareable_and_printable() {
    small::<Timestamp>();
    small::<Quota>();
    small::<Decision>();
    small::<Outcome>();
    small::<WhenFull>();
    small::<Overflow>();
    small::<Capacity>();
    small::<Gauges>();
    small::<Saturation>();
    value::<CapacityError>();
    value::<SnapshotError>();
    value::<Tier>();
    value::<Tier<SlidingWindow>>();
    value::<QuotaError>();
    value::<ManualClock>();
    clock::<DefaultClock>();
    clock::<StdClock>();
    clock::<CoarseClock>();
    clock::<ManualClock>();
    clock::<Arc<ManualClock>>();
    for kind in ALL {
        with_algorithm!(kind, Spec::new(60, 60_000_000_000), algorithm => same_value(algorithm));
    }
    shared::<RateLimiter>();
    shared::<RateLimiter<Compact<FixedWindow>, StdClock>>();
    shared::<RateLimiter<Compact<Gcra, std::hash::RandomState>>>();
    shared::<TatSketch>();
    shared::<RateLimiter<Sketch>>();
    shared::<RateLimiter<Sketch<SlidingWindow, std::hash::RandomState>, StdClock>>();
    shared::<RateLimiter<Direct>>();
    shared::<RateLimiter<Direct<SlidingLog>, StdClock>>();
    shared::<RateLimiter<Keyed<IpAddr>>>();
    shared::<RateLimiter<Keyed<(u64, String), SubWindow>, ManualClock>>();
    shared::<RateLimiter<Adjustable<Compact>>>();
    shared::<RateLimiter<Adjustable<Keyed<String, SlidingLog>>, StdClock>>();
    small::<Carry>();
    small::<JointDecision<[Decision; 3]>>();
    small::<Jitter>();
    value::<BoundLimit<'static, Compact, StdClock, str>>();
    value::<NotReady>();
}

#[test]
fn error_types_implement_error() {
    fn error<T: std::error::Error + Send + Sync + 'static>() {}
    error::<QuotaError>();
    error::<CapacityError>();
    error::<SnapshotError>();
    error::<NotReady>();
}

/// A program whose `main` returns an error prints its `Debug`.
#[test]
fn debug_of_errors_is_message() {
    fn message(error: impl std::error::Error) {
        assert_eq!(format!("{error:?}"), error.to_string());
        assert!(!error.to_string().is_empty());
    }
    message("10 per fortnight".parse::<Quota>().unwrap_err());
    message("4 megs".parse::<Capacity>().unwrap_err());
    message(tollgate::sketch::CountMin::try_new(10, 0).unwrap_err());
    let limiter = RateLimiter::new(Quota::per_hour(1));
    message(limiter.restore(b"another file").unwrap_err());
    message(limiter.check_n("alice", 2).into_result().unwrap_err());
    message(limiter.wait_n("alice", 2).block().unwrap_err());
    message(tollgate::sketch::InFlight::new().try_enter("alice", 1, 0).map(drop).unwrap_err());
}

#[test]
fn debug_output_names_type() {
    let manual = ManualClock::new(Timestamp::from_secs(3));
    let direct = RateLimiter::builder(Gcra::new(Quota::per_second(5))).clock(manual.clone()).direct();
    let keyed = RateLimiter::builder(Gcra::new(Quota::per_second(5))).clock(manual.clone()).keyed::<String>();
    let decision = keyed.check("somebody");
    let compact = RateLimiter::builder(Gcra::new(Quota::per_second(5))).compact().expect("a valid quota");
    let windows =
        RateLimiter::builder(FixedWindow::new(Quota::per_second(5))).sketch().expect("a valid quota");
    let sketch = TatSketch::try_new(Quota::per_second(5), 1 << 10).expect("a valid quota");
    for (text, name) in [
        (format!("{manual:?}"), "ManualClock"),
        (format!("{direct:?}"), "RateLimiter"),
        (format!("{keyed:?}"), "RateLimiter"),
        (format!("{compact:?}"), "Compact"),
        (format!("{sketch:?}"), "TatSketch"),
        (format!("{windows:?}"), "Sketch"),
        (format!("{:?}", windows.saturation()), "Saturation"),
        (format!("{:?}", compact.tier(&Quota::per_second(4))), "Tier"),
        (format!("{:?}", compact.gauges()), "Gauges"),
        (format!("{:?}", Capacity::slots(5)), "Capacity"),
        (format!("{decision:?}"), "Decision"),
        (format!("{:?}", Gcra::new(Quota::per_second(5))), "Gcra"),
        (format!("{:?}", TokenBucket::interval(Quota::per_second(5))), "TokenBucket"),
        (format!("{:?}", MinimumSpacing::new(Duration::from_secs(2))), "MinimumSpacing"),
    ] {
        assert!(text.contains(name), "{text}");
    }
}
