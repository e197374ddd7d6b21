//! Removed keys are freed in bounded steps: on threads that end, in thread-local destructors, and in the `Drop` of keys.
//! The stacks of these threads are small. In the past, a thread that freed keys pinned inside each step, and each pin
//! freed keys, until the stack overflowed.

use std::cell::RefCell;
use std::hash::Hash;
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use tollgate_testing::child::runs_in_own_process;

use tollgate::{Gcra, Keyed, Quota, RateLimiter, SlidingLog};

type Limiter = RateLimiter<Keyed<u64, Gcra>>;

fn limiter() -> Arc<Limiter> {
    Arc::new(RateLimiter::keyed(Gcra::new(Quota::per_hour(1))))
}

/// Checks and removes keys.
fn churn(limiter: &Limiter, keys: u64) {
    for key in 0..keys {
        assert!(limiter.check(&key).is_allowed());
        assert!(limiter.reset(&key));
    }
}

/// Runs `work` on a thread with a stack of 256 KiB.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap();
}

/// A thread visits all keys. Meanwhile another thread removes keys, which wait for the visitor. Then the visitor ends.
/// The seeds of a limiter decide when in its visit the thread waits.
fn visitor_ends(keys: u64) {
    for _ in 0..16 {
        visitor_ends_once(keys / 16);
    }
}

fn visitor_ends_once(keys: u64) {
    let limiter = limiter();
    assert!(limiter.check(&u64::MAX).is_allowed());
    let end = visitor(&limiter, || ());
    churn(&limiter, keys);
    end();
    // A thread that never removed a key, and ends, after keys have waited.
    on_small_stack(move || assert!(limiter.check(&0).is_allowed()));
}

/// Starts a thread that calls `begin` and then visits all keys. Returns when the thread waits at a key. The returned
/// function lets it go on, and waits for its end.
pub(super) fn visitor<K>(
    limiter: &Arc<RateLimiter<Keyed<K, Gcra>>>,
    begin: impl FnOnce() + Send + 'static,
) -> impl FnOnce()
where
    K: Hash + Eq + Send + Sync + 'static,
{
    let (visits, visited) = channel();
    let (go, gone) = channel::<()>();
    let limiter = Arc::clone(limiter);
    let visit = move || {
        begin();
        let mut first = Some((visits, gone));
        limiter.for_each(|_, _| {
            if let Some((visits, gone)) = first.take() {
                visits.send(()).unwrap();
                gone.recv().unwrap();
            }
        });
    };
    let visitor = Builder::new().stack_size(256 << 10).spawn(visit).unwrap();
    visited.recv().unwrap();
    move || {
        go.send(()).unwrap();
        visitor.join().unwrap();
    }
}

/// A thread-local value whose destructor checks and removes keys. Each thread drops it late.
fn destructor_checks(keys: u64) {
    struct Last(Arc<Limiter>, u64);
    impl Drop for Last {
        fn drop(&mut self) {
            assert!(self.0.check(&self.1).is_allowed());
            churn(&self.0, 1_000);
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

    let limiter = limiter();
    for registers_first in [false, true] {
        assert!(limiter.check(&(u64::MAX - 2)).is_allowed());
        let ending = Arc::clone(&limiter);
        let end = visitor(&limiter, move || {
            if registers_first {
                assert!(ending.contains(&(u64::MAX - 2)));
            }
            LAST.set(Some(Last(ending, u64::MAX - u64::from(registers_first))));
        });
        churn(&limiter, keys);
        end();
        assert!(limiter.reset(&(u64::MAX - 2)));
    }
}

/// The `Drop` of a key uses another keyed limiter, while many removed keys wait.
fn key_drop_checks(keys: u64) {
    static OTHER: OnceLock<Limiter> = OnceLock::new();

    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u64);
    impl Drop for Key {
        fn drop(&mut self) {
            if let Some(other) = OTHER.get() {
                let _ = other.check(&self.0);
                let _ = other.reset(&self.0);
            }
        }
    }

    let limiter: Arc<RateLimiter<Keyed<Key, Gcra>>> =
        Arc::new(RateLimiter::keyed(Gcra::new(Quota::per_hour(1))));
    assert!(limiter.check(&Key(u64::MAX)).is_allowed());
    let end = visitor(&limiter, || ());
    for key in (0..keys).map(Key) {
        assert!(limiter.check(&key).is_allowed() && limiter.reset(&key));
    }
    let _ = OTHER.set(RateLimiter::keyed(Gcra::new(Quota::per_hour(1))));
    end();
    on_small_stack(move || {
        for key in (0..keys).map(Key) {
            assert!(limiter.check(&key).is_allowed() && limiter.reset(&key));
        }
    });
}

/// Each thread removes one key and ends. No other thread checks.
// G34
#[test]
fn short_threads_free_what_ended_threads_left() {
    if !runs_in_own_process("reclamation::short_threads_free_what_ended_threads_left") {
        return;
    }
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(Arc<()>);
    let counted = Arc::new(());
    let limiter: Arc<RateLimiter<Keyed<Key, Gcra>>> =
        Arc::new(RateLimiter::keyed(Gcra::new(Quota::per_hour(1))));
    let mut most = 0;
    for _ in 0..2_000 {
        let (limiter, key) = (Arc::clone(&limiter), Key(Arc::clone(&counted)));
        std::thread::spawn(move || {
            assert!(limiter.check(&key).is_allowed() && limiter.reset(&key));
        })
        .join()
        .unwrap();
        most = most.max(Arc::strong_count(&counted));
    }
    // 64 batches wait at most, those that share a barrier, and the counter itself is not a key.
    assert!(most <= 64 + 16 + 1, "{most} of 2,000 removed keys waited");
}

const KEYS: u64 = 200_000;
const MANY_KEYS: u64 = 1_000_000;

// G34
#[test]
fn visitor_that_ends_frees_on_small_stack() {
    let _alone = super::alone();
    visitor_ends(KEYS);
}

// G34
#[test]
fn thread_local_destructor_checks_on_small_stack() {
    let _alone = super::alone();
    destructor_checks(KEYS);
}

// G34
#[test]
fn key_that_uses_other_limiter_drops_on_small_stack() {
    let _alone = super::alone();
    key_drop_checks(KEYS);
}

// G34
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn million_removed_keys_free_on_small_stacks() {
    let _alone = super::alone();
    visitor_ends(MANY_KEYS);
    destructor_checks(MANY_KEYS);
    key_drop_checks(MANY_KEYS);
}

/// A log of 10,000 units takes 80 KB for each key. So only a few such keys wait: 64 batches of one key each, and those that
/// share a barrier. A process of its own has no other thread that could be in a call, and so hold keys back, for as long as
/// the system does not run it.
#[test]
fn keys_with_large_states_do_not_wait_for_small_ones() {
    if !runs_in_own_process("reclamation::keys_with_large_states_do_not_wait_for_small_ones") {
        return;
    }
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Key(u64, Arc<()>);
    let counted = Arc::new(());
    let limiter: RateLimiter<Keyed<Key, SlidingLog>> =
        RateLimiter::keyed(SlidingLog::new(Quota::per_hour(10_000)));
    let mut most = 0;
    for number in 0..1_000 {
        let key = Key(number, Arc::clone(&counted));
        assert!(limiter.check(&key).is_allowed() && limiter.reset(&key));
        most = most.max(Arc::strong_count(&counted));
    }
    assert!(most <= 64 + 16, "{most} of 1,000 removed keys waited");
}
