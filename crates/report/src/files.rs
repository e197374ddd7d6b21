//! Rule files that are read together, and their errors.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use tollgate_rules::{Config, Domain, Format, Problem};

use crate::error::Error;
use crate::human;
use crate::output::{say_error, say_warning};

/// The variable with the address of the Redis server from which rules are pulled.
pub const RULES_URL: &str = "TOLLGATE_REDIS_URL";

/// Rule files, and the findings for all of them together.
pub struct RuleFiles {
    /// The files that can be read.
    pub configs: Vec<Config>,
    /// The domains; none if the files contradict each other.
    pub domains: Vec<Domain>,
    /// The warnings.
    pub warnings: Vec<Problem>,
    /// The errors.
    pub errors: Vec<Problem>,
}

impl RuleFiles {
    /// Reads files, and the files in folders, and prints their warnings and errors.
    pub fn read(paths: &[PathBuf], merge_domains: bool) -> Self {
        let files = Self::read_silently(paths, merge_domains);
        print_warnings(&files.warnings);
        files.errors.iter().for_each(say_error);
        files
    }

    /// Reads files, and the files in folders.
    pub fn read_silently(paths: &[PathBuf], merge_domains: bool) -> Self {
        let (mut configs, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for file in &paths.iter().flat_map(in_folder).collect::<Vec<_>>() {
            match Config::read(file) {
                Ok(config) => {
                    warnings.extend_from_slice(config.warnings());
                    configs.push(config);
                }
                Err(error) => errors.extend_from_slice(error.problems()),
            }
        }
        let domains = Domain::merge(configs.clone(), merge_domains).unwrap_or_else(|error| {
            errors.extend_from_slice(error.problems());
            Vec::new()
        });
        domains.iter().for_each(|domain| warnings.extend_from_slice(domain.warnings()));
        Self { configs, domains, warnings, errors }
    }

    /// Returns the domains if the files can be used.
    ///
    /// # Errors
    /// Returns an error if the files have errors, which were printed.
    pub fn usable(&self) -> Result<(), Error> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let with_errors: HashSet<&str> = self.errors.iter().map(Problem::file).collect();
        let errors = human::counted(self.errors.len() as u64, "problem");
        let files = human::counted(with_errors.len() as u64, "file");
        Err(Error::run(format!("{errors} in {files}; see above")))
    }
}

/// Returns the files of rules in a folder, in the order of their names, or the path itself.
pub fn in_folder(path: &PathBuf) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else { return vec![path.clone()] };
    let is_hidden =
        |path: &Path| path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        files.filter(|file| Format::of_path(file).is_some() && !is_hidden(file) && !file.is_dir()).collect();
    files.sort();
    files
}

/// Prints warnings, each with its place.
pub fn print_warnings(warnings: &[Problem]) {
    warnings.iter().for_each(say_warning);
}
