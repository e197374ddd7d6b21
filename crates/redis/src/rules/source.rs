//! Rules under a key of a Redis or Valkey server.
//!
//! ```text
//! tollgate:rules:{limits}            hash: version, store, sha256, bytes, pushed_at, by, format, text
//! tollgate:rules:{limits}:history    list: up to five earlier versions, the latest first
//! tollgate:rules:{limits}            channel: the version, after each push
//! ```
//! 1. A reader asks for `version` and `store`. Only if they changed, it asks for the length of the text, and then for the
//!    text. It never uses the content of a message.
//! 2. One script writes all fields, so a reader sees one push, never parts of two.

use std::error::Error;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::client::{Client, PlainClient};
use tollgate_protocol::Error as CallError;
use tollgate_rules::{Fetched, Format, Hint, RuleText, RulesError, Source, Version};

/// The maximum length of a name.
const MAX_NAME: usize = 100;

/// The rules that a Redis or Valkey server holds under a name. Pushes, reads and follows them.
///
/// A name holds the text of one file, so the rules of one domain, of at most 1 MiB. `RulesBuilder::follow` (feature
/// `watch`) loads the rules and follows the pushes. The program `tollgate rules push` and its companions use this type
/// too.
///
/// The methods block the thread. They send one to seven commands, and wait at most three seconds for each. Call them in
/// `spawn_blocking` if the thread belongs to an async runtime.
///
/// # Permissions
/// A reader needs the commands `HMGET` and `HSTRLEN` for the keys `tollgate:rules:*`, and `SUBSCRIBE` for the channels
/// `tollgate:rules:*` (in an ACL: `~tollgate:rules:* &tollgate:rules:* +hmget +hstrlen +subscribe +ping`). Without the
/// channels, it only polls. `push` also needs `EVAL`, `HSET`, `LPUSH`, `LTRIM`, `TIME` and `PUBLISH`. The
/// SHA-256 in the data finds damage, not forgery: every user who can write the keys can change the limits.
///
/// # Examples
/// ```no_run
/// use tollgate_redis::RedisRules;
/// use tollgate_rules::Format;
///
/// let shared = RedisRules::open("redis://127.0.0.1:6379/", "limits")?;
/// let seen = shared.pull()?.map_or(0, |present| present.version().as_number());
/// let text = std::fs::read_to_string("limits.yaml")?;
/// let version = shared.push(Format::Yaml, &text, "deploy", Some(seen))?;
/// assert_eq!(version, seen + 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RedisRules {
    pub(super) client: PlainClient,
    pub(super) key: String,
}

/// A version of the rules on a server.
#[derive(Clone)]
pub struct PushedRules {
    pub(super) version: Version,
    pub(super) format: Format,
    pub(super) text: String,
    pub(super) by: String,
    pub(super) pushed_at: SystemTime,
}

impl PushedRules {
    /// Returns the version.
    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the format of the text.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the name that the push gave.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// Returns the time of the push, by the server's clock.
    #[must_use]
    pub const fn pushed_at(&self) -> SystemTime {
        self.pushed_at
    }
}

impl fmt::Debug for PushedRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the text: its values may be customers' names and keys.
        f.debug_struct("PushedRules").field("version", &self.version).finish_non_exhaustive()
    }
}

impl RedisRules {
    /// Prepares the access to the rules with this name. Sends nothing. The address has the form that
    /// [`Client::open`](crate::Client::open) takes. It names one server; in a Cluster, the node that
    /// holds the key.
    ///
    /// # Errors
    /// If the address is invalid, or if the name is empty, longer than 100 bytes, or has a character other than ASCII
    /// letters, digits, `.`, `_` and `-`. The error does not contain the address, because an address can contain a
    /// password.
    pub fn open(url: &str, name: &str) -> Result<Self, RulesError> {
        Self::named(name, || PlainClient::open(url))
    }

    /// Prepares the access to the rules with this name at the server of a client, with the client's user, credentials,
    /// certificates and Sentinels. It makes connections of its own. Sends nothing.
    ///
    /// # Errors
    /// If the client is of a Cluster or of several servers, or if the name is invalid; see [`open`](Self::open).
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::{Client, CredentialsFile, RedisRules};
    ///
    /// let client = Client::open("redis://10.0.0.1")?.credentials(CredentialsFile::new("/run/secrets/redis"));
    /// let shared = RedisRules::of_client(&client, "limits")?;
    /// # let _ = shared;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of_client(client: &Client, name: &str) -> Result<Self, RulesError> {
        Self::named(name, || PlainClient::of_client(client))
    }

    fn named(
        name: &str,
        client: impl FnOnce() -> Result<PlainClient, CallError>,
    ) -> Result<Self, RulesError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_plain) {
            return Err(RulesError::new(format!(
                "the name {name:?} cannot be used: write 1 to {MAX_NAME} letters, digits, `.`, `_` or `-`"
            )));
        }
        let client = client().map_err(|error| RulesError::new(error.to_string()))?;
        Ok(Self { client, key: format!("tollgate:rules:{{{name}}}") })
    }

    /// Returns the rules on the server, or `None` if there are none.
    ///
    /// # Errors
    /// If the server cannot be reached, or if its data are damaged or larger than 1 MiB.
    pub fn pull(&self) -> Result<Option<PushedRules>, RulesError> {
        let raw = self.text().map_err(|why| self.error(&why))?;
        raw.map(Raw::check).transpose().map_err(|why| self.error(&replaceable(&why)))
    }

    /// Returns an error with the address and the key. Neither contains a password.
    pub(super) fn error(&self, why: &str) -> RulesError {
        RulesError::new(self.message(why))
    }

    pub(super) fn message(&self, why: &str) -> String {
        format!("rules in Redis at {}, key {}: {why}", self.client.address(), self.key)
    }

    /// Asks for the version and the store. `None` if there are no rules.
    fn head(&self) -> Result<Option<Version>, String> {
        let words: [&[u8]; 4] = [b"HMGET", self.key.as_bytes(), b"version", b"store"];
        let reply = self.client.run(&words).map_err(|error| error.to_string())?;
        match &reply[..] {
            [version, store] => version_of(version.as_deref(), store.as_deref()).map_err(replaceable),
            _ => Err("the reply has another form".to_owned()),
        }
    }

    /// Asks for the length of the text, and then for all fields.
    pub(super) fn text(&self) -> Result<Option<Raw>, String> {
        let run = |words: &[&[u8]]| self.client.run(words).map_err(|error| error.to_string());
        let key = self.key.as_bytes();
        let length = run(&[b"HSTRLEN", key, b"text"])?;
        let length = length.first().and_then(|field| whole(field.as_deref()?)).unwrap_or_default();
        // A text that is too long is not read: 1,000 processes may ask for it at once.
        let text: &[u8] = if length > RuleText::MAX_BYTES as u64 { b"-" } else { b"text" };
        let mut words: Vec<&[u8]> = vec![b"HMGET", key, text];
        words.extend(FIELDS.map(str::as_bytes));
        let mut reply = run(&words)?.into_iter();
        let text = reply.next().flatten();
        let fields: Vec<Option<Vec<u8>>> = reply.collect();
        let [version, store, ..] = &fields[..] else { return Err("the reply has another form".to_owned()) };
        let version = version_of(version.as_deref(), store.as_deref()).map_err(replaceable)?;
        Ok(version.map(|version| Raw { version, length, text, fields }))
    }
}

/// The fields of a version, without its text.
pub(super) const FIELDS: [&str; 6] = ["version", "store", "sha256", "format", "pushed_at", "by"];

/// The fields of a version as the server has them, unchecked.
pub(super) struct Raw {
    pub(super) version: Version,
    pub(super) length: u64,
    pub(super) text: Option<Vec<u8>>,
    /// The values of [`FIELDS`].
    pub(super) fields: Vec<Option<Vec<u8>>>,
}

impl Raw {
    /// Checks the length, the SHA-256, the format and the encoding.
    pub(super) fn check(self) -> Result<PushedRules, String> {
        let Self { version, length, text, fields } = self;
        if length > RuleText::MAX_BYTES as u64 {
            let most = RuleText::MAX_BYTES;
            return Err(format!("{version} has {length} bytes, and the maximum is {most}"));
        }
        let field = |at: usize| {
            let bytes = fields.get(at).and_then(Option::as_deref).unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        };
        let text = text.unwrap_or_default();
        if hex_sha256(&text) != field(2) {
            return Err(format!("the SHA-256 of {version} does not match its text"));
        }
        let format = field(3).parse().map_err(|error| format!("{version}: {error}"))?;
        let text = String::from_utf8(text).map_err(|_| format!("{version} is not UTF-8"))?;
        let seconds = field(4).parse().unwrap_or_default();
        let pushed_at = UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).unwrap_or(UNIX_EPOCH);
        Ok(PushedRules { version, format, text, by: field(5), pushed_at })
    }
}

/// Adds the remedy to the reason why the rules on a server cannot be used. A push compares versions first, and cannot
/// read this one, so it has to be forced.
pub(super) fn replaceable(why: &str) -> String {
    format!("{why}: replace the rules with `tollgate rules push --force`")
}

/// Returns the SHA-256 in hexadecimal digits.
pub(super) fn hex_sha256(text: &[u8]) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn whole(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Returns the version that two fields state, or `None` if both are missing.
pub(super) fn version_of(
    version: Option<&[u8]>,
    store: Option<&[u8]>,
) -> Result<Option<Version>, &'static str> {
    let (version, store) = match (version, store) {
        (None, None) => return Ok(None),
        (Some(version), Some(store)) => (version, store),
        _ => return Err("the field `version` or `store` is missing"),
    };
    match (whole(version), std::str::from_utf8(store)) {
        (Some(number), Ok(store)) => Ok(Some(Version::number(store, number))),
        _ => Err("the field `version` or `store` is invalid"),
    }
}

impl Source for RedisRules {
    fn name(&self) -> String {
        self.key.clone()
    }

    fn fetch(&mut self, known: Option<&Version>) -> Result<Fetched, Box<dyn Error + Send + Sync>> {
        let none = || self.message("there are no rules; write them with `tollgate rules push`");
        let head = self.head().map_err(|why| self.message(&why))?.ok_or_else(none)?;
        if known == Some(&head) {
            return Ok(Fetched::Unchanged);
        }
        let raw = self.text().map_err(|why| self.message(&why))?.ok_or_else(none)?;
        let version = raw.version.clone();
        Ok(match raw.check() {
            Ok(pushed) => Fetched::Text(
                RuleText::new(pushed.version, pushed.format, pushed.text).written_at(pushed.pushed_at),
            ),
            Err(why) => Fetched::Refused { version, why: self.message(&replaceable(&why)) },
        })
    }

    fn start_hints(&mut self, hint: Hint) {
        self.client.on_message(self.key.clone(), move || hint.poll_soon());
    }
}

/// The output contains no address.
impl fmt::Debug for RedisRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRules").field("key", &self.key).finish_non_exhaustive()
    }
}
