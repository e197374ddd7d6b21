//! The watcher loads rule files again when they change.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate_rules::{Descriptor, Rules, Watcher};

use crate::one_rule::{quota, text};
use crate::watching::{next, put, silent, until, watch};

/// Returns a new folder, and the rules of its file `limits.yaml`, which has one rule with a limit of 5.
fn one_file() -> (TempDir, PathBuf, Arc<Rules>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    fs::write(&path, text(5)).unwrap();
    let rules = Arc::new(Rules::read(&path).unwrap());
    (folder, path, rules)
}

#[test]
fn changed_file_is_loaded() {
    let (folder, path, rules) = one_file();
    let (_watcher, loads) = watch(&rules);

    // The file is overwritten in place.
    fs::write(&path, text(7)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 7);

    // Another file is renamed to the same name, as editors do.
    let other = folder.path().join("limits.yaml.new");
    fs::write(&other, text(9)).unwrap();
    fs::rename(&other, &path).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 9);

    // An invalid file changes nothing, and the watcher reports the error.
    fs::write(&path, "domain: [").unwrap();
    until(&loads, |load| load.as_ref().is_err_and(|error| error.contains("limits.yaml")));
    assert_eq!(quota(&rules), 9);
    assert!(rules.reloads().errors >= 1 && rules.last_error().is_some());

    fs::write(&path, text(11)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 11);
}

/// The callback receives the changes of each load. A load that would remove a domain in use is reported as a failure.
// G64
#[test]
fn callback_receives_load_report() {
    let (_folder, path, rules) = one_file();
    assert_eq!(quota(&rules), 5);
    let (_watcher, loads) = watch(&rules);
    let next = || next(&loads);
    put(&path, &text(6));
    let changed = "0 added, 1 changed, 0 removed\n  changed rule \"d.a\" (d|a): limit 5/d to 6/d";
    assert_eq!(next(), Ok(changed.to_owned()));
    put(&path, &text(6).replace("key: a", "key: b"));
    assert!(next().is_ok_and(|report| report.contains("removed rule \"d.a\" (d|a)")));
    put(&path, &text(6).replace("domain: d", "domain: e"));
    let error = next().unwrap_err();
    assert!(error.contains("limits.yaml:1:11") && error.contains("\"d\" is in use"), "{error}");
    put(&path, &text(7));
    assert!(next().is_ok());
    assert_eq!(quota(&rules), 7);
}

/// Kubernetes mounts files as links through a `..data` link, and replaces that link.
#[cfg(unix)]
#[test]
fn moved_link_is_loaded() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (version, limit) in [("..1", 5), ("..2", 6)] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.yaml"), text(limit)).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/limits.yaml", at("limits.yaml")).unwrap();
    let rules = Arc::new(Rules::read(at("limits.yaml")).unwrap());
    assert_eq!(quota(&rules), 5);
    let (_watcher, loads) = watch(&rules);
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);

    // Kubernetes then removes the old version and adds a third one.
    fs::remove_dir_all(at("..1")).unwrap();
    fs::create_dir(at("..3")).unwrap();
    fs::write(at("..3").join("limits.yaml"), text(7)).unwrap();
    symlink("..3", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 7);

    // A link to itself leads to no file, and another link replaces it.
    for (target, is_error) in [("limits.yaml", true), ("..data/limits.yaml", false)] {
        symlink(target, at("link_tmp")).unwrap();
        fs::rename(at("link_tmp"), at("limits.yaml")).unwrap();
        until(&loads, |load| load.is_err() == is_error);
    }
}

/// A load reads the file. When reads counted as changes, one change caused five loads a second without end.
// G64
#[test]
#[ignore = "takes several seconds in a debug build; .ci/run runs it"]
fn only_changed_contents_trigger_loads() {
    let (folder, path, rules) = one_file();
    let (_watcher, loads) = watch(&rules);
    silent(&loads, "starting the watcher");

    put(&path, &text(6));
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);
    silent(&loads, "a load");
    fs::read(&path).unwrap();
    silent(&loads, "reading");
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    drop(file);
    silent(&loads, "touching");
    put(&path, &text(6));
    silent(&loads, "writing the same");
    put(&folder.path().join("other.yaml"), &text(8));
    silent(&loads, "another file");
    assert_eq!(rules.reloads().successes, 2, "the first load and the load after the one change");

    // The watcher reports an invalid file once, even if the file is touched again.
    put(&path, "domain: [");
    until(&loads, Result::is_err);
    put(&path, "domain: [");
    silent(&loads, "writing the same invalid text");

    // An explicit reload always loads the file.
    put(&path, &text(7));
    until(&loads, |load| load.is_ok() && quota(&rules) == 7);
    let before = rules.reloads().successes;
    rules.reload().unwrap();
    rules.reload().unwrap();
    assert_eq!(rules.reloads().successes, before + 2);
    silent(&loads, "an explicit reload");
}

/// A change between the first read and the start of the watch stayed unnoticed until the next change.
#[test]
fn change_before_watch_is_loaded() {
    let (_folder, path, rules) = one_file();
    fs::write(&path, text(6)).unwrap();
    let (_watcher, loads) = watch(&rules);
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);
}

/// A file behind a link changes in another folder. Earlier, only the link's folder was watched.
#[cfg(unix)]
#[test]
fn file_behind_links_is_watched() {
    use std::os::unix::fs::symlink;
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let link = here.path().join("limits.yaml");
    let (first, second) = (there.path().join("first.yaml"), there.path().join("deep/second.yaml"));
    fs::create_dir(there.path().join("deep")).unwrap();
    fs::write(&first, text(5)).unwrap();
    fs::write(&second, text(6)).unwrap();
    symlink(&first, here.path().join("between")).unwrap();
    symlink("between", &link).unwrap();
    let rules = Arc::new(Rules::read(&link).unwrap());
    let (_watcher, loads) = watch(&rules);
    // The watcher's first check is over, so only an event can report the change.
    silent(&loads, "starting the watcher");
    fs::write(&first, text(7)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 7);
    put(&first, &text(8));
    until(&loads, |load| load.is_ok() && quota(&rules) == 8);

    // The middle link moves to another file. Later that file changes.
    symlink(&second, here.path().join("between.new")).unwrap();
    fs::rename(here.path().join("between.new"), here.path().join("between")).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);
    fs::write(&second, text(9)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 9);
    put(&first, &text(10));
    silent(&loads, "a file that the link no longer points to");

    // A folder on the path is a link, and the link moves.
    let folder = here.path().join("now");
    symlink(there.path(), &folder).unwrap();
    let rules = Arc::new(Rules::read(folder.join("first.yaml")).unwrap());
    let (_watcher, loads) = watch(&rules);
    fs::write(there.path().join("deep/first.yaml"), text(11)).unwrap();
    symlink(there.path().join("deep"), here.path().join("now.new")).unwrap();
    fs::rename(here.path().join("now.new"), &folder).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 11);
}

/// A hard link in another folder changes the same file. Only a watch on the file itself notices that.
#[cfg(target_os = "linux")]
#[test]
fn hard_linked_file_is_watched() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (path, other) = (here.path().join("limits.yaml"), there.path().join("other.yaml"));
    fs::write(&path, text(5)).unwrap();
    fs::hard_link(&path, &other).unwrap();
    let rules = Arc::new(Rules::read(&path).unwrap());
    let (_watcher, loads) = watch(&rules);
    // The watcher's first check is over, so only an event can report the change.
    silent(&loads, "starting the watcher");
    fs::write(&other, text(6)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);
}

#[test]
fn recreated_file_is_loaded() {
    let (_folder, path, rules) = one_file();
    let (_watcher, loads) = watch(&rules);
    for limit in [6, 6] {
        fs::remove_file(&path).unwrap();
        until(&loads, |load| load.as_ref().is_err_and(|error| error.contains("cannot be read")));
        // The second time the contents are the same as before, and the watcher loads the file again because it ends the
        // error.
        put(&path, &text(limit));
        until(&loads, |load| load.is_ok() && quota(&rules) == 6);
        assert!(rules.last_error().is_none());
    }
}

/// If a folder is removed, the system's watch on it ends.
#[test]
fn recreated_folder_is_watched() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("a/b");
    let path = folder.join("limits.yaml");
    fs::create_dir_all(&folder).unwrap();
    fs::write(&path, text(5)).unwrap();
    let rules = Arc::new(Rules::read(&path).unwrap());
    let (_watcher, loads) = watch(&rules);

    // The parent folder is removed too.
    fs::remove_dir_all(root.path().join("a")).unwrap();
    until(&loads, Result::is_err);
    fs::create_dir_all(&folder).unwrap();
    put(&path, &text(6));
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);

    // Another folder replaces this one at once, so the path is never missing for long. Then the file in the new folder
    // changes in place.
    let other = root.path().join("a/c");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("limits.yaml"), text(7)).unwrap();
    fs::rename(&folder, root.path().join("a/old")).unwrap();
    fs::rename(&other, &folder).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 7);
    fs::write(&path, text(8)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules) == 8);
}

/// Cause: a panic in the callback ended the watcher's thread. Symptom: later changes were not loaded.
#[test]
fn panicking_callback_is_called_again() {
    let (_folder, path, rules) = one_file();
    let (sender, loads) = channel();
    let _watcher = Rules::watch(&rules, move |loaded| {
        sender.send(loaded.as_ref().map(ToString::to_string).map_err(ToString::to_string)).unwrap();
        loaded.unwrap();
    })
    .unwrap();
    for limit in [6, 7] {
        put(&path, "domain: [");
        until(&loads, Result::is_err);
        put(&path, &text(limit));
        until(&loads, |load| load.is_ok() && quota(&rules) == u64::from(limit));
    }
}

/// Cause: files were read half a second after the first event, also while a program wrote them. Symptom: a file that was written
/// in place for two seconds was loaded in part, and requests of its other rules had no limit.
///
/// The writer ends when another file has been loaded, so the test does not depend on how long that takes. It claims
/// nothing about a round in which the writer itself had to pause.
// G104
#[test]
#[expect(clippy::disallowed_methods, reason = "the watcher reacts in real time")]
fn slowly_written_file_is_loaded_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (slow, other) = (folder.path().join("slow.yaml"), folder.path().join("other.yaml"));
    let put_other = |limit| put(&other, &text(limit).replace("domain: d", "domain: other"));
    put(&slow, &text(5));
    put_other(1);
    let rules = Arc::new(Rules::builder().allow_removals(true).read([folder.path()]).unwrap());
    let (_watcher, loads) = watch(&rules);
    for round in 2..100 {
        put_other(round);
        // Without its last line, the file is complete, and has no rule.
        let mut file = fs::File::create(&slow).unwrap();
        file.write_all(b"domain: d\n").unwrap();
        let (mut last, mut pause) = (Instant::now(), Duration::ZERO);
        let other_quota = || {
            let answer = rules.check_n("other", &[Descriptor::new(&[("a", "x")])], 0);
            answer.limits().next().map(|limit| limit.quota())
        };
        while other_quota() != Some(u64::from(round)) {
            let _ = loads.recv_timeout(Duration::from_millis(20));
            file.write_all(b"# the next part\n").unwrap();
            pause = pause.max(last.elapsed());
            last = Instant::now();
        }
        let in_force = quota(&rules);
        let rest = text(round + 5).replace("domain: d, descriptors:", "descriptors:");
        file.write_all(rest.trim_matches(['{', '}', ' ']).as_bytes()).unwrap();
        drop(file);
        let was_prompt = pause.max(last.elapsed()) < Duration::from_millis(150);
        assert!(!was_prompt || in_force == 5, "a part of the file is in force");
        until(&loads, |load| load.is_ok() && quota(&rules) == u64::from(round) + 5);
        if was_prompt {
            return;
        }
        put(&slow, &text(5));
        until(&loads, |load| load.is_ok() && quota(&rules) == 5);
    }
    panic!("the machine was never free for long enough");
}

/// If the watcher only waited for silence, a file that is written all the time would never be loaded.
#[test]
fn constantly_written_file_is_loaded() {
    let (_folder, path, rules) = one_file();
    let (_watcher, loads) = watch(&rules);
    // Writes until the watcher reports a load, for at most a minute.
    let loaded = (6..1_200).find_map(|limit| {
        put(&path, &text(limit));
        loads.recv_timeout(Duration::from_millis(50)).ok()
    });
    assert!(loaded.is_some_and(|load| load.is_ok()));
    assert!(quota(&rules) > 5);
}

#[test]
fn dropped_watcher_stops_callbacks() {
    let (_folder, path, rules) = one_file();
    let (watcher, loads) = watch(&rules);
    put(&path, &text(6));
    until(&loads, |load| load.is_ok() && quota(&rules) == 6);
    drop(watcher);
    // The thread has ended and has dropped the callback. The last change may have caused several loads.
    let _ = loads.try_iter().count();
    assert_eq!(loads.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected));

    // The rules may be dropped before the watcher.
    let (watcher, loads) = watch(&rules);
    drop(rules);
    put(&path, &text(7));
    let end = loads.recv_timeout(Duration::from_secs(60));
    assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    drop(watcher);
}

/// A thread that waits for itself to end would wait forever.
#[test]
fn callback_may_drop_its_watcher() {
    let (_folder, path, rules) = one_file();
    let kept: Arc<Mutex<Option<Watcher>>> = Arc::default();
    let (sender, loads) = channel();
    let watcher = Rules::watch(&rules, {
        let kept = Arc::clone(&kept);
        move |loaded| {
            drop(kept.lock().unwrap().take());
            sender.send(loaded.is_ok()).unwrap();
        }
    });
    *kept.lock().unwrap() = Some(watcher.unwrap());
    put(&path, &text(6));
    assert_eq!(loads.recv_timeout(Duration::from_secs(60)), Ok(true));
    // The watcher's thread ends.
    let end = loads.recv_timeout(Duration::from_secs(60));
    assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn rules_without_files_cannot_be_watched() {
    let rules = Arc::new(Rules::from_yaml(&text(5)).unwrap());
    assert!(Rules::watch(&rules, |_| ()).unwrap_err().to_string().contains("files"));
}
