//! Rules follow their files.
#![cfg(feature = "watch")]

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tollgate::rules::{Descriptor, Rules, Watcher};

fn text(limit: u32) -> String {
    format!(
        "{{ domain: d, descriptors: [ {{ key: a, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }} ] }}"
    )
}

fn quota(rules: &Rules) -> u64 {
    let answer = rules.check_n("d", &[Descriptor::new(&[("a", "x")])], 0);
    answer.limits().next().map_or(0, |limit| limit.quota())
}

/// How loads go, as the watcher tells.
fn watch(rules: &Arc<Rules>) -> (Watcher, Receiver<Option<String>>) {
    let (tell, told) = channel();
    let watcher = Rules::watch(rules, move |loaded| {
        let _ = tell.send(loaded.err().map(|error| error.to_string()));
    });
    (watcher.unwrap(), told)
}

/// The next load of which `wanted` is true: writing a file can be more than one event.
fn until(told: &Receiver<Option<String>>, wanted: impl Fn(&Option<String>) -> bool) {
    // Far more than it takes: a test that waits so long has failed.
    while !wanted(&told.recv_timeout(Duration::from_secs(60)).expect("the change is noticed")) {}
}

#[test]
fn a_changed_file_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    fs::write(&path, text(5)).unwrap();
    let rules = Arc::new(Rules::read(&path).unwrap());
    let (_watcher, told) = watch(&rules);

    // In place.
    fs::write(&path, text(7)).unwrap();
    until(&told, |error| error.is_none() && quota(&rules) == 7);

    // By another file of the same name, as editors do.
    let other = folder.path().join("limits.yaml.new");
    fs::write(&other, text(9)).unwrap();
    fs::rename(&other, &path).unwrap();
    until(&told, |error| error.is_none() && quota(&rules) == 9);

    // One that is wrong changes nothing, and is told.
    fs::write(&path, "domain: [").unwrap();
    until(&told, |error| error.as_ref().is_some_and(|error| error.contains("limits.yaml")));
    assert_eq!(quota(&rules), 9);
    assert!(rules.reloads().errors >= 1 && rules.last_error().is_some());

    fs::write(&path, text(11)).unwrap();
    until(&told, |error| error.is_none() && quota(&rules) == 11);
}

/// Kubernetes mounts files as links through `..data`, which it replaces.
#[cfg(unix)]
#[test]
fn a_moved_link_is_loaded() {
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
    let (_watcher, told) = watch(&rules);
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    until(&told, |error| error.is_none() && quota(&rules) == 6);
}

#[test]
fn rules_without_files_cannot_be_watched() {
    let rules = Arc::new(Rules::from_yaml(&text(5)).unwrap());
    assert!(Rules::watch(&rules, |_| ()).unwrap_err().to_string().contains("files"));
}
