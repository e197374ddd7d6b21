//! Why rules are not in force.

use std::error::Error;
use std::fmt;

use super::chosen::NoStore;
use super::{ConfigError, Rule};
use crate::base::quota::QuotaError;

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
    /// A rule is right, and cannot be in force here.
    Rule(Box<Unable>),
    /// Nothing says what to load.
    NoSource,
    /// There are no rules of a domain; and the nearest that there is, with its file.
    NoDomain {
        domain: Box<str>,
        nearest: Option<(Box<str>, Box<str>)>,
    },
    /// The system cannot watch files.
    #[cfg(feature = "watch")]
    Watch(Box<str>),
}

/// A rule that cannot be in force, and where it stands.
#[derive(Clone, Debug)]
struct Unable {
    file: Box<str>,
    line: usize,
    rule: Box<str>,
    why: Unmade,
}

/// Why a rule's limiter could not be made.
#[derive(Clone, Debug)]
pub(super) enum Unmade {
    Store(NoStore),
    /// It is shared by processes, and nothing is known of a server.
    NoServer,
    /// It is shared by processes, and what fetches or posts for it could not be started.
    #[cfg(feature = "redis")]
    Task(Box<str>),
}

impl From<NoStore> for Unmade {
    fn from(error: NoStore) -> Self {
        Self::Store(error)
    }
}

impl From<QuotaError> for Unmade {
    fn from(error: QuotaError) -> Self {
        Self::Store(error.into())
    }
}

impl RulesError {
    pub(super) fn unmade(file: &str, rule: &Rule, why: Unmade) -> Self {
        let (file, line, rule) = (file.into(), rule.line, rule.identity.clone());
        Self(Why::Rule(Box::new(Unable { file, line, rule, why })))
    }

    pub(super) const fn no_source() -> Self {
        Self(Why::NoSource)
    }

    pub(super) fn no_domain(domain: &str, nearest: Option<(&str, &str)>) -> Self {
        let nearest = nearest.map(|(name, file)| (name.into(), file.into()));
        Self(Why::NoDomain { domain: domain.into(), nearest })
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
            Why::Rule(unable) => {
                let Unable { file, line, rule, why } = &**unable;
                write!(f, "{file}:{line}: rule {rule:?} {why}")
            }
            #[cfg(feature = "watch")]
            Why::Watch(error) => write!(f, "the rules' files cannot be watched: {error}"),
            Why::NoDomain { domain, nearest: Some((name, file)) } => write!(
                f,
                "there are no rules of the domain {domain:?}; the nearest is {name:?}, of {file}: name that one, or load a file whose \
                 domain is {domain:?}"
            ),
            Why::NoDomain { domain, nearest: None } => {
                write!(
                    f,
                    "there are no rules of the domain {domain:?}, nor of any other: load a file of it first"
                )
            }
            Why::NoSource => {
                f.write_str("these rules were not read from files: give the new ones to `replace`")
            }
        }
    }
}

/// After the rule's name.
impl fmt::Display for Unmade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(NoStore::Quota(error)) if error.is_pending() => f.write_str(
                "has changed so often, in a store that cannot list who owes, that what clients owe from before is not paid yet; \
                 give it more `memory`, or change it again later",
            ),
            Self::Store(NoStore::Quota(error)) => write!(f, "has no store: {error}"),
            Self::Store(NoStore::Algorithm) => f.write_str(
                "has a store that does not hold its algorithm; leave `store` out, or take `keyed`",
            ),
            Self::NoServer => {
                let why = if cfg!(feature = "redis") {
                    "was given no server: give one to `RulesBuilder::redis`"
                } else {
                    "was built without Redis: build it with the feature `redis`"
                };
                write!(f, "says store: redis, and this program {why}, or choose another store")
            }
            #[cfg(feature = "redis")]
            Self::Task(why) => write!(f, "has nothing to fetch or post for it: {why}"),
        }
    }
}

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Why::Config(error) => Some(error),
            Why::Rule(unable) => match &unable.why {
                Unmade::Store(NoStore::Quota(error)) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}
