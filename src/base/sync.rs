//! The one shim for model checking: only this module names the atomics of core, loom or shuttle.
//!
//! Every other module takes its atomics from here, so the loom models explore the code that ships. The flag contains
//! the crate's name (`--cfg tollgate_loom`), because plain `--cfg loom` would reach every dependency.
//!
//! `--cfg tollgate_shuttle`, together with that flag, replaces loom by shuttle. Loom explores every interleaving of two
//! or three threads; shuttle explores a sample of the interleavings of many threads. Shuttle treats every ordering as
//! sequentially consistent.

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tollgate needs 64-bit atomics, which this target does not have");

#[cfg(all(tollgate_loom, not(test)))]
compile_error!("--cfg tollgate_loom works only with the tests: run ci/loom.sh or ci/shuttle.sh");

#[cfg(not(tollgate_loom))]
pub(crate) use core::sync::atomic::{
    AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub(crate) use std::sync::{Condvar, Mutex};

#[cfg(all(tollgate_loom, not(tollgate_shuttle)))]
use loom as modelled;
#[cfg(tollgate_shuttle)]
use shuttle as modelled;

#[cfg(tollgate_loom)]
pub(crate) use modelled::sync::atomic::{
    AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(tollgate_loom)]
pub(crate) use modelled::sync::{Condvar, Mutex};
/// The types that models use.
#[cfg(all(test, tollgate_loom))]
pub(crate) use modelled::{sync::Arc, thread};

/// Returns the calling thread's number. Threads get numbers from 0, in the order of their first call.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    use std::cell::Cell;

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // No destructor, so that a thread can read the number while it ends. The largest number means "not assigned".
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });

    #[cold]
    fn first() -> usize {
        // Ordering: Relaxed. It matters only that each thread gets a different number.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        usize::MAX => first(),
        number => number,
    }
}

/// In models, each thread passes its own number to the function that needs it.
#[cfg(tollgate_loom)]
pub(crate) const fn thread_number() -> usize {
    0
}

/// Orders a read-modify-write of the calling thread before its later loads, as a sequentially consistent fence does. If
/// two threads each write one word, call this function and read the other thread's word, then at least one of them sees
/// the other's write.
///
/// On x86-64 every read-modify-write is already such a fence, so only the compiler must not reorder the accesses
/// (crossbeam-epoch's `pin` relies on the same fact).
#[inline]
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst, here and below; pairs with the same fence in the other thread.
    #[cfg(all(target_arch = "x86_64", not(tollgate_loom), not(miri)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(tollgate_loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Orders all earlier accesses of the calling thread before all of its later ones. Pairs with [`fence_after_rmw`] and
/// with itself.
#[inline]
pub(crate) fn full_fence() {
    // Ordering: SeqCst; see `fence_after_rmw`.
    fence(Ordering::SeqCst);
}

/// Returns how many threads can run at the same time, if the system reports it. Callers divide shared state by this
/// number. In models the number is always one, because asking the system would take longer than most interleavings.
#[cfg(feature = "std")]
pub(crate) fn processors() -> Option<usize> {
    if cfg!(tollgate_loom) { Some(1) } else { std::thread::available_parallelism().ok().map(usize::from) }
}

/// A shared value that is replaced as a whole. Outside the models it is an `ArcSwap`.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[derive(Debug)]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);

/// A loaded value of a [`Swap`].
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub(crate) type Loaded<T> = arc_swap::Guard<std::sync::Arc<T>>;

/// A loaded value of a [`Swap`].
#[cfg(tollgate_loom)]
pub(crate) type Loaded<T> = Box<std::sync::Arc<T>>;

#[cfg(all(feature = "std", not(tollgate_loom)))]
impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(arc_swap::ArcSwap::from_pointee(value))
    }

    /// Returns the current value, which stays valid as long as the caller holds it.
    #[inline]
    pub(crate) fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    pub(crate) fn store(&self, value: std::sync::Arc<T>) {
        self.0.store(value);
    }
}

/// In the models a replaced value is freed only when the whole `Swap` is dropped.
#[cfg(tollgate_loom)]
#[derive(Debug)]
pub(crate) struct Swap<T> {
    present: AtomicUsize,
    /// A mutex of the standard library. The model never switches threads while it is held, so it orders nothing; only
    /// the index orders accesses.
    values: std::sync::Mutex<Vec<std::sync::Arc<T>>>,
}

#[cfg(tollgate_loom)]
impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        let values = std::sync::Mutex::new(vec![std::sync::Arc::new(value)]);
        Self { present: AtomicUsize::new(0), values }
    }

    pub(crate) fn load(&self) -> Loaded<T> {
        let present = self.present.load(Ordering::Acquire);
        Box::new(self.values.lock().unwrap()[present].clone())
    }

    pub(crate) fn store(&self, value: std::sync::Arc<T>) {
        let mut values = self.values.lock().unwrap();
        values.push(value);
        let newest = values.len() - 1;
        drop(values);
        self.present.store(newest, Ordering::Release);
    }
}

/// Deferred reclamation. Outside the models it is crossbeam-epoch.
///
/// Nothing that is retired after a guard was taken is freed before that guard is dropped.
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub(crate) mod epoch {
    use std::cell::Cell;

    /// A thread collects once in this number of calls. One collection frees at least eight times as many items.
    const COLLECTED: u32 = 64;

    thread_local! {
        static RETIRED: Cell<u32> = const { Cell::new(0) };
    }

    /// Pins the calling thread while it exists.
    pub(crate) struct Guard(crossbeam_epoch::Guard);

    /// Pins the calling thread.
    #[inline]
    pub(crate) fn pin() -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    impl Guard {
        /// Calls `free` with `ptr` and `part` once no currently pinned thread can hold that part.
        ///
        /// # Safety
        /// If no thread that pins from now on can reach the part, then it must be sound to call `free` with these
        /// arguments once, on any thread, at any later time. The caller must ensure that no such thread can reach the
        /// part.
        pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, free: unsafe fn(*mut T, usize)) {
            // SAFETY: the caller's duty is exactly this function's contract.
            unsafe {
                self.0.defer_unchecked(move || free(ptr, part));
            }
        }

        /// Frees retired items, in one of 64 calls of a thread. A caller that retires many items must call this
        /// function, because crossbeam-epoch itself collects only once in 128 pins. Do not call it while an item is
        /// being freed, because a collection may allocate.
        pub(crate) fn collect_sometimes(&self) {
            // A thread that is ending does not collect.
            let retired = RETIRED.try_with(|retired| retired.replace(retired.get().wrapping_add(1)));
            if retired.is_ok_and(|retired| retired % COLLECTED == COLLECTED - 1) {
                self.0.flush();
            }
        }

        /// Unpins and pins again, so that items retired in the meantime can be freed. The caller must not use any
        /// pointer that it found before.
        pub(crate) fn repin(&mut self) {
            self.0.repin();
        }
    }
}

/// In the models an item is freed as soon as no thread is pinned. (crossbeam-epoch itself would have more
/// interleavings than the models.) The module remembers each retired item until then, so that a second retire of the
/// same item fails the model.
#[cfg(tollgate_loom)]
pub(crate) mod epoch {
    use std::cell::RefCell;

    use super::{AtomicUsize, Ordering, modelled};

    /// Orders the accesses of a thread before its unpin before the accesses of threads that pin later, as
    /// crossbeam-epoch does.
    struct Order {
        /// Whether anything was retired; an atomic of the standard library. Until then nothing is freed, so no order
        /// is needed.
        needed: std::sync::atomic::AtomicBool,
        unpins: AtomicUsize,
    }

    modelled::lazy_static! {
        static ref ORDER: Order = Order { needed: false.into(), unpins: AtomicUsize::new(0) };
    }

    fn order() {
        if ORDER.needed.load(Ordering::Relaxed) {
            // Ordering: AcqRel. An unpin releases the thread's work, and every later pin acquires it.
            ORDER.unpins.fetch_add(1, Ordering::AcqRel);
        }
    }

    struct Retired {
        ptr: *mut (),
        part: usize,
        free: unsafe fn(*mut (), usize),
    }

    #[derive(Default)]
    struct Epoch {
        pinned: usize,
        retired: Vec<Retired>,
        /// The number of items retired since the last `take_retired`.
        count: usize,
    }

    thread_local! {
        // A loom execution runs all its threads on one OS thread, so the model's threads share this value.
        static EPOCH: RefCell<Epoch> = RefCell::default();
    }

    /// Pins the calling thread while it exists.
    pub(crate) struct Guard(());

    /// Pins the calling thread.
    pub(crate) fn pin() -> Guard {
        EPOCH.with_borrow_mut(|epoch| epoch.pinned += 1);
        order();
        Guard(())
    }

    impl Guard {
        /// Calls `free` with `ptr` and `part` once no thread is pinned.
        ///
        /// # Safety
        /// The same contract as `retire` outside the models.
        pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, free: unsafe fn(*mut T, usize)) {
            // SAFETY: all thin pointers have one layout, and `free` is called only with this pointer.
            let free =
                unsafe { std::mem::transmute::<unsafe fn(*mut T, usize), unsafe fn(*mut (), usize)>(free) };
            EPOCH.with_borrow_mut(|epoch| {
                let is_this = |other: &Retired| other.ptr == ptr.cast() && other.part == part;
                assert!(!epoch.retired.iter().any(is_this), "a node is retired at most once");
                epoch.retired.push(Retired { ptr: ptr.cast(), part, free });
                epoch.count += 1;
            });
            ORDER.needed.store(true, Ordering::Relaxed);
        }

        /// Does nothing: the models free at each last unpin.
        #[expect(clippy::unused_self, reason = "the same signature as outside the models")]
        pub(crate) fn collect_sometimes(&self) {}

        /// Unpins and pins again, as outside the models.
        pub(crate) fn repin(&mut self) {
            *self = pin();
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            // A panic ends the model, so nothing needs to be freed.
            if std::thread::panicking() {
                return;
            }
            order();
            let unpinned = |epoch: &mut Epoch| {
                epoch.pinned -= 1;
                if epoch.pinned == 0 { std::mem::take(&mut epoch.retired) } else { Vec::new() }
            };
            for Retired { ptr, part, free } in EPOCH.with_borrow_mut(unpinned) {
                // SAFETY: the contract of `retire`: no thread was pinned when these items were taken.
                unsafe { free(ptr, part) };
            }
        }
    }

    /// Returns how many items were retired since the last call, and starts a new model.
    #[cfg(test)]
    pub(crate) fn take_retired() -> usize {
        EPOCH.with_borrow_mut(|epoch| std::mem::take(&mut epoch.count))
    }
}

/// Runs a model: explores every interleaving with at most `preemptions` preemptions.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
pub(crate) fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore_long(preemptions, 1_000, run);
}

/// Runs [`explore`] with at most `steps` steps.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
pub(crate) fn explore_long(preemptions: usize, steps: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = steps;
    builder.check(run);
}

/// Runs a loom model of two or three threads in a few random interleavings. Loom itself explores all of them.
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn explore(_preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// Runs [`explore`].
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn explore_long(_preemptions: usize, _steps: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// Runs a model of many threads in `2 × schedules` interleavings, the same ones each time. Half are drawn at random,
/// and half by priorities that change three times (probabilistic concurrency testing: Burckhardt et al. 2010).
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn sample(schedules: usize, run: impl Fn() + Sync + Send + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    const SEED: u64 = 0x7011_6A7E;
    let mut config = shuttle::Config::new();
    // A `Decision` is large, and the stack frames of an unoptimised build are larger than usual.
    config.stack_size = 1 << 18;
    config.failure_persistence = shuttle::FailurePersistence::None;
    // Silences shuttle's warning that it supports only one ordering.
    config.silence_warnings = true;
    let run = std::sync::Arc::new(run);
    let (by_chance, by_priority) = (std::sync::Arc::clone(&run), run);
    shuttle::Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config.clone())
        .run(move || by_chance());
    shuttle::Runner::new(PctScheduler::new_from_seed(SEED, 3, schedules), config).run(move || by_priority());
}
