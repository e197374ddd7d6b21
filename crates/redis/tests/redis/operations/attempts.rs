//! An attempt to connect that panics in the client library, as with `rediss://` in a program without a provider of
//! cryptography.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate::Quota;
use tollgate_redis::{Breaker, DecidedBy, Limit};

use crate::{PATIENCE, absent, strict};

/// A runtime without I/O makes the attempt panic. A pause follows each attempt, as after any failure.
#[test]
fn panicking_connection_attempts_are_paused() {
    let panics = Arc::new(AtomicU64::new(0));
    let (counted, others) = (Arc::clone(&panics), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        if info.to_string().contains("IO is disabled") {
            counted.fetch_add(1, Ordering::SeqCst);
        } else {
            others(info);
        }
    }));
    let builder = strict(absent().limiter("api", Limit::gcra(Quota::per_second(1))), &[]);
    let limiter = builder.breaker(Breaker::new(u32::MAX, Duration::ZERO)).atomic().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let began = Instant::now();
    let error = runtime.block_on(limiter.charge_unchecked("k", 1)).unwrap_err();
    assert!(error.to_string().contains("provider"), "{error}");
    assert!(began.elapsed() < PATIENCE, "the call does not wait for its time-out");
    for _ in 0..1_000 {
        assert_eq!(runtime.block_on(limiter.check("k")).by(), DecidedBy::Closed);
    }
    // Pauses double from 20 to 250 ms.
    let (panics, at_most) = (panics.load(Ordering::SeqCst), 5 + began.elapsed().as_millis() / 20);
    assert!(panics >= 1 && u128::from(panics) <= at_most, "{panics} attempts, {at_most} expected");
}
