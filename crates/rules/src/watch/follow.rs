//! Follows a source of rules: polls it, and loads new versions.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{Clock, IntoClock};

use super::Watcher;
use super::loader::{Followed, Loader};
use super::signal::{ChangeSignal, Woken};
use crate::engine::{Rules, RulesBuilder, RulesError};
use crate::source::{Hint, RuleText, Source};

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

impl<C: IntoClock<Clock: Send + Sync + 'static>> RulesBuilder<C> {
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
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Fetched, Follow, Format, RuleText, Rules, Source, Version};
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
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[expect(clippy::type_complexity, reason = "a pair, and an error")]
    pub fn follow<S: Source>(
        self,
        follow: Follow<S>,
        mut loaded: impl FnMut(Result<Followed, RulesError>) + Send + 'static,
    ) -> Result<(Arc<Rules<C::Clock>>, Watcher), RulesError> {
        let rules = Arc::new(self.build());
        let mut follower = SourceFollower::new(follow);
        loaded(Ok(follower.first(&rules)?));
        let signal = Arc::new(ChangeSignal::default());
        let changed = Arc::clone(&signal);
        follower.source.start_hints(Hint::new(move || changed.notify(false, Vec::new())));
        let (waits, every) = (Arc::clone(&signal), follower.every);
        let wait = move || match waits.wait_hint(jittered(every), HINT_DELAY.min(every).mul_f64(random())) {
            Woken::Stopped => None,
            Woken::Changed { .. } => Some(None),
        };
        // The first poll has just been made.
        let mut is_first = true;
        let poll = move |rules: &Rules<C::Clock>| {
            if std::mem::take(&mut is_first) { None } else { follower.poll(rules) }
        };
        let watcher = Watcher::start("tollgate-rules", &rules, signal, poll, wait, loaded)
            .map_err(|error| RulesError::new(format!("the source of rules cannot be followed: {error}")))?;
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
    source: S,
    every: Duration,
    loader: Loader,
}

impl<S: Source> SourceFollower<S> {
    fn new(follow: Follow<S>) -> Self {
        let Follow { source, copy, every } = follow;
        let loader = Loader::new(source.name(), copy, RuleText::MAX_BYTES);
        Self { source, every, loader }
    }

    /// Loads the first rules, from the source or from the copy.
    fn first<C: Clock>(&mut self, rules: &Rules<C>) -> Result<Followed, RulesError> {
        let error = match self.poll(rules) {
            Some(Ok(followed)) => return Ok(followed),
            Some(Err(error)) => error,
            None => RulesError::new(format!("{}: the source gave no text", self.loader.name)),
        };
        if self.loader.copy.is_none() {
            return Err(RulesError::new(format!("{error}; to start without the source, set `Follow::copy`")));
        }
        self.loader.load_copy(rules, &error)?.ok_or_else(|| self.loader.unusable(&error, "does not exist"))
    }

    /// Fetches the text, and loads it if it is new. Returns what the callback must know.
    fn poll<C: Clock>(&mut self, rules: &Rules<C>) -> Option<Result<Followed, RulesError>> {
        let (source, seen) = (&mut self.source, self.loader.seen.as_ref());
        // The thread must continue if the source panics. The panic hook has reported the panic.
        let fetched = catch_unwind(AssertUnwindSafe(|| source.fetch(seen)))
            .unwrap_or_else(|_| Err(format!("{}: the source panicked", self.loader.name).into()));
        self.loader.take(rules, fetched)
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
