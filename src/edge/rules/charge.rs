//! How one rule is charged where this process counts it.

use std::time::Duration;

use super::live::Limiter;
use crate::base::check_time::CheckTime;
use crate::base::clock::saturating_nanos;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::store::op::Operation;

/// The answer of a limit of nothing.
pub(super) fn blocked(period: Duration, cost: u64, now_ns: u64) -> Decision {
    let outcome = if cost == 0 { Outcome::Allowed } else { Outcome::Never };
    let reset_ns = match saturating_nanos(period) {
        0 => 0,
        period_ns => period_ns - now_ns % period_ns,
    };
    let facts = Facts::Plain { remaining: 0, retry_ns: reset_ns, reset_ns, delay_ns: 0 };
    Decision::new(outcome, cost, 0, now_ns, facts).uncharged()
}

impl Limiter {
    /// Charges a request, if that leaves the spare units free.
    pub(super) fn charge(&self, key: &str, cost: u64, spare: u64, when: CheckTime) -> Decision {
        let generation = &self.generation;
        if cost == 0 {
            return self.look(key, 0, spare, when);
        }
        if spare == 0 {
            return generation.apply(key, Operation::Check, when, cost);
        }
        let decision = generation.apply(key, Operation::CheckKeeping { headroom: spare }, when, cost);
        decision.judged(decision.outcome(), cost, spare, || self.next(key, spare, when))
    }

    /// What that would be.
    pub(super) fn look(&self, key: &str, cost: u64, spare: u64, when: CheckTime) -> Decision {
        let generation = &self.generation;
        // A look for nothing is always allowed.
        let more = if cost == 0 { 0 } else { spare };
        let decision = generation.peek(key, when, cost.saturating_add(more));
        decision.judged(decision.outcome(), cost, spare, || self.next(key, spare, when))
    }

    /// Whether there is room for one unit, and when.
    fn next(&self, key: &str, spare: u64, when: CheckTime) -> Decision {
        self.generation.peek(key, when, spare.saturating_add(1))
    }

    /// Counts a request first and judges it afterwards, in a store that has room for one unit more than may be in use: whether
    /// that is taken says that the limit is exceeded, by however much. `elsewhere` says what another counter of the same requests holds.
    pub(super) fn count(
        &self,
        key: &str,
        verb: Operation,
        cost: u64,
        spare: u64,
        when: CheckTime,
        elsewhere: impl FnOnce() -> u64,
    ) -> Counted {
        let generation = &self.generation;
        let taken = match cost {
            0 => generation.peek(key, when, 0),
            _ => generation.apply(key, verb, when, cost),
        };
        let charged = taken.charged();
        let elsewhere = elsewhere();
        let is_over = taken.remaining() < spare.saturating_add(elsewhere) || (cost > 0 && charged < cost);
        let outcome = match is_over {
            false => Outcome::Allowed,
            true if cost > taken.limit().saturating_sub(spare) => Outcome::Never,
            true => Outcome::Denied,
        };
        let judged = match outcome {
            // When there is room for the request and the spare units.
            Outcome::Denied => generation.peek(key, when, cost.saturating_add(spare)),
            _ => taken,
        };
        let in_use = taken.limit().saturating_sub(taken.remaining());
        let before = in_use.saturating_sub(charged).saturating_add(elsewhere);
        let decision = judged.judged(outcome, cost, spare, || self.next(key, spare, when));
        Counted { decision: decision.beside(elsewhere), charged, before }
    }
}

/// What came of counting a request first.
pub(super) struct Counted {
    pub(super) decision: Decision,
    pub(super) charged: u64,
    /// What was in use before.
    pub(super) before: u64,
}
