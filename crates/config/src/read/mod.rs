//! Reads rules from files.
//!
//! ```text
//! YAML, JSON, TOML ──► nodes, each with its line and column ──► one checker ──► rules, problems and warnings
//! ```

mod block;
#[cfg(feature = "calendar")]
mod calendar;
#[cfg(not(feature = "calendar"))]
#[path = "no_calendar.rs"]
mod calendar;
mod check;
mod checker;
mod classes;
mod distinct;
mod domain;
mod files;
mod fits;
mod foreign;
mod format;
mod hold;
mod identity;
mod json;
mod keys;
mod limit;
mod never;
mod node;
mod prefixes;
mod problem;
mod ranges;
mod scalar;
mod settings;
mod toml;
mod warnings;
mod yaml;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

pub use self::domain::{Domain, DomainParts, RuleFiles};
pub use self::files::{has_rules, rule_files};
pub use self::format::{Format, UnknownFormat};
use self::node::MAX_BYTES;
pub use self::problem::{ConfigError, Problem};
use self::problem::{Problems, unreadable_because};
use super::matching::{Branch, Position};
use super::rule::{Charging, Rule};

/// The rules of one file, read and checked.
///
/// The language is that of Envoy's rate limit service. A file can enable extensions of Tollgate: see
/// [`docs/rules.md`](https://docs.rs/crate/tollgate/latest/source/docs/rules.md). All three formats express the same rules.
///
/// # Examples
/// ```
/// use tollgate_config::Config;
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
/// # Ok::<(), tollgate_config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    file: Box<str>,
    domain: Box<str>,
    domain_at: Position,
    /// `None` if the file does not set it.
    charging: Option<Charging>,
    shadow: bool,
    branches: Vec<Branch>,
    /// The result of [`hash`] for the text.
    hash: u64,
    rules: Vec<Rule>,
    warnings: Vec<Problem>,
}

impl Config {
    /// Reads rules in YAML: one document, without duplicate keys. Messages contain `name`.
    ///
    /// # Errors
    /// All problems in the text.
    pub fn from_yaml(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, Format::Yaml)
    }

    /// Reads rules in JSON. Messages contain `name`.
    ///
    /// # Errors
    /// All problems in the text.
    pub fn from_json(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, Format::Json)
    }

    /// Reads rules in TOML. Messages contain `name`.
    ///
    /// # Errors
    /// All problems in the text.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ConfigError> {
        Self::from_text(name, text, Format::Toml)
    }

    /// Reads rules from a file. The extension selects the format: `.yaml`, `.yml`, `.json` or `.toml`.
    ///
    /// # Errors
    /// If the file cannot be read or has another extension. Otherwise, all problems in the text.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let unreadable =
            |message, remedy| Err(ConfigError::unreadable(&name, Position::default(), message, remedy));
        let Some(format) = Format::of_path(path) else {
            // A misspelt path of a folder has no extension either.
            if let (None, Err(error)) = (path.extension(), path.metadata()) {
                let message = format!("cannot be read: {}", unreadable_because(&error));
                return unreadable(message, "check the path; for a file, use .yaml, .yml, .json or .toml");
            }
            let message = "the file name has no known extension".to_owned();
            return unreadable(message, "use .yaml, .yml, .json or .toml");
        };
        match bytes_of(path) {
            Ok(bytes) => Self::from_bytes(&name, format, bytes),
            Err(error) => {
                let message = format!("cannot be read: {}", unreadable_because(&error));
                unreadable(message, "check the path and its permissions")
            }
        }
    }

    fn from_text(name: &str, text: &str, format: Format) -> Result<Self, ConfigError> {
        if text.len() > MAX_BYTES {
            let message = format!("the file has more than {MAX_BYTES} bytes");
            return Err(ConfigError::unreadable(name, Position::default(), message, "write fewer rules"));
        }
        let mut problems = Problems::of(name);
        // Some editors write a byte order mark at the start of a file.
        match format.read(text.strip_prefix('\u{feff}').unwrap_or(text), &mut problems) {
            Some(root) => check::check(name, root, text, problems),
            None => Err(problems.into_error(|problem| never::fill_in(problem, text))),
        }
    }

    /// Returns a hash of these files in their order. It is the same on every machine, whatever the file names are. It
    /// has 48 bits, which a gauge represents exactly: `tollgate_config_hash` of `tollgate-rules`.
    #[must_use]
    pub fn hash_of(files: &[Self]) -> u64 {
        let hashes: Vec<u8> = files.iter().flat_map(|file| file.hash.to_le_bytes()).collect();
        hash(&hashes) >> 16
    }

    /// Returns the file's name, as the caller gave it.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the domain of the rules.
    #[must_use]
    pub fn domain(&self) -> &str {
        &self.domain
    }

    /// Returns the rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the warnings, by line: settings that are allowed but are probably mistakes.
    #[must_use]
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// Returns whether denied requests are charged: the file's `charging`, or [`Charging::AllOrNothing`] if the file
    /// does not set it.
    #[must_use]
    pub fn charging(&self) -> Charging {
        self.charging.unwrap_or_default()
    }

    /// Whether the whole file is a dry run.
    #[must_use]
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Creates a problem at the place where the file sets its domain, for your own checks.
    ///
    /// # Examples
    /// ```
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_yaml("limits.yaml", "domain: shopp")?;
    /// let problem = config.problem_of_domain("domain", "there is no service with this name", "write \"shop\"");
    /// assert_eq!(
    ///     problem.to_string(),
    ///     "limits.yaml:1:9: domain: there is no service with this name; write \"shop\""
    /// );
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn problem_of_domain(&self, path: &str, message: &str, remedy: &str) -> Problem {
        Problem::new(&self.file, self.domain_at, path, message, remedy)
    }
}

/// Reads a file, at most to one byte more than the maximum length of a text, so that a longer file is detected.
///
/// # Errors
/// If the file cannot be read.
pub fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// FNV-1a (Fowler, Noll and Vo). It uses no secret and is the same in every build.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
