//! The formats of rules.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde_json::value::RawValue;

use super::node::FileNode;
use super::problem::Problems;
use super::{Config, ConfigError, json, problem, toml, yaml};

/// The format of a text with rules. All formats express the same rules.
///
/// # Examples
/// ```
/// use tollgate_config::Format;
///
/// assert_eq!(Format::of_path("/etc/limits.YML"), Some(Format::Yaml));
/// assert_eq!("toml".parse(), Ok(Format::Toml));
/// assert_eq!(Format::Json.to_string(), "json");
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Format {
    /// YAML, the default.
    #[default]
    Yaml,
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// Returns the format of a file with this extension: `.yaml`, `.yml`, `.json` or `.toml`. Returns `None` for
    /// another extension.
    #[must_use]
    pub fn of_path(path: impl AsRef<Path>) -> Option<Self> {
        path.as_ref().extension()?.to_str()?.parse().ok()
    }

    pub(super) fn read(self, text: &str, problems: &mut Problems) -> Option<FileNode> {
        match self {
            Self::Yaml => yaml::read(text, problems),
            Self::Json => json::read(text, problems),
            Self::Toml => toml::read(text, problems),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Toml => "toml",
        })
    }
}

/// The error for a name that is not the name of a [`Format`].
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct UnknownFormat;

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the formats of rules are yaml, json and toml")
    }
}

tollgate::internals::debug_shows_message!(UnknownFormat);

impl std::error::Error for UnknownFormat {}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        match &*name.to_ascii_lowercase() {
            "yaml" | "yml" => Ok(Self::Yaml),
            "json" => Ok(Self::Json),
            "toml" => Ok(Self::Toml),
            _ => Err(UnknownFormat),
        }
    }
}

impl Config {
    /// Reads rules in UTF-8. Messages contain `name`.
    ///
    /// # Errors
    /// All problems in the text.
    pub fn from_bytes(name: &str, format: Format, bytes: impl Into<Vec<u8>>) -> Result<Self, ConfigError> {
        let text = String::from_utf8(bytes.into()).map_err(|error| problem::no_utf8(name, &error))?;
        Self::from_text(name, &text, format)
    }

    /// Reads the rules of several domains: a list in JSON with one map for each. Every other text is the rules of one
    /// domain, as for [`Config::from_bytes`]. Messages contain `name`, and the place in the list from 0.
    ///
    /// # Errors
    /// All problems in the text.
    ///
    /// # Examples
    /// ```
    /// use tollgate_config::{Config, Format};
    ///
    /// let configs = Config::all_from_bytes("limits", Format::Json, r#"[{ "domain": "shop" }, { "domain": "edge" }]"#)?;
    /// assert_eq!([configs[0].domain(), configs[1].domain()], ["shop", "edge"]);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    pub fn all_from_bytes(
        name: &str,
        format: Format,
        bytes: impl Into<Vec<u8>>,
    ) -> Result<Vec<Self>, ConfigError> {
        let text = String::from_utf8(bytes.into()).map_err(|error| problem::no_utf8(name, &error))?;
        let is_list = format == Format::Json && text.trim_start().starts_with('[');
        let read =
            |(at, item): (usize, &RawValue)| Self::from_text(&format!("{name}[{at}]"), item.get(), format);
        match is_list.then(|| serde_json::from_str::<Vec<&RawValue>>(&text)) {
            Some(Ok(items)) => ConfigError::of_list(name, items.into_iter().enumerate().map(read)),
            // Another text, or one that is not valid, which has a message of its own.
            _ => Ok(vec![Self::from_text(name, &text, format)?]),
        }
    }
}
