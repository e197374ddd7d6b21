//! Rules with `distinct: true`: the values that were admitted.
//!
//! ```text
//! find    the value is known ── a cost of 0, else of 1: RuleCheck::count_values
//! charge  as any rule. A denied value may have become known in the meantime: RuleCheck::charge_value
//! finish  the request is admitted by all rules ── the value is inserted. Another request with the same value was
//!         first ── the unit is refunded: RequestCheck::note_values
//! ```
//! The value is inserted only when no other rule can deny the request any more, because a filter cannot remove values.
//! See [`Distinct`](crate::Distinct).

use std::sync::Arc;

use super::check::RequestCheck;
use super::counted_by::CountedBy;
use super::counter::LocalCounter;
use super::rule_check::{RuleCheck, Twin};
use crate::base::check_time::CheckTime;
use crate::base::clock::saturating_nanos;
use crate::base::decision::Decision;
use crate::base::quota::QuotaError;
use crate::edge::rules::counting::{Hasher, NoCounter};
use crate::edge::rules::matching::Descriptor;
use crate::edge::rules::rule::{Amount, Charging, MEMORY, Rule, Store};
use crate::limiter::distinct::KnownPairs;
use crate::store::op::Store as _;

/// The values that a rule has admitted in the window.
#[derive(Debug)]
pub(super) struct SeenValues {
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
            return Err(QuotaError::worded(text).into());
        }
        let memory = if let Some(Store::Compact(memory)) = store { memory } else { MEMORY };
        let bytes = memory.bytes().or_else(|| MEMORY.bytes()).unwrap_or_default();
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

    fn holds(&self, pair: u64, when: CheckTime) -> bool {
        self.known.holds(pair, when)
    }
}

impl<'r> RuleCheck<'r> {
    /// Turns this into the check of a value: a known value costs nothing, and another one costs one unit, whatever the
    /// request costs.
    pub(super) fn count_values(
        &mut self,
        seen: &'r SeenValues,
        descriptor: &Descriptor<'r>,
        when: CheckTime,
    ) {
        let pair = seen.hasher.hash_one((self.key.as_str(), descriptor.entries().last()));
        if self.cost > 0 {
            self.cost = u64::from(!seen.holds(pair, when));
        }
        self.twin = Some(Box::new(Twin::Value { seen, pair }));
    }

    /// Whether the rule counts values.
    pub(super) fn counts_values(&self) -> bool {
        matches!(self.twin.as_deref(), Some(Twin::Value { .. }))
    }

    /// Charges a value.
    pub(super) fn charge_value(
        &self,
        (seen, pair): (&SeenValues, u64),
        (counter, headroom): (&LocalCounter, u64),
        when: CheckTime,
    ) -> Decision {
        let key = self.key.as_str();
        let decision = counter.charge(key, self.cost, headroom, when);
        // Another request may have used the last unit for the same value.
        if decision.is_denied() && seen.holds(pair, when) {
            return counter.peek(key, 0, headroom, when);
        }
        decision
    }
}

impl RequestCheck<'_> {
    /// Inserts the values that an admitted request has charged. Their units are not refunded with the request, because the
    /// values stay known.
    #[cold]
    pub(super) fn note_values(&mut self, when: CheckTime) {
        for (check, decided) in self.each(|_| true) {
            let Some(&Twin::Value { seen, pair }) = check.twin.as_deref() else { continue };
            let (CountedBy::Local { counter, .. }, Some(charge)) = (check.counted, &mut decided.decision)
            else {
                continue;
            };
            if !std::mem::take(&mut check.effect.is_charged) {
                continue;
            }
            if seen.known.insert(pair, when) {
                counter.generation.store().refund(check.key.as_str(), when, charge, charge.charged());
            }
            *charge = charge.uncharged();
        }
    }
}
