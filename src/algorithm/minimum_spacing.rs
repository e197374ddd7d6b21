//! Minimum spacing.

use alloc::vec::Vec;
use core::time::Duration;

use super::step::{Algorithm, DEAD, Refund, Refunded, Step, Stepper};
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::algorithm::compact::{IntoCompact, TatVariant, TatWord};
use crate::base::clock::saturating_nanos;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason};

/// Minimum spacing: at least `spacing` passes between two admissions. The cost of a request does not matter.
///
/// The word is the earliest time of the next admission. Each request with a cost above zero is one event. A cost of
/// zero is always admitted and charges nothing. In any interval of length `t`, at most `1 + t / spacing` events are
/// admitted.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, MinimumSpacing, RateLimiter};
///
/// let clock = ManualClock::default();
/// let posts = MinimumSpacing::new(Duration::from_secs(2));
/// let limiter = RateLimiter::builder(posts).clock(clock.clone()).direct();
/// assert!(limiter.check().is_allowed());
/// clock.advance(Duration::from_nanos(1_999_999_999));
/// assert!(limiter.check().is_denied());
/// clock.advance(Duration::from_nanos(1));
/// assert!(limiter.check().is_allowed());
/// ```
/// # Source
/// The interval limiter of uber-go/ratelimit, without its slack.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MinimumSpacing {
    spacing_ns: u64,
}

const NAME: &str = "minimum spacing";

impl MinimumSpacing {
    /// Creates a limit of at least `spacing` between two admissions, in whole nanoseconds. A spacing of zero limits
    /// nothing. A spacing above 584 years (`u64::MAX` nanoseconds) counts as 584 years.
    #[must_use]
    pub const fn new(spacing: Duration) -> Self {
        Self { spacing_ns: saturating_nanos(spacing) }
    }

    /// Returns the spacing.
    pub(crate) const fn spacing(&self) -> Duration {
        Duration::from_nanos(self.spacing_ns)
    }
}

impl Stepper for MinimumSpacing {
    type Tail = ();

    #[inline]
    fn step(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let wait_ns = head.saturating_sub(now_ns);
        let decide = |outcome, wait_ns: u64| decide(outcome, now_ns, cost, wait_ns, 0);
        if cost == 0 {
            return Step::admit(decide(Outcome::Allowed, wait_ns), head);
        }
        // The largest word is `DEAD - 1`. From that time on, only costs of zero are admitted.
        if wait_ns > 0 || now_ns >= DEAD - 1 {
            return Step::Deny(decide(Outcome::Denied, wait_ns.max(1)));
        }
        if self.spacing_ns == 0 {
            return Step::admit(decide(Outcome::Allowed, 0), head);
        }
        let next = self.after(now_ns);
        Step::admit(decide(Outcome::Allowed, next - now_ns), next)
    }

    /// Charges the next turn, although the event proceeds immediately.
    ///
    /// (The spacing could restart now instead. But an event just after another event would then hardly move the word,
    /// and a refund could not find out from the word which of the two charges was the last.)
    fn force(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let delay_ns = head.saturating_sub(now_ns);
        let next = self.after(head.max(now_ns));
        // After the largest word, no turn is left. A spacing of zero limits nothing.
        let (next, cost) = match cost {
            0 => (head, 0),
            _ if self.spacing_ns == 0 => (head, cost),
            _ if next <= head => (head, 0),
            _ => (next, cost),
        };
        Step::admit(decide(Outcome::Allowed, now_ns, cost, next.saturating_sub(now_ns), delay_ns), next)
    }

    /// Charges one event for each unit.
    fn seed(&self, now_ns: u64, units: u64) -> Step {
        let owed_ns = self.spacing_ns.saturating_mul(units);
        let next = now_ns.saturating_add(owed_ns).min(DEAD - 1);
        Step::admit(decide(Outcome::Allowed, now_ns, units, next.saturating_sub(now_ns), 0), next)
    }

    fn owed(&self, decision: &Decision) -> u64 {
        saturating_nanos(decision.reset_after()).div_ceil(self.spacing_ns.max(1))
    }

    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        let delay_ns = head.saturating_sub(now_ns);
        let next = self.after(head);
        // After the largest word, no turn is left.
        if cost == 0 || delay_ns == 0 || delay_ns > wait_ns || next == head {
            return self.step(head, read, now_ns, cost);
        }
        let decision = decide(Outcome::Allowed, now_ns, cost, next.saturating_sub(now_ns), delay_ns);
        Step::admit(decision, next)
    }

    const CAN_REFUND: bool = true;

    /// Refunds a whole event, if it was the last one. Without a charge, refunds one event for each unit.
    fn refund(&self, head: u64, _read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let &Refund { charge, units, now_ns } = refund;
        let Some(charge) = charge else {
            let back_ns = self.spacing_ns.saturating_mul(units).min(head.saturating_sub(now_ns));
            let next = head - back_ns;
            return (back_ns > 0).then(|| Refunded { next, units: back_ns.div_ceil(self.spacing_ns) });
        };
        let &Facts::Plain { reset_ns, delay_ns, .. } = charge.facts() else {
            return None;
        };
        let (charged, at_ns) = (charge.charged(), charge.at_ns());
        let is_last = at_ns.saturating_add(reset_ns) == head;
        if charged == 0 || units < charged || !is_last || head <= now_ns {
            return None;
        }
        // The next word is the turn of the event. This turn is not before the word that the event replaced.
        Some(Refunded { next: at_ns.saturating_add(delay_ns).min(head), units: charged })
    }

    fn reads(&self, _other: &Self) -> bool {
        true
    }

    #[inline]
    fn is_idle(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        head <= now_ns
    }

    #[inline]
    fn until_idle(&self, head: u64, _read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        head.saturating_sub(now_ns)
    }
}

/// Builds the decision when the next event may come after `wait_ns`, and this event after `delay_ns`.
#[inline]
fn decide(outcome: Outcome, now_ns: u64, cost: u64, wait_ns: u64, delay_ns: u64) -> Decision {
    let remaining = u64::from(wait_ns == 0);
    let facts = Facts::Plain { remaining, retry_ns: wait_ns, reset_ns: wait_ns, delay_ns };
    Decision::new(outcome, cost, 1, now_ns, facts)
}

impl MinimumSpacing {
    /// Returns `ns` plus the spacing, but at most the largest word, one below [`DEAD`].
    #[inline]
    const fn after(&self, ns: u64) -> u64 {
        let next = ns.saturating_add(self.spacing_ns);
        if next < DEAD { next } else { DEAD - 1 }
    }

    /// Returns the rate: one event per spacing, with a spacing of at most 2⁶³ ns, the longest period of a quota.
    fn rate(&self) -> Result<UnitRate, QuotaError> {
        if self.spacing_ns == 0 {
            let instead = "a spacing of 1 ns or more";
            return Err(Reason::NoCompactForm { algorithm: NAME, instead }.into());
        }
        Ok(UnitRate { interval: Interval { num: self.spacing_ns.min(i64::MAX as u64), den: 1 }, burst: 1 })
    }
}

impl IntoCompact for MinimumSpacing {
    type CompactState = TatWord;

    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<TatWord, QuotaError> {
        let tiers: Result<Vec<_>, _> = tiers.iter().map(|&quota| Self::from(quota).rate()).collect();
        TatWord::new(NAME, self.rate()?, tiers?, overdraft, TatVariant::Event)
    }

    fn tier(&self, own: &TatWord, quota: &Quota) -> Result<TatWord, QuotaError> {
        own.tier(NAME, Self::from(*quota).rate()?)
    }
}

impl Algorithm for MinimumSpacing {
    /// Sets the spacing to `period / limit`, rounded up to a nanosecond.
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::from(*quota))
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::from(*quota))
    }
}

impl From<Quota> for MinimumSpacing {
    /// Creates a spacing of `period / limit`, rounded up to a nanosecond.
    fn from(quota: Quota) -> Self {
        Self { spacing_ns: quota.period_ns().div_ceil(quota.limit()) }
    }
}
