//! Threads begin and end while others remove the keys that they read, visit all keys, and drop keys that use another
//! limiter. Each key owns memory, so a key that is freed too early is a race that ThreadSanitizer finds.

use super::*;
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use tollgate::{Gcra, Keyed, Quota};

const KEYS: u64 = 64;

static OTHER: OnceLock<RateLimiter<Keyed<u64, Gcra>>> = OnceLock::new();

fn other() -> &'static RateLimiter<Keyed<u64, Gcra>> {
    OTHER.get_or_init(|| RateLimiter::keyed(Gcra::new(Quota::per_hour(1))))
}

/// A key with memory of its own. Its `Drop` uses another limiter.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Owned(Box<u64>);

impl Drop for Owned {
    fn drop(&mut self) {
        let key = *self.0 + 1_000;
        let _ = other().check(&key);
        let _ = other().reset(&key);
        *self.0 = u64::MAX;
    }
}

/// Uses a limiter while the thread-local values of its thread are dropped.
struct Last(Arc<RateLimiter<Keyed<Owned, Gcra>>>);

impl Drop for Last {
    fn drop(&mut self) {
        for number in 0..KEYS {
            let key = Owned(Box::new(number));
            let _ = self.0.check(&key);
            let _ = self.0.reset(&key);
        }
    }
}

thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });

// G34
#[test]
fn threads_end_while_others_remove_their_keys() {
    let limiter: Arc<RateLimiter<Keyed<Owned, Gcra>>> =
        Arc::new(RateLimiter::keyed(Gcra::new(Quota::per_second(1_000))));
    for round in 0..QUICK.rounds / 3 {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let limiter = Arc::clone(&limiter);
                std::thread::spawn(move || {
                    let mut random = Random(thread * 1_000 + round);
                    if thread % 4 == 1 {
                        LAST.set(Some(Last(Arc::clone(&limiter))));
                    }
                    let mut wrong = 0;
                    for _ in 0..100 * (thread % 3) {
                        let key = Owned(Box::new(random.below(KEYS)));
                        match random.below(8) {
                            0 => drop(limiter.reset(&key)),
                            1 if thread == 2 => limiter.for_each(|key, _| wrong += u64::from(*key.0 >= KEYS)),
                            2 if thread == 5 => limiter.clear(),
                            _ => drop(limiter.check(&key)),
                        }
                    }
                    wrong
                })
            })
            .collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no thread panics"), 0, "a visited key is not freed");
        }
    }
    assert!(limiter.len() <= index(KEYS));
}
