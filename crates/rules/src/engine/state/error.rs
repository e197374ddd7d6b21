//! The errors of loads.

use std::error::Error;
use std::fmt;
#[cfg(feature = "watch")]
use std::path::Path;
use std::path::PathBuf;

use tollgate::QuotaError;
use tollgate_config::{ConfigError, Rule};

use crate::counting::NoCounter;

/// The reason why rules could not be loaded. The previous rules stay in force.
///
/// # Examples
/// ```
/// use tollgate_rules::Rules;
///
/// let error = Rules::from_yaml("
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: { unit: fortnight, requests_per_unit: 1 }
/// ").unwrap_err();
/// assert!(error.to_string().contains("fortnight")); // with the line and the valid units
/// ```
#[derive(Clone)]
pub struct RulesError(Why);

#[derive(Clone, Debug)]
enum Why {
    Config(ConfigError),
    /// The message. If a correct rule cannot take effect here, the message includes its quota.
    Other(Box<str>, Option<Box<QuotaError>>),
}

impl RulesError {
    pub(super) fn no_counter(file: &str, rule: &Rule, why: NoCounter) -> Self {
        let message = format!("{file}:{}: rule {:?} {why}", rule.line, rule.identity);
        let quota = if let NoCounter::Quota(error) = why { Some(Box::new(error)) } else { None };
        Self(Why::Other(message.into(), quota))
    }

    /// The rules were not read from files, so there is nothing to read again.
    pub(crate) fn no_source() -> Self {
        Self::new("these rules were not read from files: pass the new rules to `replace` instead")
    }

    /// The folders have no files with rules.
    pub(in crate::engine) fn no_files(folders: &[PathBuf]) -> Self {
        let names: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Self::new(format!(
            "{}: there are no files with rules; check the path, or put files named *.yaml, *.yml, *.json or *.toml there",
            names.join(", ")
        ))
    }

    /// A domain has no rules. Includes the most similar domain, with its file.
    pub(in crate::engine) fn no_domain(domain: &str, nearest: Option<(&str, &str)>) -> Self {
        let why = match nearest {
            Some((name, file)) => format!(
                "; the most similar domain is {name:?}, in {file}: use that name, or load a file whose domain is {domain:?}"
            ),
            None => ", or for any other domain: load a file with this domain first".to_owned(),
        };
        Self::new(format!("there are no rules for the domain {domain:?}{why}"))
    }

    /// The system cannot watch files.
    #[cfg(feature = "watch")]
    pub(crate) fn watch(error: &str) -> Self {
        Self::new(format!("the files of these rules cannot be watched: {error}"))
    }

    /// A file has been written for a long time without a pause.
    #[cfg(feature = "watch")]
    pub(crate) fn endless(file: &Path) -> Self {
        Self::new(format!(
            "{}: this file has been written without a pause for ten seconds, so its changes are not loaded; write a new \
             file, and rename it to this name",
            file.display()
        ))
    }

    /// Creates the error of a source of rules, or of its text, from its message.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::RulesError;
    ///
    /// let error = RulesError::new("the table `limits` is empty");
    /// assert_eq!(error.to_string(), "the table `limits` is empty");
    /// ```
    pub fn new(message: impl Into<Box<str>>) -> Self {
        Self(Why::Other(message.into(), None))
    }

    /// Returns the problems in the files, if they are the reason.
    #[must_use]
    pub fn config(&self) -> Option<&ConfigError> {
        match &self.0 {
            Why::Config(error) => Some(error),
            _ => None,
        }
    }
}

impl From<ConfigError> for RulesError {
    fn from(error: ConfigError) -> Self {
        Self(Why::Config(error))
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Config(error) => error.fmt(f),
            Why::Other(message, _) => f.write_str(message),
        }
    }
}

tollgate::internals::debug_shows_message!(RulesError);

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Why::Config(error) => Some(error),
            Why::Other(_, quota) => quota.as_ref().map(|error| &**error as _),
        }
    }
}
