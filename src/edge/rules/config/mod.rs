//! Reading rules.
//!
//! ```text
//! YAML, JSON, TOML ──► nodes, each with its line and column ──► one checker ──► rules, and what is wrong or looks so
//! ```

mod check;
mod checker;
mod domain;
mod fits;
mod identity;
mod json;
mod keys;
mod limit;
mod node;
mod problem;
mod removed;
mod scalar;
mod settings;
mod toml;
mod warnings;
mod yaml;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use self::domain::Domain;
pub(super) use self::domain::RuleFiles;
use self::node::{FileNode, MAX_BYTES};
use self::problem::Problems;
pub use self::problem::{ConfigError, Problem};
pub(super) use self::removed::removed;
use super::matching::{Branch, Position};
use super::rule::{Charging, Rule};

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
    domain_at: Position,
    charging: Charging,
    shadow: bool,
    branches: Vec<Branch>,
    /// Of its text: what [`hash`] makes of it.
    hash: u64,
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
        let name = path.display().to_string();
        let unreadable =
            |message, remedy| Err(ConfigError::unreadable(&name, Position::default(), message, remedy));
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        let read = match ending.as_deref() {
            Some("yaml" | "yml") => yaml::read,
            Some("json") => json::read,
            Some("toml") => toml::read,
            _ => {
                let message = "the name says no format".to_owned();
                return unreadable(message, "end it in .yaml, .yml, .json or .toml");
            }
        };
        // One byte more than is read says that there are more.
        let mut bytes = Vec::new();
        let all = File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = all {
            let text = error.to_string();
            // Without "(os error 2)", which helps nobody.
            let reason = text.split(" (os error").next().unwrap_or_default().to_lowercase();
            return unreadable(format!("cannot be read: {reason}"), "");
        }
        let text = String::from_utf8(bytes).map_err(|error| problem::no_utf8(&name, &error))?;
        Self::from_text(&name, &text, read)
    }

    fn from_text(
        name: &str,
        text: &str,
        read: fn(&str, &mut Problems) -> Option<FileNode>,
    ) -> Result<Self, ConfigError> {
        if text.len() > MAX_BYTES {
            let message = format!("the file has more than {MAX_BYTES} bytes");
            return Err(ConfigError::unreadable(name, Position::default(), message, "write fewer rules"));
        }
        let mut problems = Problems::of(name);
        // Some editors begin a file with a mark.
        match read(text.strip_prefix('\u{feff}').unwrap_or(text), &mut problems) {
            Some(root) => check::check(name, root, text, problems),
            None => Err(problems.into_error()),
        }
    }

    /// What tells these files, in their order, from others: the same on every machine, whatever they are called. 48 bits, which a gauge
    /// holds exactly.
    pub(super) fn hash_of(files: &[Self]) -> u64 {
        let hashes: Vec<u8> = files.iter().flat_map(|file| file.hash.to_le_bytes()).collect();
        hash(&hashes) >> 16
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

/// FNV-1a (Fowler, Noll and Vo): no secret, and the same for every build.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::hash;

    /// As the authors' page has them.
    #[test]
    fn hashes_are_those_of_every_machine() {
        assert_eq!((hash(b""), hash(b"a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
