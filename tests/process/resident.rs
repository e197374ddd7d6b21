//! The memory of a limiter follows its use: the system provides a page when it is first written.

use super::alone;
use tollgate::{Quota, RateLimiter};
use tollgate_testing::child::runs_in_own_process;

/// The bytes of this process.
struct Memory {
    /// All addresses that it may use.
    mapped: usize,
    /// Those that are in memory.
    resident: usize,
}

fn memory() -> Memory {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux shows the memory of a process");
    // SAFETY: the call only reads a setting.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
    let mut bytes = text.split(' ').map(|pages| page * pages.parse::<usize>().expect("a number of pages"));
    let mut next = || bytes.next().expect("two numbers");
    Memory { mapped: next(), resident: next() }
}

fn resident() -> usize {
    memory().resident
}

/// The default store of a limiter takes what it promises, and is resident as far as it is used, whatever blocks the
/// process freed before. This is the figure in the README and in the documentation of `RateLimiter::new`.
// G31
#[test]
fn new_limiter_takes_four_mebibytes_as_it_is_used() {
    let _alone = alone();
    if !runs_in_own_process("resident::new_limiter_takes_four_mebibytes_as_it_is_used") {
        return;
    }
    let limiter = || RateLimiter::new(Quota::per_day(1));
    drop(limiter());
    let before = memory();
    let limiters: Vec<_> = (0..100).map(|_| limiter()).collect();
    assert!(limiters.iter().all(|limiter| limiter.check("x").is_allowed()));
    let after = memory();
    let each = (after.mapped - before.mapped) / limiters.len();
    assert!(each.abs_diff(4 << 20) <= 64 << 10, "{each} bytes of addresses for each limiter");
    let each = (after.resident - before.resident) / limiters.len();
    assert!(each <= 128 << 10, "{each} bytes in memory for each limiter");
    let full = limiters.first().expect("there are limiters");
    for key in 0..500_000 {
        let _ = full.check(&key);
    }
    let grown = resident() - after.resident;
    assert!((3 << 20..=5 << 20).contains(&grown), "{grown} bytes for a full limiter");
}
