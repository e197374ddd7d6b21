//! Checks that every file in `tests` belongs to a test program. A file without a `mod` declaration would never be
//! compiled or run. Each file of seeds in `tests/proptest-regressions` must belong to a test file, because otherwise no
//! test would read it.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders and the Rust files in a folder.
fn entries(folder: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    (folders, files.into_iter().filter(|path| path.extension().is_some_and(|it| it == "rs")).collect())
}

/// The folder in which proptest keeps the seeds of failures. It is not a program.
const SEEDS: &str = "proptest-regressions";

/// Checks that a test file has the same path below one of the programs as each file of seeds has below [`SEEDS`].
fn check_seeds(seeds: &Path, programs: &[&PathBuf], below: &Path) {
    for entry in fs::read_dir(seeds.join(below)).into_iter().flatten() {
        let (entry, path) = entry.map(|it| (it.path(), below.join(it.file_name()))).unwrap();
        if entry.is_dir() {
            check_seeds(seeds, programs, &path);
            continue;
        }
        let tests = path.with_extension("rs");
        assert!(
            programs.iter().any(|it| it.join(&tests).is_file()),
            "no test file reads the seeds in {entry:?}"
        );
    }
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
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (folders, files) = entries(&tests);
    let is_program = |folder: &&PathBuf| !folder.ends_with("common") && !folder.ends_with(SEEDS);
    let programs: Vec<_> = folders.iter().filter(is_program).collect();
    assert!(
        files.is_empty() && (6..=12).contains(&programs.len()),
        "`tests` needs 6 to 12 programs and no loose files: {programs:?} {files:?}"
    );
    check_seeds(&tests.join(SEEDS), &programs, Path::new(""));
    let of = |package: &str| {
        entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("crates/{package}/tests"))).0
    };
    let others = [
        "cli", "config", "http", "io", "protocol", "redis", "report", "resp", "rules", "serve", "soak",
        "tower",
    ]
    .map(of)
    .concat();
    assert!(others.len() <= 20, "each program is compiled and linked: {others:?}");
    for program in programs.into_iter().chain(&others) {
        check(program, "main.rs");
    }
}
