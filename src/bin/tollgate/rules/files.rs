//! Rule files that are read together, and their errors.

use std::path::PathBuf;

use tollgate::rules::{Config, Domain, Problem};

use crate::error::Error;
use crate::human;
use crate::output::say;

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
    /// Reads files, and prints their errors.
    pub fn read(files: &[PathBuf], merge_domains: bool) -> Self {
        let (mut configs, mut warnings, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for file in files {
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
        print_warnings(&warnings);
        errors.iter().for_each(|error| say(&format!("error: {error}\n")));
        Self { configs, domains, warnings, errors }
    }

    /// Returns the domains if the files can be used.
    ///
    /// # Errors
    /// Returns an error if the files have errors, which were printed.
    pub fn usable(&self, files: &[PathBuf]) -> Result<(), Error> {
        if self.errors.is_empty() {
            return Ok(());
        }
        let errors = human::counted(self.errors.len() as u64, "problem");
        let files = human::counted(files.len() as u64, "file");
        Err(Error::run(format!("{errors} in {files}; see above")))
    }
}

/// Prints warnings, each with its place.
pub fn print_warnings(warnings: &[Problem]) {
    warnings.iter().for_each(|warning| say(&format!("warning: {warning}\n")));
}
