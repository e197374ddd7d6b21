//! Loads what a source gives, and keeps the last good copy. The same for sources that are polled and for pushed texts.
//!
//! | the source has | then |
//! |---|---|
//! | a higher version in the same store, or another tag | it is loaded |
//! | a version of another store | it is loaded, with a warning: the data were lost or replaced |
//! | a lower version in the same store | the rules stay |
//! | a text that is refused | the rules stay; it is not fetched again until the version changes |
//! | nothing, or no answer | the rules stay |

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tollgate::Clock;
use tollgate_config::Config;

use super::copy::{self, hex_sha256};
use crate::engine::{LoadReport, Rules, RulesError};
use crate::source::{Fetched, Order, RuleText, Version};

/// A version that was loaded from a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Followed {
    version: Version,
    report: LoadReport,
    warnings: Vec<String>,
}

impl Followed {
    /// Returns the version.
    #[must_use]
    pub const fn version(&self) -> &Version {
        &self.version
    }

    /// Returns the changes of the load.
    #[must_use]
    pub const fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Returns what an operator should know, although the rules were loaded: for example that they come from the last
    /// good copy.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Followed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.version, self.report)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}

/// Decides which texts come into force.
pub(super) struct Loader {
    /// The name of the source.
    pub(super) name: String,
    /// Where the last good copy is.
    pub(super) copy: Option<PathBuf>,
    /// The longest text, in bytes.
    most: usize,
    /// The version in force, and the SHA-256 of its text.
    in_force: Option<(Version, String)>,
    /// The last version that was fetched, also if it was refused.
    pub(super) seen: Option<Version>,
    /// Why `seen` is not in force.
    refused: Option<RulesError>,
    /// The error that was last passed to the callback, so that it is not passed again at each poll.
    reported: Option<String>,
}

impl Loader {
    pub(super) fn new(name: String, copy: Option<PathBuf>, most: usize) -> Self {
        Self { name, copy, most, in_force: None, seen: None, refused: None, reported: None }
    }

    /// The error of a copy that cannot be used, although the source gave no rules.
    pub(super) fn unusable(&self, error: &RulesError, why: &str) -> RulesError {
        let path = self.copy.as_deref().unwrap_or(Path::new("")).display();
        RulesError::new(format!("{error}; and the last good copy {path} {why}"))
    }

    /// Loads the copy, because the source gave no rules. `None` if there is no copy.
    pub(super) fn load_copy<C: Clock>(
        &mut self,
        rules: &Rules<C>,
        error: &RulesError,
    ) -> Result<Option<Followed>, RulesError> {
        let Some(path) = self.copy.clone() else { return Ok(None) };
        let read = copy::read(&path, &self.name, self.most)
            .map_err(|why| self.unusable(error, &format!("cannot be used: {why}")))?;
        let Some((text, time)) = read else { return Ok(None) };
        let version = text.version.clone();
        let report =
            self.load(rules, text).map_err(|why| self.unusable(error, &format!("cannot be used: {why}")))?;
        // If the source has a version that was refused, that version remains the last one seen.
        self.seen.get_or_insert_with(|| version.clone());
        rules.note_poll(self.refused.is_some(), Some(error));
        let age = SystemTime::now().duration_since(time).unwrap_or_default();
        let warning = format!(
            "these rules are from the last good copy {}, which is {} old, because the source gave none: {error}",
            path.display(),
            rounded(age),
        );
        Ok(Some(Followed { version, report, warnings: vec![warning] }))
    }

    /// Takes the answer of the source, and loads its text if it is new. Returns what an operator must know.
    pub(super) fn take<C: Clock>(
        &mut self,
        rules: &Rules<C>,
        fetched: Result<Fetched, Box<dyn Error + Send + Sync>>,
    ) -> Option<Result<Followed, RulesError>> {
        match fetched {
            Err(error) => {
                let error = RulesError::new(error.to_string());
                rules.note_poll(false, Some(&error));
                let text = Some(error.to_string());
                let is_new = self.reported != text;
                self.reported = text;
                is_new.then_some(Err(error))
            }
            Ok(Fetched::Unchanged) => {
                self.reported = None;
                rules.note_poll(true, self.refused.as_ref());
                None
            }
            Ok(Fetched::Refused { version, why }) => {
                self.seen = Some(version);
                let error = rules.replace_by(|| Err(RulesError::new(why))).err()?;
                Some(Err(self.refuse(rules, error)))
            }
            Ok(Fetched::Text(text)) => self.newer(rules, text),
        }
    }

    /// Loads a text if its version may replace the version in force.
    fn newer<C: Clock>(&mut self, rules: &Rules<C>, text: RuleText) -> Option<Result<Followed, RulesError>> {
        let version = text.version.clone();
        self.seen = Some(version.clone());
        let mut warnings = Vec::new();
        if let Some((in_force, sha256)) = &self.in_force {
            let stale = match version.compare_to(in_force) {
                Order::Newer => None,
                Order::Same if hex_sha256(&text.bytes) == *sha256 => {
                    (self.refused, self.reported) = (None, None);
                    rules.note_poll(true, None);
                    return None;
                }
                Order::Same => Some("has another text than the"),
                Order::Older => Some("is older than"),
                Order::OtherStore => {
                    let (name, store, before) = (&self.name, version.store(), in_force.store());
                    warnings.push(format!(
                        "{name}: the data were lost or replaced: {version} of store {store} follows {in_force} of store {before}"
                    ));
                    None
                }
            };
            // Old data may have been restored, and then new versions get old numbers.
            if let Some(how) = stale {
                let error = RulesError::new(format!(
                    "{}: {version} {how} {in_force}, which is in force and stays: the data are probably from a backup; \
                     to replace the rules in force, delete the data and write the rules again",
                    self.name
                ));
                return Some(Err(self.refuse(rules, error)));
            }
        }
        let kept = self.copy.is_some().then(|| text.clone());
        let report = match self.load(rules, text) {
            Ok(report) => report,
            Err(error) => return Some(Err(self.refuse(rules, error))),
        };
        (self.refused, self.reported) = (None, None);
        rules.note_poll(true, None);
        if let (Some(path), Some(text)) = (&self.copy, kept)
            && let Err(error) = copy::write(path, &self.name, &text)
        {
            warnings.push(format!("the last good copy {} cannot be written: {error}", path.display()));
        }
        Some(Ok(Followed { version, report, warnings }))
    }

    /// Puts a text in force.
    fn load<C: Clock>(&mut self, rules: &Rules<C>, text: RuleText) -> Result<LoadReport, RulesError> {
        let RuleText { version, format, bytes, written_at } = text;
        let sha256 = hex_sha256(&bytes);
        let report = rules.replace_by(|| {
            let (length, most) = (bytes.len(), self.most);
            if length > most {
                return Err(RulesError::new(format!(
                    "{}: {version} has {length} bytes, and the maximum is {most}: write fewer rules",
                    self.name
                )));
            }
            Ok(Config::all_from_bytes(&self.name, format, bytes)?)
        })?;
        rules.note_version(version.as_number(), written_at);
        self.in_force = Some((version, sha256));
        Ok(report)
    }

    /// Remembers why the last version is not in force.
    fn refuse<C: Clock>(&mut self, rules: &Rules<C>, error: RulesError) -> RulesError {
        rules.note_poll(true, Some(&error));
        self.reported = None;
        self.refused = Some(error.clone());
        error
    }
}

/// Writes a time in its largest whole unit: `3 h`.
fn rounded(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
