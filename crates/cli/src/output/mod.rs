//! The program's output: charts, pages, progress, and the results in files.

pub mod about;
pub mod axis;
pub mod chart;
pub mod page;
pub mod progress;
pub mod svg;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tollgate_report::error::Error;
use tollgate_report::output::{print, say, to_json, wrap, write_to};

/// Prints the results. Writes the table to standard output and the JSON to its file, or only the JSON to standard
/// output. Afterwards, returns an error if that file, or those `written` before, could not be written.
pub fn finish(
    mut written: Result<(), Error>,
    path: Option<&Path>,
    about: &str,
    json: impl FnOnce() -> Value,
    tables: impl FnOnce() -> String,
) -> Result<(), Error> {
    if let Some(path) = path {
        written = written.and(write_to(path, to_json(&json()).as_bytes()));
    }
    if path == Some(Path::new("-")) {
        say(about);
    } else {
        print(format!("{}\n{}", wrap::for_stdout(about), tables()).as_bytes())?;
    }
    written
}

/// Checks that these files can be written, before the long computation; `-` is standard output.
///
/// # Errors
/// Returns the first file that cannot be opened for writing. The check removes a file that it had to create.
pub fn writable<'p>(paths: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Error> {
    for path in paths.into_iter().filter(|path| path.as_os_str() != "-") {
        let cannot = |error: io::Error| Error::writing(&path.display().to_string(), &error);
        match fs::OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(file) => {
                drop(file);
                fs::remove_file(path).map_err(cannot)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::OpenOptions::new().write(true).open(path).map_err(cannot)?;
            }
            Err(error) => return Err(cannot(error)),
        }
    }
    Ok(())
}
