//! Why rules are not in force.

use std::error::Error;
use std::fmt;

use super::chosen::NoStore;
use super::shared::Unmade;
use super::{ConfigError, Rule};

/// Why rules could not be loaded. Those that were in force stay so.
///
/// # Examples
/// ```
/// use tollgate::rules::Rules;
///
/// let error = Rules::from_yaml("
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: { unit: fortnight, requests_per_unit: 1 }
/// ").unwrap_err();
/// assert!(error.to_string().contains("fortnight")); // with the line, and what would be right
/// ```
#[derive(Clone, Debug)]
pub struct RulesError(Why);

#[derive(Clone, Debug)]
enum Why {
    Config(ConfigError),
    Store {
        rule: Box<str>,
        line: usize,
        why: NoStore,
    },
    /// It is shared by processes, and nothing is known of a server.
    NoServer {
        rule: Box<str>,
        line: usize,
    },
    /// It is shared by processes, and what fetches or posts for it could not be started.
    #[cfg(feature = "redis")]
    Task {
        rule: Box<str>,
        line: usize,
        why: Box<str>,
    },
    /// Nothing says what to load.
    NoSource,
    /// The system cannot watch files.
    #[cfg(feature = "watch")]
    Watch(Box<str>),
}

impl RulesError {
    pub(super) fn store(rule: &Rule, why: NoStore) -> Self {
        Self(Why::Store { rule: rule.identity.clone(), line: rule.line, why })
    }

    pub(super) fn unmade(rule: &Rule, why: Unmade) -> Self {
        match why {
            Unmade::Store(why) => Self::store(rule, why),
            #[cfg(feature = "redis")]
            Unmade::Task(why) => Self(Why::Task { rule: rule.identity.clone(), line: rule.line, why }),
        }
    }

    pub(super) fn no_server(rule: &Rule) -> Self {
        Self(Why::NoServer { rule: rule.identity.clone(), line: rule.line })
    }

    pub(super) const fn no_source() -> Self {
        Self(Why::NoSource)
    }

    #[cfg(feature = "watch")]
    pub(super) fn watch(error: &str) -> Self {
        Self(Why::Watch(error.into()))
    }

    /// What is wrong in the files, if that is why.
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
            Why::Store { rule, line, why: NoStore::Quota(error) } if error.is_pending() => {
                write!(
                    f,
                    "line {line}: rule {rule:?} has changed so often, in a store that cannot list who owes, that what clients \
                     owe from before is not paid yet; give it more `memory`, or change it again later"
                )
            }
            Why::Store { rule, line, why: NoStore::Quota(error) } => {
                write!(f, "line {line}: rule {rule:?}: {error}")
            }
            Why::Store { rule, line, why: NoStore::Algorithm } => {
                write!(
                    f,
                    "line {line}: rule {rule:?}: its store does not hold its algorithm; leave `store` out, or take `keyed`"
                )
            }
            Why::NoServer { rule, line } => {
                let why = if cfg!(feature = "redis") {
                    "was given no server: give one to `RulesBuilder::redis`"
                } else {
                    "was built without Redis: build it with the feature `redis`"
                };
                write!(
                    f,
                    "line {line}: rule {rule:?} says store: redis, and this program {why}, or choose another store"
                )
            }
            #[cfg(feature = "redis")]
            Why::Task { rule, line, why } => write!(f, "line {line}: rule {rule:?}: {why}"),
            #[cfg(feature = "watch")]
            Why::Watch(error) => write!(f, "the rules' files cannot be watched: {error}"),
            Why::NoSource => {
                f.write_str("these rules were not read from files: give the new ones to `replace`")
            }
        }
    }
}

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Why::Config(error) => Some(error),
            Why::Store { why: NoStore::Quota(error), .. } => Some(error),
            _ => None,
        }
    }
}
