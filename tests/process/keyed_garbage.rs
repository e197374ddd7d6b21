//! A keyed store frees the memory of removed keys while it is in use, for every kind of call.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Gcra, Keyed, ManualClock, Quota, RateLimiter, Timestamp};

/// All keys in memory share the `Arc`, which counts them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Counted(u64, Arc<()>);

/// Checks batches of `size` new keys. Each key is idle after 10 ms of the clock.
///
/// Returns the largest number of keys that were in memory but not in the store.
fn garbage_of_batches(size: u64) -> usize {
    let in_memory = Arc::new(());
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let limiter: RateLimiter<Keyed<Counted, Gcra>, _> =
        RateLimiter::builder(Gcra::new(Quota::per_second(100))).clock(clock.clone()).keyed();
    let (mut most, mut decisions) = (0, Vec::new());
    for batch in 0..200_000 / size {
        let keys: Vec<_> =
            (batch * size..(batch + 1) * size).map(|key| Counted(key, Arc::clone(&in_memory))).collect();
        decisions.clear();
        limiter.check_each(keys.iter().map(|key| (key, 1)), |decision| decisions.push(decision));
        drop(keys);
        // Five thousand new keys come in a second.
        clock.advance(Duration::from_micros(200 * size));
        most = most.max((Arc::strong_count(&in_memory) - 1).saturating_sub(limiter.len()));
    }
    most
}

/// Asserts that few of 200,000 keys were removed and are still in memory. A thread that the system does not run may keep
/// garbage for a while, so one trial of five is enough.
fn assert_little(mut garbage: impl FnMut() -> usize) {
    let _alone = super::alone();
    let trials: Vec<_> = (0..5).map(|_| garbage()).take_while(|garbage| *garbage >= 20_000).collect();
    assert!(trials.len() < 5, "{trials:?} of 200,000 keys were removed and still in memory");
}

#[test]
fn single_checks_of_new_keys_leave_no_garbage() {
    assert_little(|| garbage_of_batches(1));
}

/// Keys are freed by the calls that remove keys, a few batches at a time. In the past a batch of any size was one pin.
#[test]
fn batches_of_new_keys_leave_no_garbage() {
    assert_little(|| garbage_of_batches(256));
}

/// In the past, all removed keys waited for one epoch, and each took 32 more bytes. Then every 128 later checks freed
/// only 512 keys.
#[test]
fn clear_frees_keys_early() {
    assert_little(|| {
        let in_memory = Arc::new(());
        let limiter: RateLimiter<Keyed<Counted, Gcra>> = RateLimiter::keyed(Gcra::new(Quota::per_hour(1)));
        for key in 0..200_000 {
            assert!(limiter.check(&Counted(key, Arc::clone(&in_memory))).is_allowed());
        }
        limiter.clear();
        Arc::strong_count(&in_memory) - 1
    });
}
