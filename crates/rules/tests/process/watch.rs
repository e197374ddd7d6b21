//! A dropped watcher leaves no thread and no open file.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use tollgate_rules::Rules;
use tollgate_testing::child::runs_in_own_process;

/// Returns the numbers of threads and of open files of this process.
fn held() -> (usize, usize) {
    let count = |folder: &str| fs::read_dir(folder).unwrap().count();
    (count("/proc/self/task"), count("/proc/self/fd"))
}

/// The test also replaces the file, because each reload after a replacement creates new watches.
// G27
#[test]
fn dropped_watcher_leaves_no_thread_or_file() {
    if !runs_in_own_process("watch::dropped_watcher_leaves_no_thread_or_file") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    let text = |domain: u32| format!("{{ domain: d{domain}, descriptors: [] }}");
    fs::write(&path, text(0)).unwrap();
    let rules = Arc::new(Rules::read(&path).unwrap());
    let before = held();
    for round in 0..3 {
        let (tell, told) = channel();
        let watcher = Rules::watch(&rules, move |loaded| tell.send(loaded.is_ok()).unwrap()).unwrap();
        assert!(held() > before, "a watcher has a thread and open files");
        for change in 1..3 {
            let other = folder.path().join("new");
            fs::write(&other, text(round * 10 + change)).unwrap();
            fs::rename(&other, &path).unwrap();
            assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true));
        }
        drop(watcher);
        // The watcher's thread has ended. The thread for file events ends soon after it.
        for _ in 0..6_000 {
            if held() == before {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(10));
        }
        assert_eq!(held(), before);
    }
}
