//! Tests the effects of a limiter on its process:
//!
//! - A denial, a peek, and any other call that promises it write nothing.
//! - Lock-free calls are lock-free: a thread that is stopped anywhere in a call does not block other threads.
//! - No limiter starts a thread, and a dropped watcher leaves no thread or open file.
//! - A constructor that panics reports its caller.
//! - A process has at most a thousand calendars, because their tables stay.
//! - A process that was copied by `fork` frees removed keys, whatever the threads did that the copy does not have.
//! - Memory is resident only as far as rules and limiters are used, and removed keys are freed.
//!
//! These are properties of memory, signals, threads and hooks, so the tests observe them through the operating system.

#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod arena;
#[macro_use]
extern crate tollgate_testing;

#[cfg(feature = "calendar")]
mod calendars;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod copied;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod denials;
mod keyed_garbage;
mod panic_locations;
mod reclamation;
#[cfg(all(feature = "rules", target_os = "linux", not(miri), not(tollgate_tsan)))]
mod resident;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod stopped;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod threads;
#[cfg(all(feature = "watch", target_os = "linux"))]
mod watch;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Runs one test at a time, since all tests share the process's arena, signals, threads and panic hook.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment variable of a child process that runs one test only.
const CHILD: &str = "TOLLGATE_TEST_CHILD";

/// Returns whether this process runs one test only.
///
/// If it does not, this function runs the named test in a child process, and asserts that the test passes there. Only
/// such a process has a stable number of threads, since the test harness starts and ends its own.
fn runs_in_own_process(name: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("this program has a path");
    let child =
        Command::new(this).args([name, "--exact", "--test-threads=1"]).env(CHILD, "1").output().unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let complaints = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}{complaints}");
    false
}
