//! Reports skipped tests. A test skips if this machine lacks what it needs, and a plain `cargo test` shows the
//! report.

use std::io::Write as _;
use std::panic::Location;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

/// Prints which test skips, and why.
///
/// The test harness hides what a passing test prints, unless it runs with `--nocapture`. It does not hide what a test
/// writes to standard error itself.
#[track_caller]
pub fn skip(why: &str) {
    // With `--test-threads=1` all tests run in the thread `main`. The location then identifies the test.
    let (thread, place) = (thread::current(), Location::caller());
    let line = format!("\nSKIPPED {} ({place}): {why}\n", thread.name().unwrap_or("a test"));
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Runs a test of this program with an environment variable, and asserts that the test passes and reports that it
/// skips.
pub fn assert_skip_is_reported(test: &str, variable: &str, value: &str, why: &str) {
    let this = std::env::current_exe().expect("this program has a path");
    let output = Command::new(this)
        .args([test, "--exact", "--include-ignored", "--test-threads=2"])
        .env_remove("RUST_TEST_NOCAPTURE")
        .env(variable, value)
        .output()
        .expect("this program runs");
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}{stderr}");
    let line = stderr.lines().find(|line| line.starts_with(&format!("SKIPPED {test} (")));
    assert!(line.is_some_and(|line| line.contains("tests/") && line.contains(why)), "{stdout}{stderr}");
}

/// Returns the program of the browser Chromium: the one that the variable `TOLLGATE_CHROMIUM` names, or the `chromium` on the
/// search path. If it is missing, reports the test as skipped.
#[track_caller]
#[must_use]
pub fn chromium() -> Option<PathBuf> {
    let program = std::env::var_os("TOLLGATE_CHROMIUM").map_or_else(|| "chromium".into(), PathBuf::from);
    if Command::new(&program).arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(program);
    }
    skip(&format!("no {}; install chromium, or set TOLLGATE_CHROMIUM", program.display()));
    None
}
