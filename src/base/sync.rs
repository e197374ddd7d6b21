//! The one shim for model checking: only this module names the atomics of core, loom or shuttle.
//!
//! Every other module takes its atomics from here, so the loom models explore the code that ships. The flag contains
//! the crate's name (`--cfg tollgate_loom`), because plain `--cfg loom` would reach every dependency.
//!
//! `--cfg tollgate_shuttle`, together with that flag, replaces loom by shuttle. Loom explores every interleaving of two
//! or three threads; shuttle explores a sample of the interleavings of many threads. Shuttle treats every ordering as
//! sequentially consistent.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    rustdoc::private_intra_doc_links,
    reason = "users do not see this module; only packages of this repository use it"
)]

#[cfg(not(target_has_atomic = "64"))]
compile_error!("tollgate needs 64-bit atomics, which this target does not have");

#[cfg(not(tollgate_loom))]
pub use core::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(all(feature = "std", not(tollgate_loom)))]
pub use std::sync::{Condvar, Mutex, RwLock};

#[cfg(all(tollgate_loom, not(tollgate_shuttle)))]
pub use loom as modelled;
#[cfg(tollgate_shuttle)]
pub use shuttle as modelled;

#[cfg(tollgate_loom)]
pub use modelled::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(tollgate_loom)]
pub use modelled::sync::{Condvar, Mutex, RwLock};
/// The types that models use.
#[cfg(tollgate_loom)]
pub use modelled::{sync::Arc, thread};

/// Returns the calling thread's number. Threads get numbers from 0, in the order of their first call.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[inline(always)]
pub fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);

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

// No destructor, so that a thread can read the number while it ends. The largest number means "not assigned".
#[cfg(all(feature = "std", not(tollgate_loom)))]
std::thread_local!(static NUMBER: std::cell::Cell<usize> = const { std::cell::Cell::new(usize::MAX) });

/// Returns the calling thread's number if it has one, or else the largest number.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[inline(always)]
pub(crate) fn known_thread_number() -> usize {
    NUMBER.get()
}

/// In models, each thread passes its own number to the function that needs it.
#[cfg(tollgate_loom)]
pub const fn thread_number() -> usize {
    0
}

/// Orders a read-modify-write of the calling thread before its later loads, as a sequentially consistent fence does. If
/// two threads each write one word, call this function and read the other thread's word, then at least one of them sees
/// the other's write.
///
/// On x86-64 every read-modify-write is already such a fence, so only the compiler must not reorder the accesses
/// (crossbeam-epoch relies on the same fact).
#[inline]
pub fn fence_after_rmw() {
    // Ordering: SeqCst, here and below; pairs with the same fence in the other thread.
    #[cfg(all(target_arch = "x86_64", not(tollgate_loom), not(miri)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(tollgate_loom), not(miri))))]
    fence(Ordering::SeqCst);
}

/// Orders all earlier accesses of the calling thread before all of its later ones. Pairs with [`fence_after_rmw`] and
/// with itself.
#[inline]
pub fn full_fence() {
    // Ordering: SeqCst; see `fence_after_rmw`.
    fence(Ordering::SeqCst);
}

/// Keeps the compiler from moving accesses of the calling thread across this place. The processor may still do so, unless
/// another thread orders it; see `base/reclaim/barrier.rs`.
#[cfg(all(feature = "std", not(tollgate_loom)))]
#[inline(always)]
pub fn compiler_fence() {
    // Ordering: SeqCst; pairs with the barrier that the system carries out.
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A cell whose accesses loom checks.
#[cfg(all(tollgate_loom, not(tollgate_shuttle)))]
pub use loom::cell::UnsafeCell;

/// A cell with loom's interface.
#[cfg(all(feature = "std", any(not(tollgate_loom), tollgate_shuttle)))]
#[derive(Debug)]
pub struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

#[cfg(all(feature = "std", any(not(tollgate_loom), tollgate_shuttle)))]
impl<T> UnsafeCell<T> {
    /// Creates a cell.
    pub const fn new(value: T) -> Self {
        Self(core::cell::UnsafeCell::new(value))
    }

    /// Passes a pointer to the value. The caller must ensure that no other thread uses the value meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, use_it: impl FnOnce(*mut T) -> R) -> R {
        use_it(self.0.get())
    }
}

/// Returns how many threads can run at the same time, if the system reports it. Callers divide shared state by this
/// number. In models the number is always one, because asking the system would take longer than most interleavings.
#[cfg(feature = "std")]
pub fn processors() -> Option<usize> {
    if cfg!(tollgate_loom) { Some(1) } else { std::thread::available_parallelism().ok().map(usize::from) }
}

/// Starts a thread of a model, which uses a shared value.
#[cfg(tollgate_loom)]
pub fn spawn<S: Send + Sync + 'static, R: Send + 'static>(
    shared: &Arc<S>,
    run: impl FnOnce(&S) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let shared = shared.clone();
    thread::spawn(move || run(&shared))
}

/// Runs `first` and `second` in two threads.
#[cfg(tollgate_loom)]
pub fn both<S: Send + Sync + 'static, A: Send + 'static, B: Send + 'static>(
    shared: &Arc<S>,
    first: impl FnOnce(&S) -> A + Send + 'static,
    second: impl FnOnce(&S) -> B + Send + 'static,
) -> (A, B) {
    let (first, second) = (spawn(shared, first), spawn(shared, second));
    (first.join().unwrap(), second.join().unwrap())
}

/// Runs each of these in a thread of its own.
#[cfg(tollgate_loom)]
pub fn beside<S: Send + Sync + 'static, R: Send + 'static, const N: usize>(
    shared: &Arc<S>,
    runs: [impl FnOnce(&S) -> R + Send + 'static; N],
) -> [R; N] {
    runs.map(|run| spawn(shared, run)).map(|thread| thread.join().unwrap())
}

/// Runs eight threads with the numbers 0 to 7.
#[cfg(tollgate_shuttle)]
pub fn eight<S: Send + Sync + 'static, R: Send + 'static>(
    shared: &Arc<S>,
    run: impl FnOnce(&S, usize) -> R + Copy + Send + 'static,
) -> [R; 8] {
    beside(shared, std::array::from_fn(|number| move |shared: &S| run(shared, number)))
}

/// Returns the number of admitted requests.
#[cfg(tollgate_loom)]
pub fn admitted(answers: &[bool]) -> usize {
    answers.iter().filter(|&&answer| answer).count()
}

/// Runs a model: explores every interleaving with at most `preemptions` preemptions.
#[cfg(all(tollgate_loom, not(tollgate_shuttle)))]
pub fn explore(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore_long(preemptions, 1_000, run);
}

/// Runs [`explore`] with at most `steps` steps.
#[cfg(all(tollgate_loom, not(tollgate_shuttle)))]
pub fn explore_long(preemptions: usize, steps: usize, run: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = steps;
    builder.check(run);
}

/// Runs [`explore`] for a model that takes a minute or more: with one preemption less, unless `TOLLGATE_ALL_CASES` is
/// set, as it is for a release.
#[cfg(tollgate_loom)]
pub fn explore_heavy(preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    explore(preemptions - usize::from(std::env::var_os("TOLLGATE_ALL_CASES").is_none()), run);
}

/// Runs a loom model of two or three threads in a few random interleavings. Loom itself explores all of them.
#[cfg(tollgate_shuttle)]
pub fn explore(_preemptions: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// Runs [`explore`].
#[cfg(tollgate_shuttle)]
pub fn explore_long(_preemptions: usize, _steps: usize, run: impl Fn() + Sync + Send + 'static) {
    sample(100, run);
}

/// Runs a model of many threads in `2 × schedules` interleavings, the same ones each time. Half are drawn at random,
/// and half by priorities that change three times (probabilistic concurrency testing: Burckhardt et al. 2010).
#[cfg(tollgate_shuttle)]
pub fn sample(schedules: usize, run: impl Fn() + Sync + Send + 'static) {
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
