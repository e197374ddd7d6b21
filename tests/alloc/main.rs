//! Counts allocations. Each test counts the allocations of its own thread.

#[macro_use]
extern crate tollgate_testing;
#[path = "../common/counting.rs"]
mod counting;

mod limiters;

/// For tests that remove many keys, and for tests whose keyed checks must not free the keys of other tests.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

// G28
#[test]
fn counting_allocator_counts() {
    assert_eq!(counting::allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
    assert_eq!(counting::allocations(|| ()), 0);
}
