//! What a limiter does to the process that it is in, and what it does not:
//!
//! - a denial and a look write nothing, nor does any other call that says so;
//! - a thread that is stopped anywhere in a call keeps no other from its own: what is called lock-free is;
//! - no thread is started, and a watcher that is dropped leaves none behind;
//! - a constructor that panics reports its caller.
//!
//! These are properties of memory, signals, threads and hooks rather than of answers, so they are seen through the operating system.

#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod arena;
#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod denials;
mod panic_locations;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod stopped;
#[cfg(all(target_os = "linux", not(miri), not(tollgate_tsan)))]
mod threads;
#[cfg(all(feature = "watch", target_os = "linux"))]
mod watch;

use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Arena, signals, threads and the panic hook are the whole process's: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Set in a process that runs one test only.
const CHILD: &str = "TOLLGATE_TEST_CHILD";

/// Whether this process runs one test only. If not, it runs the test of this name in such a process, and asserts that it passes there:
/// the test harness starts and ends threads as it likes.
fn is_alone_in_its_process(name: &str) -> bool {
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
