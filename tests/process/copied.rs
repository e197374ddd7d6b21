//! A process that was copied by `fork` frees the keys that it removes, and the values that it replaces. The copy has one
//! thread. It also has what the other threads of the original had written, and these may have been anywhere in a call.

use super::reclamation::visitor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use tollgate::internals::migrate::{Numbered, Published, Replaced};
use tollgate_testing::child::runs_in_own_process;

use tollgate::{Gcra, Keyed, Quota, RateLimiter};

/// Keys share one counter of those that are in memory.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key(u64, Arc<()>);

type Limiter = RateLimiter<Keyed<Key, Gcra>>;

fn limiter() -> Arc<Limiter> {
    Arc::new(RateLimiter::keyed(Gcra::new(Quota::per_hour(1))))
}

/// Checks and removes keys of one thread. Returns the largest number of them that were removed and still in memory.
fn churn(limiter: &Limiter, thread: u64, keys: u64) -> usize {
    let counted = Arc::new(());
    let churned = (0..keys).map(|number| {
        let key = Key(thread << 32 | number, Arc::clone(&counted));
        let _ = (limiter.check(&key), limiter.reset(&key));
        drop(key);
        Arc::strong_count(&counted) - 1
    });
    churned.max().unwrap_or(0)
}

/// Runs `work` in a copy of this process, and returns what it returns. It must not panic, because a panic waits for locks that
/// a thread of the original may hold.
fn in_copy(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the copy calls functions of this program that take no lock of another thread, allocates, which the system's
    // allocator supports after a fork, and then ends without destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = i32::from(!work());
        // SAFETY: the function only takes a number.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "the system copies the process");
    let mut status = 0;
    // SAFETY: `status` is valid for a write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// The most keys that may wait: 64 batches of 64 keys, those that share a barrier, and those in the bag of the thread.
const MOST: usize = (64 + 16 + 1) * 64;

/// Whether removed keys are freed. Keys that waited before the process was copied are freed with them, so a few rounds may
/// pass until few keys wait.
fn frees(limiter: &Limiter) -> bool {
    (0..100).any(|_| churn(limiter, 0, 2 * MOST as u64) <= MOST)
}

/// A thread of the original visits all keys while the process is copied, so that its pin would never end in the copy.
// G34
#[test]
fn copy_does_not_wait_for_a_visitor_of_the_original() {
    if !runs_in_own_process("copied::copy_does_not_wait_for_a_visitor_of_the_original") {
        return;
    }
    let limiter = limiter();
    assert!(limiter.check(&Key(u64::MAX, Arc::default())).is_allowed());
    let end = visitor(&limiter, || ());
    // The control: in the original, all keys wait for the visitor.
    assert_eq!(churn(&limiter, 0, 20_000), 20_000);
    let copy = || {
        // A copy of a copy, which also has a thread of its own.
        let of_copy = || {
            let end = visitor(&limiter, || ());
            let is_freed = in_copy(|| frees(&limiter));
            end();
            is_freed
        };
        frees(&limiter) && of_copy()
    };
    assert!(in_copy(copy), "the copy does not free the keys that it removes");
    end();
}

/// Threads of the original remove and free keys while the process is copied again and again.
// G34
#[test]
fn copy_frees_whatever_other_threads_were_doing() {
    if !runs_in_own_process("copied::copy_frees_whatever_other_threads_were_doing") {
        return;
    }
    let (limiter, over) = (limiter(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 1..3 {
            let (limiter, over) = (&limiter, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = churn(limiter, thread, 100);
                }
            });
        }
        let all = (0..50).all(|_| in_copy(|| frees(&limiter)));
        over.store(true, Ordering::Relaxed);
        assert!(all, "the copy does not free the keys that it removes");
    });
}

/// A value with a number, which is counted when it is freed.
struct Counted(u64, Arc<AtomicUsize>);

impl Numbered for Counted {
    fn number(&self) -> u64 {
        self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

type Shared = Arc<Published<Counted>>;

fn shared(freed: &Arc<AtomicUsize>) -> Shared {
    Arc::new(Published::new(Counted(0, Arc::clone(freed))))
}

/// What happens to the two values of [`replaces`].
#[derive(Debug, PartialEq)]
struct Freed {
    first_in_use: usize,
    first: usize,
    second_in_use: usize,
    second: usize,
}

/// Holds and replaces a value, and then drops the owner of the next value while this thread holds it.
fn replaces(published: Shared, freed: &AtomicUsize) -> Freed {
    let (of_second, mut replaced) = (Arc::new(AtomicUsize::new(0)), Replaced::default());
    let count = |freed: &AtomicUsize| freed.load(Ordering::Relaxed);
    let held = published.load();
    published.publish(Arc::new(Counted(1, Arc::clone(&of_second))), &mut replaced);
    replaced.free_unused();
    let first_in_use = count(freed);
    drop(held);
    replaced.free_unused();
    let (first, held) = (count(freed), published.load());
    drop(published);
    let second_in_use = count(&of_second);
    drop(held);
    // The next owner that is dropped frees what others have left behind.
    drop(shared(&Arc::default()));
    Freed { first_in_use, first, second_in_use, second: count(&of_second) }
}

/// A thread of the original holds the first value, so the copy keeps it.
#[test]
fn copy_replaces_values_that_are_held() {
    if !runs_in_own_process("copied::copy_replaces_values_that_are_held") {
        return;
    }
    for (is_held, first) in [(false, 1), (true, 0)] {
        let freed = Arc::default();
        let published = shared(&freed);
        let (begin, begun) = channel();
        let (end, ended) = channel::<()>();
        let of_other = Arc::clone(&published);
        let other = std::thread::spawn(move || {
            let held = is_held.then(|| of_other.load());
            drop(of_other);
            begin.send(()).unwrap();
            let _ = ended.recv();
            drop(held);
        });
        begun.recv().unwrap();
        let expected = Freed { first_in_use: 0, first, second_in_use: 0, second: 1 };
        assert!(in_copy(|| replaces(published, &freed) == expected), "{expected:?}");
        drop(end);
        other.join().unwrap();
    }
}

/// Threads of the original hold values and leave them behind while the process is copied again and again. If one of them has just taken
/// the values that were left behind, the copy does not free these.
#[test]
fn copy_replaces_values_whatever_other_threads_were_doing() {
    if !runs_in_own_process("copied::copy_replaces_values_whatever_other_threads_were_doing") {
        return;
    }
    let over = AtomicBool::new(false);
    let replace = || {
        // SAFETY: the function only takes a number. It ends a copy that waits for a lock.
        unsafe { libc::alarm(60) };
        let freed = Arc::default();
        let Freed { first_in_use, first, second_in_use, .. } = replaces(shared(&freed), &freed);
        (first_in_use, first, second_in_use) == (0, 1, 0)
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let freed = Arc::default();
                    let _ = replaces(shared(&freed), &freed);
                }
            });
        }
        let all = (0..200).all(|_| in_copy(replace));
        over.store(true, Ordering::Relaxed);
        assert!(all, "the copy does not free a value that no thread holds");
    });
}
