//! Writes rules to a server, and reads earlier versions.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use super::check_config;
use super::source::{FIELDS, PushedRules, Raw, RedisRules, hex_sha256, replaceable, version_of};
use tollgate_rules::{Config, Domain, Format, RuleText, RulesError};

/// Compares the version, and then writes all fields.
const SCRIPT: &str = include_str!("push.lua");

impl RedisRules {
    /// Writes a text as the next version. Returns that version's number. The text that it replaces moves to the history,
    /// which keeps five versions. To roll back, push an earlier text again.
    ///
    /// `seen` is the number of the version that the caller saw, or 0 if there were no rules. If another version has been
    /// pushed since, this is an error. `None` writes over any version. `by` says who pushes, for people who read it
    /// later; control characters become spaces, and at most 200 characters are kept.
    ///
    /// A text that lacks a domain with rules is written too. Processes in which the domain is in use refuse the new
    /// version unless [they may](tollgate_rules::RulesBuilder::allow_removals) remove it. `tollgate rules push` asks for a
    /// flag.
    ///
    /// # Errors
    /// In these cases, nothing is written:
    ///
    /// - The text has a problem or is longer than 1 MiB. It is checked with the code that readers use.
    /// - The version is not `seen`.
    /// - The server cannot be reached, or refuses the script. If the connection fails before the answer arrives, the
    ///   text may have been written.
    pub fn push(&self, format: Format, text: &str, by: &str, seen: Option<u64>) -> Result<u64, RulesError> {
        if text.len() > RuleText::MAX_BYTES {
            let (length, most) = (text.len(), RuleText::MAX_BYTES);
            return Err(RulesError::new(format!(
                "the text has {length} bytes, and the maximum is {most}: write fewer rules"
            )));
        }
        // The reader creates the stores too. The check of a rule has created a small store of the same kind.
        let config = Config::from_bytes("rules", format, text)?;
        check_config(&config)?;
        Domain::merge([config], false)?;
        let by: String = by.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
        let [seen_text, history] =
            [seen.map_or_else(|| "any".to_owned(), |seen| seen.to_string()), self.history()];
        let (length, format) = (text.len().to_string(), format.to_string());
        let (store, sha256) = (new_store(), hex_sha256(text.as_bytes()));
        let words = [
            "EVAL", SCRIPT, "2", &self.key, &history, &seen_text, &store, &sha256, &length, &by, &format,
            text,
        ];
        let reply =
            self.client.run(&words.map(str::as_bytes)).map_err(|error| self.error(&error.to_string()))?;
        let texts: Vec<String> = reply
            .into_iter()
            .map(|field| String::from_utf8_lossy(&field.unwrap_or_default()).into_owned())
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        match texts[..] {
            ["1", version] => version.parse().map_err(|_| self.error("the script's reply has another form")),
            ["0", present, by, _at] => {
                let seen = seen.unwrap_or_default();
                let what = match (seen, present) {
                    (seen, "0") => format!("version {seen} is gone, and there are no rules now"),
                    (0, present) => format!("there are rules already: version {present}, pushed by {by:?}"),
                    (seen, present) => {
                        format!("{by:?} pushed version {present}, and this push replaces version {seen}")
                    }
                };
                Err(self
                    .error(&format!("{what}; compare the texts with `tollgate rules diff`, then push again")))
            }
            _ => Err(self.error("the script's reply has another form")),
        }
    }

    /// Returns the version with this number: the present one, or one of the last five before it.
    ///
    /// # Errors
    /// If the server cannot be reached, or if this version is damaged. Also if the version is not found, and the number
    /// of another one is damaged.
    pub fn pull_version(&self, number: u64) -> Result<Option<PushedRules>, RulesError> {
        let wanted = |raw: Raw| match raw.version.as_number() == number {
            true => raw.check().map(Some),
            false => Ok(None),
        };
        // Damage of one version must not hide the others.
        let mut unread = None;
        match self.text() {
            Ok(present) => {
                let present = present.map_or(Ok(None), wanted);
                let present = present.map_err(|why| self.error(&replaceable(&why)))?;
                if present.is_some() {
                    return Ok(present);
                }
            }
            Err(why) => unread = Some(self.error(&why)),
        }
        let history = self.history();
        // One entry at a time: each may have 1 MiB.
        for at in 0..5_u8 {
            let at = at.to_string();
            let words = ["LINDEX", &history, &at].map(str::as_bytes);
            let reply = self.client.run(&words).map_err(|error| self.error(&error.to_string()))?;
            let Some(entry) = reply.into_iter().next().flatten() else { break };
            let damaged = |why: &str| self.error(&format!("the history is damaged: {why}"));
            match earlier(&entry) {
                Ok(earlier) => {
                    let earlier = wanted(earlier).map_err(|why| damaged(&why))?;
                    if earlier.is_some() {
                        return Ok(earlier);
                    }
                }
                Err(why) => unread = Some(damaged(why)),
            }
        }
        unread.map_or(Ok(None), Err)
    }

    fn history(&self) -> String {
        format!("{}:history", self.key)
    }
}

/// Reads an entry of the history: a line for each of [`FIELDS`], and the text.
fn earlier(entry: &[u8]) -> Result<Raw, &'static str> {
    let mut lines = entry.splitn(FIELDS.len() + 1, |&byte| byte == b'\n').map(<[u8]>::to_vec);
    let fields: Vec<_> = lines.by_ref().take(FIELDS.len()).map(Some).collect();
    let (Some(text), [version, store, ..]) = (lines.next(), &fields[..]) else {
        return Err("an entry has too few lines");
    };
    let version = version_of(version.as_deref(), store.as_deref())?.ok_or("an entry has no version")?;
    Ok(Raw { version, length: text.len() as u64, text: Some(text), fields })
}

/// Returns a random name for new data. Two lives of the data must differ; nothing depends on its secrecy.
fn new_store() -> String {
    let random = || RandomState::new().build_hasher().finish();
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    hex_sha256(format!("{:x}{:x}{:x}{}", random(), random(), time.as_nanos(), std::process::id()).as_bytes())
        [..32]
        .to_owned()
}
