//! Checks that documents agree with the code: GUARANTEES.md, the table of models, the guides in `docs`, and the paths that
//! texts name.

mod guarantees;
mod models_table;
mod names;
mod pages;
mod paths;
mod programs;
mod readme;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the text of a file of the repository.
fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// Returns the paths of all files and folders below a folder of the repository. It does not look into what was built.
fn below(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
            found.extend(below(&path));
        }
        found.push(path);
    }
    found
}

/// Returns the paths of the files below a folder with this ending.
fn files(folder: impl AsRef<Path>, ending: &str) -> Vec<PathBuf> {
    below(folder).into_iter().filter(|path| path.extension().is_some_and(|it| it == ending)).collect()
}
