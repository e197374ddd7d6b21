//! Rules with `distinct: true`: the values that were admitted.
//!
//! ```text
//! find    the value is known ── a cost of 0, else of 1: RuleCheck::count_values
//! charge  as any rule. A denied value may have become known in the meantime: RuleCheck::charge_value
//! finish  the request is admitted by all rules ── the value is inserted. Another request with the same value was
//!         first ── the unit is refunded: RequestCheck::note_values
//! ```
//! The value is inserted only when no other rule can deny the request any more, because a filter cannot remove values.
//! See [`Distinct`](tollgate::Distinct).

use std::sync::Arc;

use tollgate::internals::snapshot::{SnapshotReader, SnapshotTimes, put_u64};
use tollgate::internals::{CheckTime, KnownPairs, quota_error, saturating_nanos};
use tollgate::stores::SnapshotError;
use tollgate::{Decision, StoreKind};
use tollgate_config::{Amount, Charging, Rule, Store};

use crate::counting::{Hasher, NoCounter};

/// The values that a rule has admitted in the window.
#[derive(Debug)]
pub(in crate::engine) struct SeenValues {
    known: KnownPairs,
    hasher: Hasher,
    window_ns: u64,
    bytes: usize,
}

impl SeenValues {
    /// Returns the values of a rule that counts them. They stay the same under a load that changes neither the window nor
    /// the memory, nor what the rule counts by.
    pub(super) fn after(
        rule: &Rule,
        charging: Charging,
        last: Option<(&Rule, &Arc<Self>)>,
        hasher: &Hasher,
    ) -> Result<Option<Arc<Self>>, NoCounter> {
        let Amount::Limited { limit, store } = rule.limit else { return Ok(None) };
        if !rule.distinct {
            return Ok(None);
        }
        if charging.counts_denied() {
            let text =
                format!("distinct counts no value that is denied; use charging: {}", Charging::AllOrNothing);
            return Err(quota_error(text).into());
        }
        let memory = match store {
            Some(Store::Local(config)) if config.kind() == StoreKind::Compact => config.capacity(),
            _ => None,
        };
        let bytes =
            memory.and_then(|memory| memory.bytes()).or_else(|| Store::MEMORY.bytes()).unwrap_or_default();
        let window_ns = saturating_nanos(limit.quota().period());
        let same = last.filter(|(last, seen)| {
            (last.counted_by, last.counted_by_key) == (rule.counted_by, rule.counted_by_key)
                && (seen.window_ns, seen.bytes) == (window_ns, bytes)
        });
        if let Some((_, same)) = same {
            return Ok(Some(Arc::clone(same)));
        }
        let known = KnownPairs::new(window_ns, bytes)?;
        Ok(Some(Arc::new(Self { known, hasher: hasher.clone(), window_ns, bytes })))
    }

    /// Appends the values of this window to a snapshot.
    pub(super) fn save(&self, when: CheckTime, into: &mut Vec<u8>) {
        let (window, words) = self.known.words(when);
        [self.window_ns, self.bytes as u64, window].into_iter().for_each(|number| put_u64(number, into));
        for (index, word) in words {
            put_u64(index as u64, into);
            put_u64(word, into);
        }
        put_u64(u64::MAX, into);
    }

    /// Takes over the values of a snapshot, if they are of this window. Other values are charged again.
    pub(super) fn load(
        &self,
        reader: &mut SnapshotReader<'_>,
        times: SnapshotTimes,
    ) -> Result<(), SnapshotError> {
        let [window_ns, bytes, window] = [reader.u64()?, reader.u64()?, reader.u64()?];
        let now = self.known.words(CheckTime::from_ns(times.now_ns)).0;
        let is_same = (window_ns, bytes) == (self.window_ns, self.bytes as u64)
            && times.back_ns() == 0
            && window == now;
        loop {
            let index = reader.u64()?;
            if index == u64::MAX {
                return Ok(());
            }
            let word = reader.u64()?;
            if is_same && let Ok(index) = usize::try_from(index) {
                self.known.set_word(window, (index, word));
            }
        }
    }

    /// Returns the hash of a key and a value.
    pub(in crate::engine) fn pair(&self, key: &str, value: Option<(&str, &str)>) -> u64 {
        self.hasher.hash_one((key, value))
    }

    /// Whether a value was admitted in this window.
    pub(in crate::engine) fn holds(&self, pair: u64, when: CheckTime) -> bool {
        self.known.holds(pair, when)
    }

    /// Inserts a value into the window that counted its unit. Returns whether another request has inserted it. If a later
    /// window has begun, inserts nothing, so the next request with this value is charged there.
    pub(in crate::engine) fn insert(&self, pair: u64, charge: &Decision) -> bool {
        self.known.insert(pair, charge).unwrap_or(false)
    }
}
