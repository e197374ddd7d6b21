//! Why rules are not in force.

use std::error::Error;
use std::fmt;

use crate::edge::rules::config::ConfigError;
use crate::edge::rules::counting::NoCounter;
use crate::edge::rules::rule::Rule;

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
    Rule {
        file: Box<str>,
        line: usize,
        rule: Box<str>,
        why: Box<NoCounter>,
    },
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

impl RulesError {
    pub(super) fn no_counter(file: &str, rule: &Rule, why: NoCounter) -> Self {
        let (file, line, rule, why) = (file.into(), rule.line, rule.identity.clone(), Box::new(why));
        Self(Why::Rule { file, line, rule, why })
    }

    pub(in crate::edge::rules) const fn no_source() -> Self {
        Self(Why::NoSource)
    }

    pub(super) fn no_domain(domain: &str, nearest: Option<(&str, &str)>) -> Self {
        let nearest = nearest.map(|(name, file)| (name.into(), file.into()));
        Self(Why::NoDomain { domain: domain.into(), nearest })
    }

    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn watch(error: &str) -> Self {
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
            Why::Rule { file, line, rule, why } => write!(f, "{file}:{line}: rule {rule:?} {why}"),
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

impl Error for RulesError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Why::Config(error) => Some(error),
            Why::Rule { why, .. } => match &**why {
                NoCounter::Quota(error) => Some(error),
                _ => None,
            },
            _ => None,
        }
    }
}
