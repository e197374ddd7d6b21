//! The places to watch for files, and for all links on the path to them.

use std::collections::{BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use tollgate_config::{has_rules, rule_files};

/// The maximum number of links on the path to a file. Linux has the same limit.
const MAX_LINKS: usize = 40;

/// A place where a relevant event may happen.
///
/// ```text
/// /etc/limits.yaml ──► ..data/limits.yaml      folder /etc for the names `limits.yaml` and `..data`,
/// /etc/..data ──► ..2026                       folder /etc/..2026 for the name `limits.yaml`,
///                                              and the file itself: it may have other names, or be a separate mount
/// ```
/// If the path is a folder, the events of all files with rules in it matter, and of the files that its links lead to.
/// If a path does not exist, the nearest existing folder above it is watched for the name of the missing part.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Places {
    pub(super) folders: BTreeSet<PathBuf>,
    pub(super) files: BTreeSet<PathBuf>,
    /// The folders in which every file with rules matters, also one that appears later.
    whole: BTreeSet<PathBuf>,
    names: HashSet<OsString>,
}

impl Places {
    /// `paths` are files and folders.
    pub(super) fn of(paths: &[PathBuf]) -> Self {
        let mut places = Self::default();
        // The files in folders, whose links may lead elsewhere.
        let files = rule_files(paths).unwrap_or_default();
        for path in paths.iter().chain(&files) {
            // Relative to the current folder, as for programs that open the path.
            places.add(&std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        }
        places
    }

    /// Returns the place of a file, behind all links.
    pub(super) fn of_file(file: &Path) -> Option<PathBuf> {
        Self::of(&[file.to_owned()]).files.pop_first()
    }

    fn add(&mut self, file: &Path) {
        let mut rest = backwards(file);
        let mut links = 0;
        // Resolves links, so that the parent is the folder above.
        let mut at = PathBuf::new();
        while let Some(part) = rest.pop() {
            match Path::new(&part).components().next() {
                Some(Component::Normal(name)) => {
                    let here = at.join(name);
                    let kind = fs::symlink_metadata(&here).map(|metadata| metadata.file_type());
                    if kind.as_ref().is_ok_and(fs::FileType::is_dir) && !rest.is_empty() {
                        at = here;
                        continue;
                    }
                    self.search_in(&at, name);
                    match kind {
                        Ok(kind) if kind.is_symlink() => {
                            links += 1;
                            match fs::read_link(&here) {
                                Ok(target) if links <= MAX_LINKS => rest.extend(backwards(&target)),
                                _ => return,
                            }
                        }
                        Ok(kind) if kind.is_dir() => {
                            self.folders.insert(here.clone());
                            self.whole.insert(here);
                            return;
                        }
                        Ok(_) => {
                            self.files.insert(here);
                            return;
                        }
                        Err(_) => return,
                    }
                }
                Some(Component::ParentDir) => {
                    at.pop();
                }
                Some(Component::CurDir) | None => {}
                // An absolute link target restarts at the root.
                Some(part @ (Component::RootDir | Component::Prefix(_))) => at.push(part),
            }
        }
        // A path that ends in `..`, or the root.
        self.folders.insert(at.clone());
        self.whole.insert(at);
    }

    fn search_in(&mut self, folder: &Path, name: &OsStr) {
        // On this system, watching a folder reports everything below it, and links in the root belong to the system.
        if cfg!(target_os = "macos") && folder.parent().is_none() {
            return;
        }
        self.folders.insert(folder.to_owned());
        self.names.insert(name.to_owned());
        // The folder itself may disappear; that event has the folder's own name.
        self.names.extend(folder.file_name().map(ToOwned::to_owned));
    }

    /// Whether an event matters, and if so, whether a watched path may now refer to another file or folder.
    pub(super) fn concerns(&self, event: &notify::Result<notify::Event>) -> Option<bool> {
        // The system lost some events.
        let Ok(event) = event else { return Some(true) };
        if event.need_rescan() {
            return Some(true);
        }
        let rewatch = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write))
            | EventKind::Modify(ModifyKind::Data(_)) => false,
            // Ignores reads, because this process reads the files itself.
            EventKind::Access(_) => return None,
            _ => true,
        };
        let in_whole = |path: &Path| path.parent().is_some_and(|folder| self.whole.contains(folder));
        let named = |path: &PathBuf| {
            path.file_name().is_none_or(|name| self.names.contains(name))
                || (has_rules(path) && in_whole(path))
        };
        event.paths.iter().any(named).then_some(rewatch)
    }
}

/// Returns the files that an event reports as written in place. A file that is renamed to its name was written before, and
/// a removed one has no text.
pub(super) fn written(event: notify::Result<notify::Event>) -> Vec<PathBuf> {
    let is_write = |kind: &EventKind| match kind {
        EventKind::Access(kind) => *kind == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(kind) => !matches!(kind, ModifyKind::Name(_) | ModifyKind::Metadata(_)),
        EventKind::Remove(_) => false,
        _ => true,
    };
    event.ok().filter(|event| is_write(&event.kind)).map(|event| event.paths).unwrap_or_default()
}

/// Returns the parts of a path, last part first.
fn backwards(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use notify::Event;
    use notify::event::{DataChange, Flag, ModifyKind, RemoveKind};

    use super::*;

    #[test]
    fn bare_name_is_in_current_folder() {
        let places = Places::of(&[PathBuf::from("Cargo.toml")]);
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert!(places.names.contains(OsStr::new("Cargo.toml")));
        assert!(places.files.iter().any(|file| file.ends_with("Cargo.toml")));
        assert!(!cfg!(unix) || places.folders.contains(&here), "{places:?}");
    }

    #[test]
    fn relevant_file_events() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (file, other) = (root.join("limits.yaml"), root.join("other.yaml"));
        let places = Places::of(std::slice::from_ref(&file));
        let written = EventKind::Modify(ModifyKind::Data(DataChange::Any));
        for (kind, path, rewatch) in [
            (written, &file, Some(false)),
            (written, &other, None),
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), &file, None),
            (EventKind::Access(AccessKind::Close(AccessMode::Read)), &file, None),
            (EventKind::Access(AccessKind::Close(AccessMode::Write)), &file, Some(false)),
            (EventKind::Remove(RemoveKind::File), &file, Some(true)),
            (EventKind::Remove(RemoveKind::Folder), &root, Some(true)),
        ] {
            assert_eq!(places.concerns(&Ok(Event::new(kind).add_path(path.clone()))), rewatch, "{kind:?}");
        }
        assert_eq!(places.concerns(&Ok(Event::new(EventKind::Other).set_flag(Flag::Rescan))), Some(true));
        assert_eq!(places.concerns(&Err(notify::Error::generic("lost"))), Some(true));
    }
}
