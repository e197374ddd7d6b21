//! Each file of `tests` is a module of a program: one that no `mod` names would be compiled and run by nobody.

use std::fs;
use std::path::{Path, PathBuf};

/// The folders and the Rust files in a folder.
fn entries(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    (folders, files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).collect())
}

/// Every module in a folder is declared by its `main.rs` or `mod.rs`.
fn check(folder: &Path, page: &str) {
    let text = fs::read_to_string(folder.join(page)).unwrap_or_else(|_| panic!("{folder:?} has no {page}"));
    let (folders, files) = entries(folder);
    for module in files.iter().filter(|file| !file.ends_with(page)).chain(&folders) {
        let declaration = format!("mod {};", module.file_stem().unwrap().to_str().unwrap());
        assert!(text.lines().any(|line| line.ends_with(&declaration)), "{module:?} is not in {page}");
    }
    for folder in folders {
        check(&folder, "mod.rs");
    }
}

#[test]
fn every_test_file_is_in_a_program() {
    let (folders, files) = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let programs: Vec<_> = folders.iter().filter(|folder| !folder.ends_with("common")).collect();
    assert!(files.is_empty() && (10..=18).contains(&programs.len()), "{programs:?} {files:?}");
    for program in programs {
        check(program, "main.rs");
    }
}
