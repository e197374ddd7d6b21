//! The one shim for model checking: the only place that names core's, loom's or shuttle's atomics.
//!
//! Everything else in the crate takes its atomics from here, so the protocols that the loom models explore are
//! the protocols that ship. A crate-named flag is used (`--cfg tollgate_loom`) because plain `--cfg loom` would
//! reach every dependency.
//!
//! `--cfg tollgate_shuttle`, beside that flag, puts shuttle in loom's place: no longer every interleaving of two or three
//! threads, but a sample of those of many. To shuttle every ordering is sequentially consistent.

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tollgate needs atomics of 64 bits, which this target does not have");

#[cfg(all(tollgate_loom, not(test)))]
compile_error!("--cfg tollgate_loom is for the models: ci/loom.sh and ci/shuttle.sh");

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
/// What models are made of.
#[cfg(all(test, tollgate_loom))]
pub(crate) use modelled::{sync::Arc, thread};

/// The calling thread's number: threads count up from 0 in the order in which they first ask.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[inline(always)]
pub(crate) fn thread_number() -> usize {
    use std::cell::Cell;

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Without a destructor, so that it can be read while a thread ends. The largest number: not yet asked for.
    thread_local!(static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) });

    #[cold]
    fn first() -> usize {
        // Ordering: Relaxed. Only that each thread gets another one matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        NUMBER.set(number);
        number
    }
    match NUMBER.get() {
        usize::MAX => first(),
        number => number,
    }
}

/// Models say which thread they mean.
#[cfg(tollgate_loom)]
pub(crate) const fn thread_number() -> usize {
    0
}

/// Orders a read-modify-write of the calling thread before its later loads, as a sequentially consistent fence does:
/// of two threads that each write one word, call this and read the other's, at least one sees the other's write.
///
/// On x86-64 every read-modify-write is such a fence already, and only the compiler must be held back
/// (crossbeam-epoch's `pin` rests on the same).
#[inline]
pub(crate) fn fence_after_rmw() {
    // Ordering: SeqCst, here and below; pairs with this very fence in the other thread.
    #[cfg(all(target_arch = "x86_64", not(tollgate_loom), not(miri)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(tollgate_loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Orders all that the calling thread did before with all that it does after; pairs with [`fence_after_rmw`] and itself.
#[inline]
pub(crate) fn full_fence() {
    // Ordering: SeqCst; see `fence_after_rmw`.
    fence(Ordering::SeqCst);
}

/// How many threads can run at once, if that is known, by which what they share is divided. In models it is one, whatever machine
/// explores them; and to ask the system would take longer than most of their interleavings do.
#[cfg(feature = "std")]
pub(crate) fn processors() -> Option<usize> {
    if cfg!(tollgate_loom) { Some(1) } else { std::thread::available_parallelism().ok().map(usize::from) }
}

/// A shared value that is replaced as a whole: arc-swap outside the models.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[derive(Debug)]
pub(crate) struct Swap<T>(arc_swap::ArcSwap<T>);

/// A value of a [`Swap`] that is held.
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub(crate) type Loaded<T> = arc_swap::Guard<std::sync::Arc<T>>;

/// A value of a [`Swap`] that is held.
#[cfg(tollgate_loom)]
pub(crate) type Loaded<T> = Box<std::sync::Arc<T>>;

#[cfg(all(feature = "std", not(tollgate_loom)))]
impl<T> Swap<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(arc_swap::ArcSwap::from_pointee(value))
    }

    /// The present value, which stays as long as it is held.
    #[inline]
    pub(crate) fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    pub(crate) fn store(&self, value: std::sync::Arc<T>) {
        self.0.store(value);
    }
}

/// In the models nothing that is replaced is freed before the whole is.
#[cfg(tollgate_loom)]
#[derive(Debug)]
pub(crate) struct Swap<T> {
    present: AtomicUsize,
    /// Of std: no thread is switched while it is held, so it orders nothing that the index does not.
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

/// Deferred reclamation: crossbeam-epoch outside the models.
///
/// A guard promises that nothing retired after it was taken is freed before it is dropped.
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub(crate) mod epoch {
    use std::cell::Cell;

    /// A thread collects once in this number of calls. A collection frees eight times as many things, or more.
    const COLLECTED: u32 = 64;

    thread_local! {
        static RETIRED: Cell<u32> = const { Cell::new(0) };
    }

    /// A pinned thread.
    pub(crate) struct Guard(crossbeam_epoch::Guard);

    /// Pins the calling thread.
    #[inline]
    pub(crate) fn pin() -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    impl Guard {
        /// Calls `free` with `ptr` and `part` once no thread pinned now can hold that part of it.
        ///
        /// # Safety
        /// `free` may be called so, once, on any thread and at any later time, if no thread that pins from now on can reach it.
        pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, free: unsafe fn(*mut T, usize)) {
            // SAFETY: the caller's duty is this function's contract, word for word.
            unsafe {
                self.0.defer_unchecked(move || free(ptr, part));
            }
        }

        /// Frees what can be freed, in one of 64 calls of a thread. To be called where much is retired: by itself, crossbeam-epoch collects
        /// once in 128 pins, whatever they retire. Not to be called while something is freed, because a collection may allocate.
        pub(crate) fn collect_sometimes(&self) {
            // A thread that ends does not collect.
            let retired = RETIRED.try_with(|retired| retired.replace(retired.get().wrapping_add(1)));
            if retired.is_ok_and(|retired| retired % COLLECTED == COLLECTED - 1) {
                self.0.flush();
            }
        }

        /// Pins anew, so that what was retired meanwhile can be freed. Nothing that was found before may be used any more.
        pub(crate) fn repin(&mut self) {
            self.0.repin();
        }
    }
}

/// In the models what is retired is freed as soon as no thread is pinned (crossbeam-epoch's own state space would drown ours). It is
/// remembered until then, so that a second retire of one thing fails the model.
#[cfg(tollgate_loom)]
pub(crate) mod epoch {
    use std::cell::RefCell;

    use super::{AtomicUsize, Ordering, modelled};

    /// Orders what was done before something was freed before what threads do that pin afterwards, as crossbeam-epoch does.
    struct Order {
        /// Of std: whether anything was retired. Until then nothing is freed, and nothing is ordered.
        needed: std::sync::atomic::AtomicBool,
        unpins: AtomicUsize,
    }

    modelled::lazy_static! {
        static ref ORDER: Order = Order { needed: false.into(), unpins: AtomicUsize::new(0) };
    }

    fn order() {
        if ORDER.needed.load(Ordering::Relaxed) {
            // Ordering: AcqRel. An unpin releases what its thread has done, and all later pins acquire it.
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
        /// How many were retired since the last `take_retired`.
        count: usize,
    }

    thread_local! {
        // A loom execution runs all its threads on one OS thread, so this is shared by the model's threads.
        static EPOCH: RefCell<Epoch> = RefCell::default();
    }

    /// A pinned thread.
    pub(crate) struct Guard(());

    /// Pins the calling thread.
    pub(crate) fn pin() -> Guard {
        EPOCH.with_borrow_mut(|epoch| epoch.pinned += 1);
        order();
        Guard(())
    }

    impl Guard {
        /// See the other form.
        ///
        /// # Safety
        /// As for the other form.
        pub(crate) unsafe fn retire<T>(&self, ptr: *mut T, part: usize, free: unsafe fn(*mut T, usize)) {
            // SAFETY: pointers are alike, whatever they point to, and `free` is only called with this one.
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

        /// Nothing: the models free at each last unpin.
        #[expect(clippy::unused_self, reason = "as the other form")]
        pub(crate) fn collect_sometimes(&self) {}

        /// As the other form.
        pub(crate) fn repin(&mut self) {
            *self = pin();
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            // A thread that panics ends the model, and with it all that was retired.
            if std::thread::panicking() {
                return;
            }
            order();
            let unpinned = |epoch: &mut Epoch| {
                epoch.pinned -= 1;
                if epoch.pinned == 0 { std::mem::take(&mut epoch.retired) } else { Vec::new() }
            };
            for Retired { ptr, part, free } in EPOCH.with_borrow_mut(unpinned) {
                // SAFETY: the contract of `retire`: no thread was pinned when these were taken.
                unsafe { free(ptr, part) };
            }
        }
    }

    /// How many things were retired since the last call. Begins a new model.
    #[cfg(test)]
    pub(crate) fn take_retired() -> usize {
        EPOCH.with_borrow_mut(|epoch| std::mem::take(&mut epoch.count))
    }
}

/// Runs a model: every interleaving with at most so many preemptions.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
pub(crate) fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore_long(preemptions, 1_000, run);
}

/// [`explore`], of up to so many steps.
#[cfg(all(test, tollgate_loom, not(tollgate_shuttle)))]
pub(crate) fn explore_long(preemptions: usize, steps: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = steps;
    builder.check(run);
}

/// The models of two or three threads, in a few of their interleavings: they are loom's.
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn explore(_preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// [`explore`].
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn explore_long(_preemptions: usize, _steps: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// Runs a model of many threads in `schedules` interleavings drawn at random and as many drawn by priorities that change
/// three times (probabilistic concurrency testing: Burckhardt et al. 2010), the same ones each time.
#[cfg(all(test, tollgate_shuttle))]
pub(crate) fn sample(schedules: usize, run: impl Fn() + Sync + Send + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};

    const SEED: u64 = 0x7011_6A7E;
    let mut config = shuttle::Config::new();
    // Decisions are large, and unoptimised frames larger.
    config.stack_size = 1 << 18;
    config.failure_persistence = shuttle::FailurePersistence::None;
    // That it knows one ordering only.
    config.silence_warnings = true;
    let run = std::sync::Arc::new(run);
    let (by_chance, by_priority) = (std::sync::Arc::clone(&run), run);
    shuttle::Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config.clone())
        .run(move || by_chance());
    shuttle::Runner::new(PctScheduler::new_from_seed(SEED, 3, schedules), config).run(move || by_priority());
}
