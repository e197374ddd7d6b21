//! Sources of rules: where a text with rules comes from, and how its versions compare.
//!
//! A source only fetches. Polling, checks, reports and the last good copy are the same for all sources: see
//! `watch::follow`.

use std::error::Error;
use std::fmt;
use std::time::SystemTime;

use tollgate_config::Format;

/// A place that rules come from, other than files: for example a database or a web server.
/// `tollgate_redis::RedisRules` (feature `rules`) is a source.
///
/// Only [`Source::fetch`] is required. `RulesBuilder::follow` (feature `watch`) calls it on a thread of its own, so it
/// may block. Give each call a time-out: dropping the watcher waits for a call in progress. A source that checks
/// signatures returns [`Fetched::Refused`] for a text whose signature is wrong.
///
/// # Examples
/// ```
/// use std::error::Error;
/// use tollgate_rules::{Fetched, Format, RuleText, Source, Version};
///
/// /// Rules in a table of a database.
/// struct Table;
/// # fn select_version() -> u64 { 7 }
/// # fn select_text() -> String { "{ domain: shop, descriptors: [] }".to_owned() }
///
/// impl Source for Table {
///     fn name(&self) -> String {
///         "table limits".to_owned()
///     }
///
///     fn fetch(&mut self, known: Option<&Version>) -> Result<Fetched, Box<dyn Error + Send + Sync>> {
///         let version = Version::number("main", select_version());
///         if known == Some(&version) {
///             return Ok(Fetched::Unchanged);
///         }
///         Ok(Fetched::Text(RuleText::new(version, Format::Yaml, select_text())))
///     }
/// }
/// ```
pub trait Source: Send + 'static {
    /// Returns the name of this source in messages and in the last good copy. It must not contain passwords.
    fn name(&self) -> String;

    /// Fetches the text, unless its version is `known`.
    ///
    /// # Errors
    /// If the source cannot be reached or has no text. The rules in force stay as they are.
    fn fetch(&mut self, known: Option<&Version>) -> Result<Fetched, Box<dyn Error + Send + Sync>>;

    /// Receives a [`Hint`], once, before the first poll that may be waited for. A source that learns about changes
    /// calls [`Hint::poll_soon`]. Default: the source gives no hints, and is only polled.
    fn start_hints(&mut self, hint: Hint) {
        drop(hint);
    }
}

/// The result of [`Source::fetch`].
#[derive(Clone, Debug)]
pub enum Fetched {
    /// The version is the known version.
    Unchanged,
    /// A text with another version.
    Text(RuleText),
    /// Another version, whose text the source itself refuses.
    Refused {
        /// The version. It is not fetched again until the version changes.
        version: Version,
        /// Why the text is refused.
        why: String,
    },
}

/// A text with rules, and its version.
#[derive(Clone, PartialEq, Eq)]
pub struct RuleText {
    pub(super) version: Version,
    pub(super) format: Format,
    pub(super) bytes: Vec<u8>,
    pub(super) written_at: Option<SystemTime>,
}

impl RuleText {
    /// The maximum length of a text, in bytes: 1 MiB.
    pub const MAX_BYTES: usize = 1 << 20;

    /// Creates a text. Longer texts than [`MAX_BYTES`](Self::MAX_BYTES) are refused when they are loaded.
    #[must_use]
    pub fn new(version: Version, format: Format, bytes: impl Into<Vec<u8>>) -> Self {
        Self { version, format, bytes: bytes.into(), written_at: None }
    }

    /// Sets when the text was written, for metrics. Default: unknown.
    #[must_use]
    pub const fn written_at(mut self, time: SystemTime) -> Self {
        self.written_at = Some(time);
        self
    }
}

impl fmt::Debug for RuleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the text: its values may be customers' names and keys.
        f.debug_struct("RuleText").field("version", &self.version).finish_non_exhaustive()
    }
}

/// The version of a text: a number in a store, or a tag.
///
/// A *store* is one life of the data. It changes when the data are lost and written again. Within a store, only a higher
/// number replaces the rules in force. A text of another store replaces them too, with a warning. Tags have no order:
/// each other tag replaces the rules.
///
/// # Examples
/// ```
/// use tollgate_rules::Version;
///
/// assert_eq!(Version::number("5f1c", 8).to_string(), "version 8");
/// assert_eq!(Version::tag("W/\"67ab43\"").to_string(), "version W/\"67ab43\"");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Version {
    /// The store, or the tag.
    text: Box<str>,
    number: Option<u64>,
}

/// How a fetched version relates to the version in force.
#[cfg(feature = "watch")]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Order {
    Same,
    Newer,
    Older,
    OtherStore,
}

impl Version {
    /// Creates a version with a number. `store` identifies the data: choose it at random when they are first written.
    #[must_use]
    pub fn number(store: &str, number: u64) -> Self {
        Self { text: store.into(), number: Some(number) }
    }

    /// Creates a version without order, such as the `ETag` of a web server or a hash of the text.
    #[must_use]
    pub fn tag(tag: &str) -> Self {
        Self { text: tag.into(), number: None }
    }

    /// Returns the number, or 0 for a tag.
    #[must_use]
    pub const fn as_number(&self) -> u64 {
        match self.number {
            Some(number) => number,
            None => 0,
        }
    }

    /// Returns the store, or the tag.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.text
    }

    #[cfg(feature = "watch")]
    pub(super) const fn is_tag(&self) -> bool {
        self.number.is_none()
    }

    /// How this version relates to the version in force.
    #[cfg(feature = "watch")]
    pub(super) fn compare_to(&self, in_force: &Self) -> Order {
        if self == in_force {
            return Order::Same;
        }
        match (self.number, in_force.number) {
            (Some(_), Some(_)) if self.text != in_force.text => Order::OtherStore,
            (Some(now), Some(then)) if now < then => Order::Older,
            _ => Order::Newer,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            Some(number) => write!(f, "version {number}"),
            None => write!(f, "version {}", self.text),
        }
    }
}

/// Makes the watcher of a source poll soon.
///
/// A hint carries nothing. It may be lost, since the source is also polled at regular intervals.
#[derive(Clone)]
pub struct Hint(std::sync::Arc<dyn Fn() + Send + Sync>);

impl Hint {
    #[cfg(feature = "watch")]
    pub(super) fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self(std::sync::Arc::new(ring))
    }

    /// Asks for a poll. It happens after a random time of at most two seconds, so that many processes do not fetch at
    /// the same moment. Any number of hints within that time cause one poll.
    pub fn poll_soon(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hint")
    }
}
