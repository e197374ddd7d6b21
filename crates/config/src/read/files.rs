//! The files of rules in folders.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::problem::unreadable_because;
use super::{ConfigError, Format};
use crate::matching::Position;

/// Whether a folder's file with this name has rules: its extension is that of a [`Format`], and its name does not begin
/// with a dot. Kubernetes mounts the data of a volume under such names, and editors write temporary files under them.
///
/// # Examples
/// ```
/// use tollgate_config::has_rules;
///
/// assert!(has_rules("rules/limits.yaml"));
/// assert!(!has_rules("rules/.limits.yaml") && !has_rules("rules/README.md"));
/// ```
#[must_use]
pub fn has_rules(name: impl AsRef<Path>) -> bool {
    let name = name.as_ref();
    let is_hidden = name.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    !is_hidden && Format::of_path(name).is_some()
}

/// Returns the files at these paths: each file itself, and the files with rules of each folder in the order of their
/// names. Follows links. A file that is reached in several ways is returned once. A path that does not exist counts as a
/// file, so reading it gives the error.
///
/// # Errors
/// All folders that cannot be read.
pub fn rule_files(paths: &[impl AsRef<Path>]) -> Result<Vec<PathBuf>, ConfigError> {
    let files_at = |path: &Path| {
        let files = if path.is_dir() { in_folder(path) } else { Ok(vec![path.to_owned()]) };
        files.map_err(|error| {
            let message = format!("the folder cannot be read: {}", unreadable_because(&error));
            let (name, remedy) = (path.to_string_lossy(), "check the path and its permissions");
            ConfigError::unreadable(&name, Position::default(), message, remedy)
        })
    };
    let mut found = ConfigError::of_all(paths.iter().map(|path| files_at(path.as_ref())))?.concat();
    let mut seen = HashSet::new();
    found.retain(|file| seen.insert(fs::canonicalize(file).unwrap_or_else(|_| file.clone())));
    Ok(found)
}

/// Returns the files with rules in a folder, but not those in folders below it.
fn in_folder(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut files: Vec<PathBuf> = entries.collect::<std::io::Result<_>>()?;
    // A link without a target is kept, so that reading it gives the error.
    files.retain(|file| has_rules(file) && !file.is_dir());
    files.sort();
    Ok(files)
}
