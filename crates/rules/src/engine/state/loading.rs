//! What loads remember of the files that they read.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate::internals::migrate::{Generation, Replaced};
use tollgate::stores::AnyStore;
use tollgate_config::Problem;

use super::rule_set::RuleSet;

#[derive(Debug, Default)]
pub(in crate::engine) struct Loading {
    /// Files and folders.
    pub(in crate::engine) files: Vec<PathBuf>,
    /// The files at the last read.
    #[cfg(feature = "watch")]
    pub(in crate::engine) seen: Vec<ReadFile>,
    /// The files of the last load that succeeded, if later ones failed. A load uses these texts for files that are being
    /// written. The last text that was read may be a part of such a file, so the load would fail, and the changes of all
    /// other files would not take effect.
    #[cfg(feature = "watch")]
    pub(in crate::engine) good: Option<Vec<ReadFile>>,
    /// The rules that the files last read would remove, if they have not been loaded.
    #[cfg(feature = "watch")]
    pub(in crate::engine) missing: Vec<Box<str>>,
    /// The domains that layers were created for.
    pub(in crate::engine) required: Vec<Box<str>>,
    /// The warnings about the rules in force.
    pub(in crate::engine) warnings: Vec<Problem>,
    /// The rules of earlier loads that answers may still use.
    pub(in crate::engine) replaced: Replaced<RuleSet>,
    /// The stores of these rules that holds may still use. A hold ends under a mutex, and must not free a store there.
    pub(in crate::engine) held: Vec<Arc<Generation<AnyStore>>>,
}

impl Loading {
    /// Frees the rules of earlier loads that no answer uses any more, and their stores that no hold uses any more. Returns whether some
    /// rules are left.
    pub(in crate::engine) fn free_unused(&mut self) -> bool {
        let are_left = self.replaced.free_unused();
        self.held.retain(|generation| Arc::strong_count(generation) > 1);
        are_left
    }
}

/// A file of rules, as it was read.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::engine) struct ReadFile {
    pub(in crate::engine) path: PathBuf,
    /// `None` if the file or folder cannot be read, or if reading it would consume it, as with a pipe.
    pub(in crate::engine) text: Option<Vec<u8>>,
}

impl std::fmt::Debug for ReadFile {
    /// Omits the text: the values of rules may be customers' names and keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ReadFile").field(&self.path).finish()
    }
}
