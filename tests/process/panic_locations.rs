//! A constructor that panics reports its caller's line, not a line of this crate.

use super::alone;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::{
    FixedWindow, Quota, RateLimiter, SlidingLog, SlidingWindow, SubWindow, Timestamp, TokenBucket,
};

/// Returns the line of a call, and the call as a closure.
macro_rules! call {
    ($call:expr) => {
        (
            line!(),
            Box::new(|| {
                let _ = $call;
            }) as Box<dyn Fn()>,
        )
    };
}

#[test]
fn panicking_constructors_report_their_caller() {
    let _alone = alone();
    const SECOND: Duration = Duration::from_secs(1);
    let good = Quota::per_second(1);
    // This limit does not fit in any algorithm's state.
    let large = Quota::per_day(1 << 51);
    let calls = [
        call!(Quota::new(0, SECOND)),
        call!(Quota::per_second(0)),
        call!(Quota::per_minute(0)),
        call!(Quota::per_hour(0)),
        call!(Quota::per_day(0)),
        call!(good.burst(0)),
        call!(RateLimiter::new(large)),
        call!(FixedWindow::new(large)),
        call!(FixedWindow::from_first_use(large)),
        call!(SlidingWindow::new(large)),
        call!(SubWindow::new(good, 0)),
        call!(SlidingLog::new(large)),
        call!(TokenBucket::interval(large)),
        call!(TokenBucket::aligned(large, Timestamp::ZERO)),
        call!(TokenBucket::aligned_adaptive(large, Timestamp::ZERO)),
    ];
    let place = Arc::new(Mutex::new(None));
    let (seen, hook) = (Arc::clone(&place), panic::take_hook());
    panic::set_hook(Box::new(move |panic| {
        *seen.lock().unwrap() = panic.location().map(|place| (place.file().to_owned(), place.line()));
    }));
    let places = calls.map(|(line, call)| {
        let panicked = panic::catch_unwind(AssertUnwindSafe(call)).is_err();
        (line, panicked, place.lock().unwrap().take())
    });
    panic::set_hook(hook);
    for (line, panicked, place) in places {
        assert!(panicked, "the call in line {line} panics");
        assert_eq!(place, Some((file!().to_owned(), line)));
    }
}
