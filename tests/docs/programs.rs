//! Checks that every file in `tests` belongs to a test program. A file without a `mod` declaration would never be
//! compiled or run.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders and the Rust files in a folder.
fn entries(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    (folders, files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).collect())
}

/// Checks that `main.rs` or `mod.rs` declares every module in a folder.
fn check(folder: &Path, page: &str) {
    let text = fs::read_to_string(folder.join(page)).unwrap_or_else(|_| panic!("{folder:?} has no {page}"));
    let (folders, files) = entries(folder);
    for module in files.iter().filter(|file| !file.ends_with(page)).chain(&folders) {
        let declaration = format!("mod {};", module.file_stem().unwrap().to_str().unwrap());
        assert!(text.lines().any(|line| line.ends_with(&declaration)), "{page} does not declare {module:?}");
    }
    for folder in folders {
        check(&folder, "mod.rs");
    }
}

#[test]
fn every_test_file_is_in_a_program() {
    let (folders, files) = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    // Proptest keeps the seeds of failures in a folder without programs.
    let shared = ["common", "proptest-regressions"];
    let is_program = |folder: &&PathBuf| !shared.iter().any(|name| folder.ends_with(name));
    let programs: Vec<_> = folders.iter().filter(is_program).collect();
    assert!(
        files.is_empty() && (8..=12).contains(&programs.len()),
        "`tests` needs 8 to 12 programs and no loose files: {programs:?} {files:?}"
    );
    let (others, _) = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/cli/tests"));
    assert_eq!(others.len(), 3, "the program has three test programs: {others:?}");
    let (soak, _) = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/soak/tests"));
    for program in programs.into_iter().chain(&others).chain(&soak) {
        check(program, "main.rs");
    }
}
