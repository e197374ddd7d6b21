//! Tests that need a process of their own.

use std::process::Command;

/// The environment variable of a child process that runs one test only.
const CHILD: &str = "TOLLGATE_TEST_CHILD";

/// Returns whether this process runs one test only.
///
/// If it does not, this function runs the named test in a child process, and asserts that the test passes there. Only
/// such a process has a stable number of threads, since the test harness starts and ends its own.
pub fn runs_in_own_process(name: &str) -> bool {
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
