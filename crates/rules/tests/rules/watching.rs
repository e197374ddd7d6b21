//! What the tests of watchers share: a watcher that reports each load, and changes of files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tollgate_rules::{Rules, Watcher};

/// The result of a load: the text of its report, or of its error.
pub(crate) type Load = Result<String, String>;

/// Starts a watcher that reports each load.
pub(crate) fn watch(rules: &Arc<Rules>) -> (Watcher, Receiver<Load>) {
    let (sender, loads) = channel();
    let watcher = Rules::watch(rules, move |loaded| {
        let _ = sender.send(loaded.map(|report| report.to_string()).map_err(|error| error.to_string()));
    });
    (watcher.unwrap(), loads)
}

/// Waits for the next load. It takes far less than a minute, so a test that waits so long has failed.
pub(crate) fn next(loads: &Receiver<Load>) -> Load {
    loads.recv_timeout(Duration::from_secs(60)).expect("the watcher did not report the change within 60 s")
}

/// Waits for a load for which `wanted` is true. Writing a file can cause more than one load.
pub(crate) fn until(loads: &Receiver<Load>, wanted: impl Fn(&Load) -> bool) {
    while !wanted(&next(loads)) {}
}

/// Asserts that the watcher reports nothing for a while that is longer than a burst of events.
pub(crate) fn silent(loads: &Receiver<Load>, why: &str) {
    assert!(loads.recv_timeout(Duration::from_millis(800)).is_err(), "{why} must not cause a load");
}

/// Replaces a file in one step, so that the watcher never sees a partly written file.
pub(crate) fn put(path: &Path, text: &str) {
    let other = path.with_extension("new");
    fs::write(&other, text).unwrap();
    fs::rename(&other, path).unwrap();
}
