//! Tests the effects of rules on their process: allocations, memory, threads and open files.

#[path = "../../../../tests/common/counting.rs"]
mod counting;

mod alloc;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod resident;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod threads;
#[cfg(all(feature = "watch", target_os = "linux"))]
mod watch;

/// For tests that remove many keys, and for tests whose keyed checks must not free the keys of other tests.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
