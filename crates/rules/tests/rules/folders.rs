//! Folders of rule files: what is read, what a removed file does, and how changes are noticed.

use std::fs;
use std::sync::Arc;
#[cfg(unix)]
use std::{os::unix::fs::symlink, path::PathBuf};

use tollgate_rules::{Descriptor, Rules, RulesError};

use crate::watching::{put, silent, until, watch};

fn text(domain: &str, limit: u32) -> String {
    format!(
        "{{ \"domain\": \"{domain}\", \"descriptors\": [ {{ \"key\": \"a\", \"rate_limit\": \
         {{ \"unit\": \"day\", \"requests_per_unit\": {limit} }} }} ] }}"
    )
}

/// Returns the limit of a domain, or 0 for a domain without rules.
fn quota(rules: &Rules, domain: &str) -> u64 {
    let answer = rules.check_n(domain, &[Descriptor::new(&[("a", "x")])], 0);
    answer.limits().next().map_or(0, |limit| limit.quota())
}

fn domains(rules: &Rules) -> Vec<String> {
    let mut all = Vec::new();
    rules.for_each(|domain, _, _| all.push(domain.to_owned()));
    all
}

fn error(result: Result<Rules, RulesError>) -> String {
    result.unwrap_err().to_string()
}

// G104
#[test]
fn folder_has_files_of_every_format() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (name, domain) in [("b.yaml", "b"), ("a.yml", "a"), ("C.JSON", "c"), (".hidden.yaml", "hidden")] {
        fs::write(at(name), text(domain, 1)).unwrap();
    }
    fs::write(
        at("d.toml"),
        "domain = 'd'\n[[descriptors]]\nkey = 'a'\nrate_limit = { unit = 'day', requests_per_unit = 1 }\n",
    )
    .unwrap();
    fs::write(at("notes.txt"), "not rules").unwrap();
    for name in ["old.yaml~", "a.yaml.swp", "yaml", "..data.yaml"] {
        fs::write(at(name), "not rules").unwrap();
    }
    fs::create_dir(at("below")).unwrap();
    fs::write(at("below/e.yaml"), text("e", 1)).unwrap();
    fs::create_dir(at("folder.yaml")).unwrap();
    let rules = Rules::read(folder.path()).unwrap();
    assert_eq!(domains(&rules), ["c", "a", "b", "d"]);
    // The same file by its own path, and files of several folders.
    let rules = Rules::builder().read([at("C.JSON"), folder.path().to_owned(), at("below")]).unwrap();
    assert_eq!(domains(&rules), ["c", "a", "b", "d", "e"]);
}

// G104
#[test]
fn folder_without_files_is_refused_at_start() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("limits.conf"), "").unwrap();
    let message = error(Rules::read(folder.path()));
    assert!(message.contains("there are no files with rules; check the path"), "{message}");
    let missing = folder.path().join("missing");
    let message = error(Rules::read(&missing));
    let part = "missing: cannot be read: no such file or directory; check the path";
    assert!(message.contains(part), "{message}");
    let rules = Rules::builder().start_without_rules(true).read([folder.path()]).unwrap();
    assert_eq!((rules.reloads().successes, domains(&rules).len()), (1, 0));
    let rules = Rules::builder().start_without_rules(true).read([&missing]).unwrap();
    assert_eq!(rules.reloads().successes, 0);
    assert!(rules.last_error().is_some());
}

/// Without the setting, a removed file keeps the domain if it is in use.
// G104
#[test]
fn removed_file_removes_its_domain_if_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = || {
        fs::write(at("a.yaml"), text("a", 1)).unwrap();
        fs::write(at("b.yaml"), text("b", 2)).unwrap();
    };
    write();
    let strict = Rules::read(folder.path()).unwrap();
    let open = Rules::builder().allow_file_removals(true).read([folder.path()]).unwrap();
    for rules in [&strict, &open] {
        assert_eq!((quota(rules, "a"), quota(rules, "b")), (1, 2));
    }
    fs::remove_file(at("b.yaml")).unwrap();
    assert!(strict.reload().unwrap_err().to_string().contains("\"b\" is in use"));
    assert_eq!((quota(&strict, "b"), strict.reloads().removed_domains), (2, 0));
    let report = open.reload().unwrap().to_string();
    assert!(report.contains("removed domain \"b\""), "{report}");
    assert_eq!((quota(&open, "b"), open.reloads().removed_domains), (0, 1));
    // The last file may go too, because rules were in force.
    fs::remove_file(at("a.yaml")).unwrap();
    assert!(strict.reload().is_err());
    open.reload().unwrap();
    assert_eq!((domains(&open).len(), open.reloads().removed_domains), (0, 2));
    write();
    open.reload().unwrap();
    assert_eq!(quota(&open, "a"), 1);
    // A file that is still there must keep its domain and its rules.
    for mistake in [text("renamed", 1), "domain: a".to_owned()] {
        fs::write(at("a.yaml"), mistake).unwrap();
        assert!(open.reload().unwrap_err().to_string().contains("\"a\" is in use"));
    }
    assert_eq!((quota(&open, "a"), open.reloads().removed_domains), (1, 2));
    // A domain that the program requires stays.
    fs::write(at("a.yaml"), text("a", 1)).unwrap();
    open.require_domain("a").unwrap();
    fs::remove_file(at("a.yaml")).unwrap();
    assert!(open.reload().is_err());
    assert_eq!(quota(&open, "a"), 1);
}

// G104
#[test]
fn watcher_follows_files_of_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("a.yaml"), text("a", 1)).unwrap();
    let rules = Arc::new(Rules::builder().allow_file_removals(true).read([folder.path()]).unwrap());
    let (_watcher, loads) = watch(&rules);
    put(&at("a.yaml"), &text("a", 2));
    until(&loads, |load| load.is_ok() && quota(&rules, "a") == 2);
    put(&at("b.json"), &text("b", 3));
    until(&loads, |load| load.is_ok() && quota(&rules, "b") == 3);
    // The new file is watched too, also if it is written in place.
    fs::write(at("b.json"), text("b", 4)).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules, "b") == 4);
    fs::write(at(".b.json.swp"), "x").unwrap();
    fs::write(at("notes.txt"), "x").unwrap();
    silent(&loads, "a file without rules");
    put(&at("b.json"), "{");
    until(&loads, |load| load.as_ref().is_err_and(|error| error.contains("b.json")));
    assert_eq!(quota(&rules, "b"), 4);
    silent(&loads, "a bad file that was reported");
    fs::remove_file(at("b.json")).unwrap();
    until(&loads, |load| load.as_ref().is_ok_and(|report| report.contains("removed domain \"b\"")));
    assert_eq!((quota(&rules, "a"), quota(&rules, "b")), (2, 0));
}

/// A folder that appears after the start is read, with `start_without_rules`.
// G104
#[test]
fn late_folder_is_loaded() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("config/limits");
    let rules = Arc::new(Rules::builder().start_without_rules(true).read([&folder]).unwrap());
    let (_watcher, loads) = watch(&rules);
    fs::create_dir_all(&folder).unwrap();
    put(&folder.join("a.yaml"), &text("a", 5));
    until(&loads, |load| load.is_ok() && quota(&rules, "a") == 5);
}

/// Kubernetes writes a new folder, and replaces the link `..data` in one step. The new rules are in force within a second.
// G104
#[cfg(unix)]
#[test]
fn swapped_volume_is_in_force_by_the_first_load() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    let publish = |version: &str, files: &[(&str, String)]| {
        fs::create_dir(at(version)).unwrap();
        for (name, text) in files {
            fs::write(at(version).join(name), text).unwrap();
            if fs::symlink_metadata(at(name)).is_err() {
                symlink(format!("..data/{name}"), at(name)).unwrap();
            }
        }
        symlink(version, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
    };
    publish("..1", &[("a.yaml", text("a", 1)), ("b.yaml", text("b", 1))]);
    let rules = Arc::new(Rules::builder().allow_file_removals(true).read([folder.path()]).unwrap());
    assert_eq!(domains(&rules), ["a", "b"], "`..data` itself is not read");
    let (_watcher, loads) = watch(&rules);
    publish("..2", &[("a.yaml", text("a", 2)), ("b.yaml", text("b", 2))]);
    until(&loads, |load| {
        // A load that finds half of a change fails, and is repeated after five seconds.
        assert!(load.is_ok(), "{load:?}");
        quota(&rules, "a") == 2
    });
    fs::remove_dir_all(at("..1")).unwrap();
    silent(&loads, "the removal of the old data");
    // A key of the ConfigMap disappears, and another one appears.
    publish("..3", &[("a.yaml", text("a", 3)), ("c.yaml", text("c", 3))]);
    fs::remove_file(at("b.yaml")).unwrap();
    until(&loads, |load| load.is_ok() && quota(&rules, "c") == 3 && quota(&rules, "b") == 0);
    assert_eq!(domains(&rules), ["a", "c"]);
}

// G104
#[cfg(unix)]
#[test]
fn file_behind_several_links_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("real")).unwrap();
    fs::write(at("real/limits.yaml"), text("a", 1)).unwrap();
    symlink("real/limits.yaml", at("one.yaml")).unwrap();
    symlink("one.yaml", at("two.yaml")).unwrap();
    symlink("real", at("linked")).unwrap();
    let rules = Rules::builder().read([folder.path().to_owned(), at("linked"), at("real")]).unwrap();
    assert_eq!(domains(&rules), ["a"]);
    // A link without a target is an error, because its rules would be missing.
    symlink("gone.yaml", at("three.yaml")).unwrap();
    assert!(rules.reload().unwrap_err().to_string().contains("three.yaml: cannot be read"));
    assert_eq!(quota(&rules, "a"), 1);
}
