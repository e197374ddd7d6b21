//! Reading rules.
//!
//! ```text
//! YAML, JSON, TOML ──► nodes, each with its line and column ──► one checker ──► rules, and what is wrong or looks so
//! ```

mod check;
mod domain;
mod fits;
mod identity;
mod json;
mod keys;
mod limit;
mod node;
mod problem;
mod scalar;
mod settings;
mod shared;
mod toml;
mod warnings;
mod yaml;

use std::path::Path;

pub(super) use self::check::Branch;
pub use self::domain::Domain;
use self::node::{MAX_BYTES, Node, Place};
use self::problem::Problems;
pub use self::problem::{ConfigError, Problem};
use super::{Charging, Rule};

/// The rules of one file, read and checked.
///
/// The language is that of Envoy's rate limit service, and more where a file asks for it: see [`guide::rules`](crate::guide::rules).
/// All three formats say the same things.
///
/// # Examples
/// ```
/// use tollgate::rules::Config;
///
/// let config = Config::from_toml("limits.toml", r#"
/// domain = "edge"
///
/// [[descriptors]]
/// key = "remote_address"
/// rate_limit = { unit = "second", requests_per_unit = 10 }
/// "#)?;
/// assert_eq!(config.domain(), "edge");
/// assert_eq!(&*config.rules()[0].identity, "edge|remote_address");
/// assert!(config.warnings().is_empty());
/// # Ok::<(), tollgate::rules::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    file: Box<str>,
    domain: Box<str>,
    domain_at: Place,
    charging: Charging,
    shadow: bool,
    branches: Vec<Branch>,
    rules: Vec<Rule>,
    warnings: Vec<Problem>,
}

impl Config {
    /// Rules in YAML: one document, without duplicate keys. The name is for messages.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn from_yaml(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, yaml::read)
    }

    /// Rules in JSON. The name is for messages.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn from_json(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, json::read)
    }

    /// Rules in TOML. The name is for messages.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, toml::read)
    }

    /// Rules from a file, whose name says the format: `.yaml`, `.yml`, `.json` or `.toml`.
    ///
    /// # Errors
    /// If the file cannot be read, or has another ending; and all that is wrong with it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let read = match ending.as_deref() {
            Some("yaml" | "yml") => yaml::read,
            Some("json") => json::read,
            Some("toml") => toml::read,
            _ => {
                let message = "the name says no format".to_owned();
                return Err(problem::unreadable(path, message, "end it in .yaml, .yml, .json or .toml"));
            }
        };
        match std::fs::read_to_string(path) {
            Ok(text) => Self::from_text(&path.display().to_string(), &text, read),
            Err(error) => {
                let text = error.to_string();
                // Without "(os error 2)", which helps nobody.
                let reason = text.split(" (os error").next().unwrap_or_default().to_lowercase();
                Err(problem::unreadable(path, format!("cannot be read: {reason}"), ""))
            }
        }
    }

    fn from_text(
        name: &str,
        text: &str,
        read: fn(&str, &mut Problems) -> Option<Node>,
    ) -> Result<Self, ConfigError> {
        let mut problems = Problems::of(name);
        if text.len() > MAX_BYTES {
            let message = format!("{} bytes are too many", text.len());
            problems.add(Place::default(), "", message, format!("write at most {MAX_BYTES}"));
            return Err(problems.into_error());
        }
        // Some editors begin a file with a mark.
        match read(text.strip_prefix('\u{feff}').unwrap_or(text), &mut problems) {
            Some(root) => check::check(name, &root, problems),
            None => Err(problems.into_error()),
        }
    }

    /// The file's name, as it was given.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The domain whose rules these are.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What is allowed, but hardly meant; by line.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// What refused requests are charged.
    #[must_use]
    pub fn charging(&self) -> Charging {
        self.charging
    }

    /// Whether the whole file is a dry run.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }
}
