//! Follows a source of rules: polls it, loads new versions, and keeps the last good copy.
//!
//! | the source has | then |
//! |---|---|
//! | a higher version in the same store, or another tag | it is loaded |
//! | a version of another store | it is loaded, with a warning: the data were lost or replaced |
//! | a lower version in the same store | the rules stay |
//! | a text that is refused | the rules stay; it is not fetched again until the version changes |
//! | nothing, or no answer | the rules stay |

use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::bell::{Bell, Woken};
use super::{Watcher, copy};
use crate::base::clock::{Clock, QuantaClock};
use crate::edge::rules::config::Config;
use crate::edge::rules::engine::{LoadReport, Rules, RulesBuilder, RulesError};
use crate::edge::rules::source::{Fetched, Hint, MAX_BYTES, Order, RuleText, Source, Version, hex_sha256};

/// The longest delay of the poll after a hint.
const HINT_DELAY: Duration = Duration::from_secs(2);

/// A source of rules, and how to follow it. Pass it to [`RulesBuilder::follow`].
#[derive(Clone, Debug)]
#[must_use = "the source is followed after it is passed to `RulesBuilder::follow`"]
pub struct Follow<S> {
    source: S,
    copy: Option<PathBuf>,
    every: Duration,
}

impl<S: Source> Follow<S> {
    /// Follows this source, without a last good copy.
    pub const fn new(source: S) -> Self {
        Self { source, copy: None, every: Duration::from_secs(5) }
    }

    /// Keeps the last good copy in this file. If the source gives no usable rules at the start, the process starts with
    /// the copy. Each version that is loaded replaces the copy. Default: no copy, so the start fails.
    ///
    /// Give each process and each source a path of its own. The folder must exist and be writable. On Unix, the file has
    /// mode 0600. A copy is refused if another user can write it or if it is damaged. On Linux, it is also refused if it
    /// belongs to another user, except root.
    pub fn copy(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy = Some(path.into());
        self
    }

    /// Sets the time between two polls. Each one varies by a fifth, at random. Default: 5 s. Times below 100 ms count as
    /// 100 ms, and times above one hour as one hour.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.clamp(Duration::from_millis(100), Duration::from_secs(3_600));
        self
    }
}

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

impl RulesBuilder {
    /// Does what [`RulesBuilder::follow`] does for a builder with a clock, with the default clock.
    ///
    /// # Errors
    /// If the source gives no rules that can be used, and there is no copy that can be used.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Fetched, Follow, Format, RuleText, Rules, Source, Version};
    ///
    /// struct Fixed;
    ///
    /// impl Source for Fixed {
    ///     fn name(&self) -> String {
    ///         "fixed rules".to_owned()
    ///     }
    ///
    ///     fn fetch(&mut self, _: Option<&Version>) -> Result<Fetched, Box<dyn std::error::Error + Send + Sync>> {
    ///         let text = "{ domain: shop, descriptors: [ { key: user, rate_limit: { unit: day, requests_per_unit: 9 } } ] }";
    ///         Ok(Fetched::Text(RuleText::new(Version::number("main", 1), Format::Yaml, text)))
    ///     }
    /// }
    ///
    /// let (rules, _watcher) = Rules::builder().follow(Follow::new(Fixed), |loaded| match loaded {
    ///     Ok(followed) => println!("limits are loaded: {followed}"),
    ///     Err(error) => eprintln!("limits are as before: {error}"),
    /// })?;
    /// assert_eq!(rules.reloads().version, 1);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn follow<S: Source>(
        self,
        follow: Follow<S>,
        loaded: impl FnMut(Result<Followed, RulesError>) + Send + 'static,
    ) -> Result<(Arc<Rules>, Watcher), RulesError> {
        self.clock(QuantaClock::new()).follow(follow, loaded)
    }
}

impl<C: Clock + Send + Sync + 'static> RulesBuilder<C> {
    /// Loads rules from a source, and loads each new version as long as the [`Watcher`] exists.
    ///
    /// The source is polled every five seconds, and soon after each hint of the source. A version replaces the rules in
    /// force if its text is correct and its number is higher, as with [`Rules::replace`]. In all other cases the rules
    /// in force stay: the source does not answer, it has no rules, its text is refused, or its version is lower. A text
    /// that was refused is not fetched again until the version changes. A version of another store is loaded with a
    /// warning.
    ///
    /// `loaded` is called with each version that was loaded, and once with each error. The first call has the first
    /// version, before this method returns. Later calls are made by the watcher's thread; see [`Watcher`].
    /// [`Rules::reloads`] has the version, and whether the source fails.
    ///
    /// This method blocks the thread until the source has answered once.
    ///
    /// # Errors
    /// If the source gives no rules that can be used, and there is no [copy](Follow::copy) that can be used. Also if the
    /// system cannot start a thread.
    pub fn follow<S: Source>(
        self,
        follow: Follow<S>,
        mut loaded: impl FnMut(Result<Followed, RulesError>) + Send + 'static,
    ) -> Result<(Arc<Rules<C>>, Watcher), RulesError> {
        let rules = Arc::new(self.build());
        let mut follower = SourceFollower::new(follow);
        loaded(Ok(follower.first(&rules)?));
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        follower.follow.source.start_hints(Hint::new(move || rung.ring(false)));
        let (waits, every) = (Arc::clone(&bell), follower.follow.every);
        let wait = move || match waits.wait_hint(jittered(every), HINT_DELAY.min(every).mul_f64(random())) {
            Woken::Stopped => None,
            Woken::Changed { .. } => Some(None),
        };
        // The first poll has just been made.
        let mut is_first = true;
        let poll = move |rules: &Rules<C>| {
            if std::mem::take(&mut is_first) { None } else { follower.poll(rules) }
        };
        let watcher =
            Watcher::start("tollgate-rules", &rules, bell, poll, wait, loaded).map_err(|error| {
                RulesError::source(format!("the source of rules cannot be followed: {error}"))
            })?;
        Ok((rules, watcher))
    }
}

/// Returns a random number from 0 to 1. Processes must differ; nothing depends on its quality.
fn random() -> f64 {
    let bits = RandomState::new().build_hasher().finish() >> 32;
    f64::from(u32::try_from(bits).unwrap_or_default()) / f64::from(u32::MAX)
}

/// Four to six fifths of a time.
fn jittered(every: Duration) -> Duration {
    every.mul_f64(0.8 + 0.4 * random())
}

struct SourceFollower<S> {
    follow: Follow<S>,
    name: String,
    /// The version in force, and the SHA-256 of its text.
    in_force: Option<(Version, String)>,
    /// The last version that was fetched, also if it was refused.
    seen: Option<Version>,
    /// Why `seen` is not in force.
    refused: Option<RulesError>,
    /// The error that was last passed to the callback, so that it is not passed again at each poll.
    told: Option<String>,
}

impl<S: Source> SourceFollower<S> {
    fn new(follow: Follow<S>) -> Self {
        let name = follow.source.name();
        Self { follow, name, in_force: None, seen: None, refused: None, told: None }
    }

    /// Loads the first rules, from the source or from the copy.
    fn first<C: Clock>(&mut self, rules: &Rules<C>) -> Result<Followed, RulesError> {
        let error = match self.poll(rules) {
            Some(Ok(followed)) => return Ok(followed),
            Some(Err(error)) => error,
            None => RulesError::source(format!("{}: the source gave no text", self.name)),
        };
        let Some(path) = self.follow.copy.clone() else {
            return Err(RulesError::source(format!(
                "{error}; to start without the source, set `Follow::copy`"
            )));
        };
        let unusable = |why: &str| {
            RulesError::source(format!("{error}; and the last good copy {} {why}", path.display()))
        };
        let (text, time) = copy::read(&path, &self.name)
            .map_err(|why| unusable(&format!("cannot be used: {why}")))?
            .ok_or_else(|| unusable("does not exist"))?;
        let version = text.version.clone();
        let report = self.load(rules, text).map_err(|why| unusable(&format!("cannot be used: {why}")))?;
        // If the source has a version that was refused, that version remains the last one seen.
        self.seen.get_or_insert_with(|| version.clone());
        rules.note_poll(self.refused.is_some(), Some(&error));
        let age = SystemTime::now().duration_since(time).unwrap_or_default();
        let warning = format!(
            "these rules are from the last good copy {}, which is {} old, because the source gave none: {error}",
            path.display(),
            rounded(age),
        );
        Ok(Followed { version, report, warnings: vec![warning] })
    }

    /// Fetches the text, and loads it if it is new. Returns what the callback must know.
    fn poll<C: Clock>(&mut self, rules: &Rules<C>) -> Option<Result<Followed, RulesError>> {
        let (source, seen) = (&mut self.follow.source, self.seen.as_ref());
        // The thread must continue if the source panics. The panic hook has reported the panic.
        let fetched = catch_unwind(AssertUnwindSafe(|| source.fetch(seen)))
            .unwrap_or_else(|_| Err(format!("{}: the source panicked", self.name).into()));
        match fetched {
            Err(error) => {
                let error = RulesError::source(error.to_string());
                rules.note_poll(false, Some(&error));
                let text = Some(error.to_string());
                let is_new = self.told != text;
                self.told = text;
                is_new.then_some(Err(error))
            }
            Ok(Fetched::Unchanged) => {
                self.told = None;
                rules.note_poll(true, self.refused.as_ref());
                None
            }
            Ok(Fetched::Refused { version, why }) => {
                self.seen = Some(version);
                let error = rules.replace_by(|| Err(RulesError::source(why))).err()?;
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
                    (self.refused, self.told) = (None, None);
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
                let error = RulesError::source(format!(
                    "{}: {version} {how} {in_force}, which is in force and stays: the data are probably from a backup; \
                     to replace the rules in force, delete the data and write the rules again",
                    self.name
                ));
                return Some(Err(self.refuse(rules, error)));
            }
        }
        let kept = self.follow.copy.is_some().then(|| text.clone());
        let report = match self.load(rules, text) {
            Ok(report) => report,
            Err(error) => return Some(Err(self.refuse(rules, error))),
        };
        (self.refused, self.told) = (None, None);
        rules.note_poll(true, None);
        if let (Some(path), Some(text)) = (&self.follow.copy, kept)
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
            if bytes.len() > MAX_BYTES {
                let length = bytes.len();
                return Err(RulesError::source(format!(
                    "{}: {version} has {length} bytes, and the maximum is {MAX_BYTES}: write fewer rules",
                    self.name
                )));
            }
            Ok(Config::from_bytes(&self.name, format, bytes)?)
        })?;
        rules.note_version(version.as_number(), written_at);
        self.in_force = Some((version, sha256));
        Ok(report)
    }

    /// Remembers why the last version is not in force.
    fn refuse<C: Clock>(&mut self, rules: &Rules<C>, error: RulesError) -> RulesError {
        rules.note_poll(true, Some(&error));
        self.told = None;
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn polls_vary_by_a_fifth() {
        let every = Duration::from_secs(5);
        let polls: Vec<Duration> = (0..1_000).map(|_| jittered(every)).collect();
        assert!(polls.iter().all(|poll| (4_000..=6_000).contains(&poll.as_millis())));
        assert!(polls.iter().any(|poll| poll.as_millis() < 4_500));
        assert!(polls.iter().any(|poll| poll.as_millis() > 5_500));
    }
}
