//! Loads rules again when their files change.
//!
//! ```text
//! system ──► events that matter ──► bell ──► one thread: what is watched, is it where the files are? ─► files other than before? ─► load
//! ```
//! An event only asks whether something has changed. What decides are the files' contents: who reads a file, touches it or writes
//! the same again causes no load. Places are watched first and files compared afterwards, so that no change falls between.

mod bell;
mod places;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use self::bell::{Bell, Woken};
use self::places::Places;
use super::engine::{LoadReport, Rules, RulesError};
use crate::base::clock::Clock;

/// How long until what could not be watched is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How often links may move while they are followed, before that is an error.
const ATTEMPTS: u32 = 8;

/// Watches the files of some rules, as long as it lives. Made by [`Rules::watch`].
///
/// To drop it waits for a load that is under way, and what is called after it; so do not hold a lock then that this takes. When it
/// is dropped, nothing is called any more and its thread has ended. It may be dropped by what it calls: then the thread ends when
/// that returns.
#[must_use = "files are watched as long as this lives"]
pub struct Watcher {
    bell: Arc<Bell>,
    /// `None` only while it is dropped.
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.bell.stop();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl<C: Clock + Send + Sync + 'static> Rules<C> {
    /// Loads the rules again whenever their files change, and calls `loaded` with how that went: what has changed, or why nothing has.
    ///
    /// Changes that follow each other within a fifth of a second are one; files that go on changing are loaded every two seconds.
    /// Only contents count: to read a file, touch it or write the same again is no change. What has changed since the files were
    /// read, before this was called, is loaded at once. A load that fails keeps the rules, as [`Rules::reload`] does.
    ///
    /// Files may be written in place, or replaced by others of their names, as editors do. They may be reached through links, which
    /// may move, as in Kubernetes' volumes. A file or its folder may go, which is a load that fails, and is noticed when it comes
    /// back.
    ///
    /// `loaded` is called by the watcher's own thread, which else sleeps until the system tells it of a change. If it panics, that is
    /// reported as of any thread, and watching goes on; not so in programs that abort when they panic. It is also called, once, if
    /// what is to be watched after a change cannot be; that is tried again every five seconds.
    ///
    /// The watcher does not keep the rules from being dropped. Watch the same rules once: of two watchers, only the first to see a
    /// change loads it and tells.
    ///
    /// # What is not noticed
    /// - A folder above the files' own that is renamed or replaced, or mounted over, until something happens to the files or links.
    /// - Changes that the system tells nobody of, as those by other machines on a network's file system.
    ///
    /// Where that may be, call [`Rules::reload`] from time to time.
    ///
    /// # Errors
    /// If the system cannot watch, or these rules were not read from files.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::rules::Rules;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.yaml");
    /// # std::fs::write(&path, "{ domain: d, descriptors: [] }")?;
    /// let rules = Arc::new(Rules::read(&path)?);
    /// let _watcher = Rules::watch(&rules, |loaded| match loaded {
    ///     Ok(report) => println!("limits are loaded: {report}"),
    ///     Err(error) => eprintln!("limits are as before: {error}"),
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(
        this: &Arc<Self>,
        loaded: impl FnMut(Result<LoadReport, RulesError>) + Send + 'static,
    ) -> Result<Watcher, RulesError> {
        let files = this.files();
        if files.is_empty() {
            return Err(RulesError::no_source());
        }
        let bell = Arc::new(Bell::default());
        let mut follower = Follower { files, bell: Arc::clone(&bell), watching: None };
        follower.follow(true)?;
        // Whoever watches does not keep the rules.
        let rules = Arc::downgrade(this);
        let thread = thread::Builder::new()
            .name("tollgate-watch".to_owned())
            .spawn(move || run(&rules, follower, loaded))
            .map_err(|error| RulesError::watch(&error.to_string()))?;
        Ok(Watcher { bell, thread: Some(thread) })
    }
}

fn run<C: Clock>(
    rules: &Weak<Rules<C>>,
    mut follower: Follower,
    mut loaded: impl FnMut(Result<LoadReport, RulesError>),
) {
    // A panic has been reported by its hook, and must not end the watching.
    let mut tell = |result| drop(catch_unwind(AssertUnwindSafe(|| loaded(result))));
    let mut retry = None;
    loop {
        // The rules are not kept while `loaded` is called.
        let Some(result) = rules.upgrade().map(|rules| rules.reload_if_changed()) else { return };
        if let Some(result) = result {
            tell(result);
        }
        let Woken::Changed { anew } = follower.bell.wait(retry) else { return };
        match follower.follow(anew) {
            Ok(()) => retry = None,
            Err(error) => {
                if retry.replace(RETRY).is_none() {
                    tell(Err(error));
                }
            }
        }
    }
}

/// Keeps watching where the files are.
struct Follower {
    files: Vec<PathBuf>,
    bell: Arc<Bell>,
    watching: Option<Watching>,
}

struct Watching {
    places: Arc<Places>,
    _watcher: RecommendedWatcher,
}

impl Follower {
    /// Watches where the files are now; all of it once more if `anew`.
    fn follow(&mut self, mut anew: bool) -> Result<(), RulesError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let places = Places::of(&self.files);
            // Also what has come or gone while watching began is watched by now.
            if !anew && self.watching.as_ref().is_some_and(|watching| *watching.places == places) {
                return Ok(());
            }
            // The old one is kept until there is another.
            match Watching::begin(places, &self.bell) {
                Ok(watching) => {
                    self.watching = Some(watching);
                    (anew, last) = (false, None);
                }
                // A folder may have gone since it was found.
                Err(error) => (anew, last) = (true, Some(error)),
            }
        }
        let why = last.map_or("links to them move too often".to_owned(), |error| error.to_string());
        Err(RulesError::watch(&why))
    }
}

impl Watching {
    fn begin(places: Places, bell: &Arc<Bell>) -> notify::Result<Self> {
        let places = Arc::new(places);
        let (concerned, bell) = (Arc::clone(&places), Arc::clone(bell));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if let Some(anew) = concerned.concerns(&event) {
                bell.ring(anew);
            }
        })?;
        for folder in &places.folders {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        for file in &places.files {
            // It may have gone, of which its folder tells.
            let _ = watcher.watch(file, RecursiveMode::NonRecursive);
        }
        Ok(Self { places, _watcher: watcher })
    }
}
