//! Reloads rules when their files change (this module), when another source changes (`follow`), or when the program
//! pushes a text (`pushed`).
//!
//! ```text
//! system ──► relevant events ──► signal ──► one thread: are the watches at the right places? ─► new contents? ─► load
//! ```
//! 1. An event only starts a comparison. The files' contents decide, so reading a file, touching it, or writing the
//!    same contents again causes no load.
//! 2. The thread first sets up the watches and then compares the files, so it misses no change in between.
//! 3. A part of a file must not come into force. A file that is being written counts as it was before, and a load that
//!    removes rules needs two readings.

mod copy;
mod follow;
mod loader;
mod places;
mod pushed;
mod signal;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tollgate::Clock;

pub use self::follow::Follow;
pub use self::loader::Followed;
use self::places::{Places, written};
pub use self::pushed::Pushed;
use self::signal::{ChangeSignal, Woken};
use super::engine::{FileCheck, LoadReport, Rules, RulesError};

/// The time after which a failed watch is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// How often links may move while they are followed, before this is an error.
const ATTEMPTS: u32 = 8;

/// Watches the files or the source of some rules as long as it exists. Created by [`Rules::watch`] and
/// [`RulesBuilder::follow`](crate::RulesBuilder::follow).
///
/// Dropping the watcher waits for a poll and a load in progress, and for the callback after them. Do not hold a lock that the
/// callback takes. After the drop, the callback is not called any more, and the watcher's thread has ended. The
/// callback itself may drop the watcher; the thread then ends when the callback returns.
#[must_use = "files and sources are watched as long as this lives"]
pub struct Watcher {
    signal: Arc<ChangeSignal>,
    /// `None` only during the drop.
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.signal.stop();
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
    /// Reloads the rules whenever their files change, and calls `loaded` with the result: the changes, or the error.
    ///
    /// Changes that follow each other within a fifth of a second cause one load, which begins at most half a second after
    /// the first of them. So files that keep changing are loaded two to five times a second. Each change is in force
    /// within a second if a load takes less than half a second, or less than 0.4 s for a file that is written in place.
    /// Only contents count: reading a file, touching it, or writing the same contents again causes no load. If the files
    /// changed between the last read and this call, they are loaded immediately. If a load fails, the previous rules
    /// stay, as with [`Rules::reload`].
    ///
    /// Programs may write the files in place or replace them with files of the same name, as editors do. A file that is
    /// written in place counts as it was before, until the writes have stopped for a fifth of a second, because a part
    /// of it has only a part of the rules. The other files do not wait for it. If this takes longer than ten seconds,
    /// `loaded` is called once with an error. A program may also pause while it writes. So before rules are removed, the
    /// files are read a second time, a fifth to half a second later, and the rules are removed if they are missing again.
    /// A file that is renamed to its name is whole at any time.
    ///
    /// The path may contain links, and the links may move, as in Kubernetes volumes. If a file or its folder disappears,
    /// the load fails; the watcher notices when it returns.
    ///
    /// The watcher's own thread calls `loaded`. The thread otherwise sleeps until the system reports a change. If
    /// `loaded` panics, the panic hook reports it and watching continues, except in programs that abort on panic. The
    /// thread also calls `loaded` once with an error if it cannot watch the files after a change; it tries again every
    /// five seconds.
    ///
    /// The watcher does not keep the rules alive. Watch the same rules once: with two watchers, only the first one to
    /// see a change loads it and calls its `loaded`.
    ///
    /// # Limitations
    /// The watcher does not notice:
    /// - The rename, replacement or mount of a folder above the files' own folder, until the next event on the files or
    ///   links.
    /// - Changes that the system does not report, such as changes by other machines on a network file system.
    ///
    /// If these can happen, call [`Rules::reload`] from time to time.
    ///
    /// # Errors
    /// If the system cannot watch files, or if these rules were not read from files.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use tollgate_rules::Rules;
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
        let signal = Arc::new(ChangeSignal::default());
        let mut follower = Follower { files, signal: Arc::clone(&signal), watching: None };
        follower.follow(true)?;
        let mut retry = None;
        let wait = move || match follower.signal.wait(retry) {
            Woken::Stopped => None,
            Woken::Changed { rewatch, endless } => Some(match follower.follow(rewatch) {
                Ok(()) => {
                    retry = None;
                    endless.map(|file| RulesError::endless(&file))
                }
                Err(error) => retry.replace(RETRY).is_none().then_some(error),
            }),
        };
        let noticed = Arc::clone(&signal);
        let poll = move |rules: &Self| {
            let has_writes = noticed.has_writes();
            let is_written = |file: &Path| {
                has_writes && Places::of_file(file).is_some_and(|place| noticed.is_written(&place))
            };
            let look = rules.reload_if_changed(is_written);
            // An answer may be in use for long, and the next load may come after days.
            if rules.free_unless_kept() {
                noticed.look_again();
            }
            match look {
                FileCheck::Unchanged => None,
                FileCheck::RulesMissing => {
                    // The second reading must not wait for the next event.
                    noticed.notify(false, Vec::new());
                    None
                }
                FileCheck::Loaded(result) => Some(result),
            }
        };
        Watcher::start("tollgate-watch", this, signal, poll, wait, loaded)
            .map_err(|error| RulesError::watch(&error.to_string()))
    }
}

impl Watcher {
    /// Starts a thread that polls, and calls `loaded` with the result, until `wait` returns `None`. `wait` may return an
    /// error for `loaded`.
    fn start<C: Clock + Send + Sync + 'static, T>(
        name: &str,
        rules: &Arc<Rules<C>>,
        signal: Arc<ChangeSignal>,
        mut poll: impl FnMut(&Rules<C>) -> Option<Result<T, RulesError>> + Send + 'static,
        mut wait: impl FnMut() -> Option<Option<RulesError>> + Send + 'static,
        mut loaded: impl FnMut(Result<T, RulesError>) + Send + 'static,
    ) -> std::io::Result<Self> {
        // The watcher does not keep the rules alive.
        let rules: Weak<Rules<C>> = Arc::downgrade(rules);
        let run = move || {
            // The panic hook has reported the panic, and watching must continue.
            let mut report = |result| drop(catch_unwind(AssertUnwindSafe(|| loaded(result))));
            loop {
                // The thread holds no reference to the rules while it calls `loaded`.
                let Some(result) = rules.upgrade().map(|rules| poll(&rules)) else { return };
                if let Some(result) = result {
                    report(result);
                }
                match wait() {
                    None => return,
                    Some(None) => {}
                    Some(Some(error)) => report(Err(error)),
                }
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { signal, thread: Some(thread) })
    }
}

/// Keeps the watches at the places of the files.
struct Follower {
    files: Vec<PathBuf>,
    signal: Arc<ChangeSignal>,
    watching: Option<Watching>,
}

struct Watching {
    places: Arc<Places>,
    _watcher: RecommendedWatcher,
}

impl Follower {
    /// Watches the current places of the files. With `rewatch`, sets up all watches again.
    fn follow(&mut self, mut rewatch: bool) -> Result<(), RulesError> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            let places = Places::of(&self.files);
            // This also covers places that appeared or disappeared during the set-up.
            if !rewatch && self.watching.as_ref().is_some_and(|watching| *watching.places == places) {
                return Ok(());
            }
            // The old watcher stays until a new one exists.
            match Watching::begin(places, &self.signal) {
                Ok(watching) => {
                    self.watching = Some(watching);
                    (rewatch, last) = (false, None);
                }
                // A folder may have disappeared since it was found.
                Err(error) => (rewatch, last) = (true, Some(error)),
            }
        }
        let why = last.map_or("links to them move too often".to_owned(), |error| error.to_string());
        Err(RulesError::watch(&why))
    }
}

impl Watching {
    fn begin(places: Places, signal: &Arc<ChangeSignal>) -> notify::Result<Self> {
        let places = Arc::new(places);
        let (concerned, signal) = (Arc::clone(&places), Arc::clone(signal));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            if let Some(rewatch) = concerned.concerns(&event) {
                signal.notify(rewatch, written(event));
            }
        })?;
        for folder in &places.folders {
            watcher.watch(folder, RecursiveMode::NonRecursive)?;
        }
        for file in &places.files {
            // The place may no longer exist; its parent folder reports that.
            let _ = watcher.watch(file, RecursiveMode::NonRecursive);
        }
        Ok(Self { places, _watcher: watcher })
    }
}
