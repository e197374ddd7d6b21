//! A value with a number that one thread replaces while others use it, and charge the counters that it has.
//!
//! # A charge that is made while the value is replaced
//! The next value takes over what its predecessor has counted. A charge that lands in the old counters after that would be lost.
//! So every thread that charges counters of a value follows the same protocol:
//!
//! 1. Load the value, and charge its counters.
//! 2. Ask [`Published::counts_charge`]. It issues a fence, and then looks whether the value was replaced.
//! 3. If the charge does not count, refund it and begin again with the present value.
//!
//! The replacing thread publishes the next value, issues a fence, and then reads the old counters. Both sides write first and
//! then look, so at least one of them sees the write of the other: either the next value takes the charge over, or the charge
//! is made again. If both see it, the refund and the second charge are only stricter for the client.
//!
//! A charge counts without a look at the value if its counters are open: see [`latest`](super::latest). It also counts if the
//! present value has the same counters.
//!
//! # Which thread frees a replaced value
//! A value may be large: the rules of one load, or a store with all keys. A user that was the last one would free it, and a
//! request would wait for that. So the thread that replaces a value keeps it among its [`Replaced`] ones, and frees it there
//! when no user is left. A value that still has users then waits for a later call, because the replacing thread
//! does not wait.

use std::fmt;
use std::sync::Arc;

use crate::base::reclaim::{Former, Loaded, Swap};
use crate::base::sync::fence_after_rmw;

/// A value that can be replaced during use: see the module docs.
#[derive(Debug)]
pub struct Published<T>(Swap<T>);

/// A value with a number. Each published value has a higher number than all values before it.
pub trait Numbered {
    /// The number of this value.
    fn number(&self) -> u64;
}

impl<T: Numbered + Send + Sync + 'static> Published<T> {
    /// Publishes the first value. Any thread may free it.
    pub fn new(first: T) -> Self {
        Self(Swap::new(first))
    }
}

impl<T: Numbered> Published<T> {
    /// Returns the current value.
    #[inline(always)]
    pub fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    /// Replaces the current value, and adds it to `replaced`. Only one thread at a time may call this.
    pub fn publish(&self, next: Arc<T>, replaced: &mut Replaced<T>) {
        replaced.0.push(self.0.swap(next));
    }

    /// Whether a charge counts that this thread has just made in counters of `value`. If not, the caller refunds it and charges
    /// the present value instead.
    ///
    /// `is_open` tells whether the counters are open for the charge, and otherwise records it: see
    /// [`Generation::is_open_for`](super::Generation::is_open_for). `still_counts` tells whether another value, which is in
    /// force now, has the same counters.
    #[inline(always)]
    pub fn counts_charge(
        &self,
        value: &T,
        is_open: impl FnOnce() -> bool,
        still_counts: impl FnOnce(&T) -> bool,
    ) -> bool {
        fence_after_rmw();
        is_open() || self.is_counted_by_present(value, still_counts)
    }

    #[cold]
    fn is_counted_by_present(&self, value: &T, still_counts: impl FnOnce(&T) -> bool) -> bool {
        let present = self.load();
        present.number() == value.number() || still_counts(&present)
    }
}

/// The values that one [`Published`] has replaced, as long as other threads may use them. It belongs to the thread that replaces them.
pub struct Replaced<T>(Vec<Former<T>>);

impl<T> Replaced<T> {
    /// Frees the values that no other thread uses any more, on this thread. Returns whether some are left.
    pub fn free_unused(&mut self) -> bool {
        // The newest first, because a value may use the one before it.
        Former::free_unused(&mut self.0);
        !self.0.is_empty()
    }
}

impl<T> Default for Replaced<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> fmt::Debug for Replaced<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Replaced").field(&self.0.len()).finish()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::sync::Mutex;
    use std::thread::{self, ThreadId};

    use super::*;

    /// Notes the thread that frees it.
    struct Noted(u64, Arc<Mutex<Vec<ThreadId>>>);

    impl Numbered for Noted {
        fn number(&self) -> u64 {
            self.0
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(thread::current().id());
        }
    }

    /// The last user of a large value freed it, and the request of that user waited for this.
    // G108
    #[test]
    fn replacing_thread_frees_the_values() {
        let freed = Arc::default();
        let noted = |number| Noted(number, Arc::clone(&freed));
        let (value, mut replaced) = (Published::new(noted(0)), Replaced::default());
        let loaded = [value.load(), value.load()];
        value.publish(Arc::new(noted(1)), &mut replaced);
        assert!(replaced.free_unused(), "the first value has users");
        let clone = value.load().to_arc();
        value.publish(Arc::new(noted(2)), &mut replaced);
        thread::scope(|scope| drop(scope.spawn(|| drop((loaded, clone)))));
        assert!(freed.lock().unwrap().is_empty(), "no user frees a value");
        assert!(!replaced.free_unused());
        assert_eq!(*freed.lock().unwrap(), [thread::current().id(); 2]);
        assert_eq!(value.load().number(), 2);
    }
}

/// Loom models of a thread that charges a counter while another one replaces it.
#[cfg(all(test, tollgate_loom))]
mod models {
    use super::*;
    use crate::base::sync::{self, AtomicU64, Ordering, explore, full_fence, spawn};

    struct Counter {
        number: u64,
        units: Arc<AtomicU64>,
    }

    impl Numbered for Counter {
        fn number(&self) -> u64 {
            self.number
        }
    }

    type Counts = fn(&Published<Counter>, &Counter) -> bool;

    fn counts(present: &Published<Counter>, charged: &Counter) -> bool {
        present.counts_charge(charged, || false, |now| Arc::ptr_eq(&now.units, &charged.units))
    }

    /// Charges one unit. Returns how often it was charged.
    fn charge(present: &Published<Counter>, counts: Counts) -> u32 {
        let mut times = 0;
        loop {
            let counter = present.load();
            counter.units.fetch_add(1, Ordering::AcqRel);
            times += 1;
            if counts(present, &counter) {
                return times;
            }
            counter.units.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Replaces the counter while a thread charges it. The next one has the same units, or takes them over. Returns the units
    /// afterwards, and how often the thread charged.
    fn replace_during_charge(counts: Counts, is_same: bool) -> (u64, u32) {
        let units = Arc::new(AtomicU64::new(0));
        let present = sync::Arc::new(Published::new(Counter { number: 0, units: Arc::clone(&units) }));
        let charging = spawn(&present, move |present| charge(present, counts));
        let next = if is_same { Arc::clone(&units) } else { Arc::new(AtomicU64::new(0)) };
        present.publish(Arc::new(Counter { number: 1, units: Arc::clone(&next) }), &mut Replaced::default());
        if !is_same {
            full_fence();
            next.fetch_add(units.load(Ordering::Acquire), Ordering::AcqRel);
        }
        let times = charging.join().unwrap();
        (next.load(Ordering::Acquire), times)
    }

    fn charge_is_kept(counts: Counts) {
        let (units, _) = replace_during_charge(counts, false);
        assert!(units >= 1, "the next counter has the charge: {units}");
    }

    // G49
    #[test]
    fn replaced_counter_loses_no_charge() {
        explore(3, || charge_is_kept(counts));
    }

    // G49
    #[test]
    #[should_panic(expected = "the next counter has the charge")]
    fn control_without_look_loses_charge() {
        explore(3, || charge_is_kept(|_, _| true));
    }

    // G49
    #[test]
    fn kept_counter_is_charged_once() {
        explore(3, || assert_eq!(replace_during_charge(counts, true), (1, 1), "the counter is the same"));
    }

    // G49
    #[test]
    #[should_panic(expected = "the counter is the same")]
    fn control_that_compares_numbers_only_charges_twice() {
        explore(3, || {
            let counts: Counts = |present, charged| present.counts_charge(charged, || false, |_| false);
            assert_eq!(replace_during_charge(counts, true), (1, 1), "the counter is the same");
        });
    }
}
