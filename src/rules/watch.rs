//! Loads rules again when their files change.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use notify_debouncer_mini::notify::{RecommendedWatcher, RecursiveMode};
use notify_debouncer_mini::{DebounceEventResult, Debouncer, new_debouncer};

use super::{Rules, RulesError};
use crate::clock::Clock;

/// How long nothing may happen to a file before it is read.
const QUIET: Duration = Duration::from_millis(200);

/// Watches the files of some rules, as long as it lives. Made by [`Rules::watch`].
#[must_use = "files are watched as long as this lives"]
pub struct Watcher {
    _debouncer: Debouncer<RecommendedWatcher>,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}

impl<C: Clock + Send + Sync + 'static> Rules<C> {
    /// Loads the rules again whenever their files change, and calls `loaded` with how that went.
    ///
    /// Changes that follow each other within a fifth of a second are one. What is watched are the folders of the files, so that a
    /// file may be replaced by another of its name, as editors do, or be reached through a link that moves, as in Kubernetes'
    /// volumes. A load that fails keeps the rules, as [`Rules::reload`] does.
    ///
    /// This takes a thread, which sleeps until the system tells it of a change.
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
    ///     Ok(()) => println!("limits are loaded"),
    ///     Err(error) => eprintln!("limits are as before: {error}"),
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn watch(
        this: &Arc<Self>,
        mut loaded: impl FnMut(Result<(), RulesError>) + Send + 'static,
    ) -> Result<Watcher, RulesError> {
        let files = this.loading.lock().unwrap_or_else(PoisonError::into_inner).files.clone();
        if files.is_empty() {
            return Err(RulesError::no_source());
        }
        let watched = Watched::new(&files);
        // Whoever watches does not keep the rules.
        let rules: Weak<Self> = Arc::downgrade(this);
        let folders = watched.folders.clone();
        let on_events = move |events: DebounceEventResult| {
            let concerns = match &events {
                Ok(events) => events.iter().any(|event| watched.concerns(&event.path)),
                // Something was missed.
                Err(_) => true,
            };
            if concerns && let Some(rules) = rules.upgrade() {
                loaded(rules.reload());
            }
        };
        let cannot = |error: &notify_debouncer_mini::notify::Error| RulesError::watch(&error.to_string());
        let mut debouncer = new_debouncer(QUIET, on_events).map_err(|error| cannot(&error))?;
        for folder in folders {
            debouncer
                .watcher()
                .watch(&folder, RecursiveMode::NonRecursive)
                .map_err(|error| cannot(&error))?;
        }
        Ok(Watcher { _debouncer: debouncer })
    }
}

/// Which events matter.
#[derive(Debug)]
struct Watched {
    folders: HashSet<PathBuf>,
    names: HashSet<OsString>,
}

impl Watched {
    fn new(files: &[PathBuf]) -> Self {
        let folder = |file: &Path| match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        Self {
            folders: files.iter().map(|file| folder(file)).collect(),
            names: files.iter().filter_map(|file| file.file_name()).map(ToOwned::to_owned).collect(),
        }
    }

    /// A file of one of the names; or the link `..data`, by which Kubernetes replaces all files of a volume at once.
    fn concerns(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.contains(name) || name == "..data")
    }
}
