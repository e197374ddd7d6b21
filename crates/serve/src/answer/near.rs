//! Keys near their limit, counted only while somebody views them.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use tollgate::telemetry::{DeniedKey, NearLimit, Shares, TopDenied};
use tollgate_redis::DecidedBy;
use tollgate_rules::{Answer, Descriptor};

use tollgate_report::explanation::counted_by;

/// How many keys are kept.
const KEPT: usize = 100;

/// The keys whose admitted requests came near a limit.
// Ordering: Relaxed everywhere. A request that begins before somebody views them may be missing.
#[derive(Debug, Default)]
pub struct NearKeys {
    views: AtomicUsize,
    /// Made by the first view, so that without a view nothing uses memory.
    keys: OnceLock<Option<TopDenied>>,
}

/// A view of the keys. They are counted until the drop of the last one.
#[derive(Debug)]
pub struct NearView(Arc<NearKeys>);

impl NearKeys {
    /// Notes the keys of an answer, if somebody views them.
    #[inline]
    pub(super) fn note(&self, answer: &Answer, descriptors: &[Descriptor<'_>], line: NearLimit) {
        if self.views.load(Relaxed) > 0 {
            self.note_all(answer, descriptors, line);
        }
    }

    #[cold]
    fn note_all(&self, answer: &Answer, descriptors: &[Descriptor<'_>], line: NearLimit) {
        let Some(Some(keys)) = self.keys.get() else { return };
        for limit in answer.limits() {
            let is_known = matches!(limit.decided_by(), None | Some(DecidedBy::Server));
            let Some(decision) = limit.decision().filter(|decision| decision.is_allowed() && is_known) else {
                continue;
            };
            let (quota, cost) = (limit.quota(), decision.cost());
            let used = quota.saturating_sub(limit.remaining());
            if Shares::of_line(line, quota, used, cost).near > 0 {
                let entries = descriptors.get(limit.descriptor()).map_or(&[][..], Descriptor::entries);
                keys.record(limit.name(), &counted_by(limit.rule(), entries));
            }
        }
    }
}

impl NearView {
    /// Begins a view. The first one begins with an empty list.
    pub fn begin(near: Arc<NearKeys>) -> Self {
        let keys = near.keys.get_or_init(|| TopDenied::try_new(KEPT, 1).ok());
        if near.views.fetch_add(1, Relaxed) == 0
            && let Some(keys) = keys
        {
            keys.clear();
        }
        Self(near)
    }

    /// Returns the number of views.
    pub fn views(&self) -> usize {
        self.0.views.load(Relaxed)
    }

    /// Returns this many keys with the most requests near a limit, since the first of the present views began.
    pub fn top(&self, most: usize) -> Vec<DeniedKey> {
        self.0.keys.get().and_then(Option::as_ref).map(|keys| keys.top(most)).unwrap_or_default()
    }
}

impl Drop for NearView {
    fn drop(&mut self) {
        self.0.views.fetch_sub(1, Relaxed);
    }
}
