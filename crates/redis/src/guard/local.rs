//! Local decisions while the server is unavailable: this process's share of each limit, key by key, in bounded memory.
//!
//! *The bound.* For one key, N processes together admit at most the limit, if the limit is at least N units. For a
//! smaller limit, each process still admits one unit at once, but less often, so that the total rate holds. For
//! example, with one unit a second among four processes, each process admits one unit in four seconds. In the worst
//! case, all four admit their unit in the same second.
//!
//! These units are in addition to units that the server admitted before, because a process starts with nothing charged.
//! They are not posted when the server is back.

use std::time::Duration;

use tollgate::{
    AnyLimiter, Class, Decision, Limit, LimitKind, ManualClock, Quota, QuotaError, RateLimiter, StoreKind,
    Timestamp, WhenFull,
};
use tollgate_protocol::strictness;

/// The limiter of one share. The caller passes all times, so its clock is not read.
type Share = AnyLimiter<Vec<u8>, ManualClock>;

/// The smallest quota: one unit in 292 years.
const LEAST: Quota = Quota::new(1, Duration::from_nanos(Quota::MAX_REFILL_NS));

/// One part of a limit divided by `processes`: at least one unit at once, and never a higher rate than the part.
fn divided(limit: &Limit, processes: u32) -> Quota {
    let (quota, parts) = (limit.quota(), u64::from(processes.max(1)));
    let times = |parts: u64| Duration::from_nanos(quota.period_ns().saturating_mul(parts));
    let windows_of = |parts: u64| match quota.limit() / parts {
        0 => Quota::try_new(1, times(parts.div_ceil(quota.limit()))).unwrap_or(LEAST),
        limit => Quota::try_new(limit, times(1)).unwrap_or(LEAST),
    };
    match limit.canonical().kind() {
        LimitKind::Gcra | LimitKind::LeakyBucketQueue | LimitKind::MinimumSpacing { .. } => {
            // The period is multiplied instead of dividing the limit, because limits are rarely multiples of the number
            // of parts. With a period near the maximum, the burst may not fit, so smaller bursts are tried.
            let burst = (quota.burst_size() / parts).max(1);
            let bursts = std::iter::successors(Some(burst), |burst| Some(burst / 2).filter(|half| *half > 0));
            let least = LEAST.burst(1);
            let slow = Quota::try_new(quota.limit(), times(parts)).ok();
            slow.and_then(|slow| bursts.into_iter().find_map(|burst| slow.try_burst(burst).ok()))
                .unwrap_or(least)
        }
        LimitKind::IntervalBucket | LimitKind::AlignedBucket { .. } => {
            let share = windows_of(parts);
            share.try_burst((quota.burst_size() / parts).max(1)).unwrap_or(share)
        }
        // A period of a calendar cannot be longer, so each share has at least one unit in each.
        LimitKind::CalendarWindow { .. } => {
            Quota::try_new((quota.limit() / parts).max(1), quota.period()).unwrap_or(LEAST)
        }
        _ => windows_of(parts),
    }
}

/// Returns the limit of one of `processes` processes that share a limit without a server.
fn share_of(limit: &Limit, processes: u32) -> Result<Limit, QuotaError> {
    let kind = match limit.kind() {
        // If each process rounded down, the weighted previous count could become zero in all of them.
        LimitKind::SlidingWindow { strict } => LimitKind::SlidingWindow { strict: strict || processes > 1 },
        // A limiter with an adaptive start never removes a key, so its table would fill up.
        LimitKind::AlignedBucket { at, adaptive: _ } => LimitKind::AlignedBucket { at, adaptive: false },
        kind => kind,
    };
    Limit::try_new(kind, limit.quota())?.with_quota(divided(limit, processes))
}

/// The shares of all limits of a limiter.
pub(crate) struct Local {
    shares: Box<[Share]>,
}

impl Local {
    /// # Errors
    /// Returns an error if a limit fits no algorithm.
    pub(crate) fn new(limits: &[Limit], processes: u32, max_keys: usize) -> Result<Self, QuotaError> {
        // If the table is full, a new key is denied: a flood of new keys must not evict the debts of other keys.
        let share = |limit| {
            let builder = RateLimiter::any(share_of(limit, processes)?).clock(ManualClock::default());
            builder.max_keys(max_keys, WhenFull::Deny).build(StoreKind::Keyed)
        };
        Ok(Self { shares: limits.iter().map(share).collect::<Result<_, _>>()? })
    }

    /// Returns the decision that [`check`](Self::check) would make. Charges nothing.
    pub(crate) fn peek(&self, key: &[u8], cost: u64, class: Class, now: Timestamp) -> Option<Decision> {
        tightest(self.shares.iter().map(|share| {
            let headroom = if cost == 0 { 0 } else { class.headroom(share.limit().most()) };
            let peek = |cost: u64| share.at(now).peek_n(key, cost.saturating_add(headroom));
            let decision = peek(cost);
            decision.for_lower_limit(decision.outcome(), cost, headroom, || peek(1))
        }))
    }

    /// Charges all limits, or none. The result is the decision of the limit that denies for longest, or if none denies,
    /// of the limit with the fewest units left.
    pub(crate) fn check(&self, key: &[u8], cost: u64, class: Class, now: Timestamp) -> Option<Decision> {
        if let [share] = &*self.shares {
            return Some(share.at(now).check_class(key, cost, class));
        }
        if let Some(refusal) = self.peek(key, cost, class, now).filter(Decision::is_denied) {
            return Some(refusal);
        }
        let mut charges = Vec::with_capacity(self.shares.len());
        for share in &self.shares {
            let charge = share.at(now).check_class(key, cost, class);
            if charge.is_denied() {
                // A concurrent request was charged first.
                for (share, charge) in self.shares.iter().zip(&charges) {
                    share.at(now).refund(key, charge);
                }
                return Some(charge);
            }
            charges.push(charge);
        }
        tightest(charges.into_iter())
    }

    /// Takes back what [`check`](Self::check) charged. With several limits, it takes back from the limit that the
    /// decision describes, and from limits with equal figures; the decision contains no data about other limits.
    /// Returns the units taken back.
    pub(crate) fn refund(&self, key: &[u8], charge: &Decision, now: Timestamp) -> u64 {
        self.shares.iter().map(|share| share.at(now).refund(key, charge)).max().unwrap_or(0)
    }

    /// Corrects what [`check`](Self::check) charged to the actual cost. With several limits, the same holds as for a
    /// [`refund`](Self::refund).
    pub(crate) fn settle(
        &self,
        key: &[u8],
        charge: &Decision,
        actual: u64,
        now: Timestamp,
    ) -> Option<Decision> {
        tightest(self.shares.iter().map(|share| share.at(now).settle(key, charge, actual)))
    }
}

/// The strictest decision; if several are equal, the first.
fn tightest(decisions: impl DoubleEndedIterator<Item = Decision>) -> Option<Decision> {
    decisions.rev().max_by_key(strictness)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn share(limit: Limit, processes: u32) -> Quota {
        divided(&limit, processes)
    }

    // G83
    #[test]
    fn share_rate_never_exceeds_its_part() {
        let hundred = Quota::per_second(100).burst(200);
        let share_of_four = share(Limit::gcra(hundred), 4);
        assert_eq!(share_of_four, Quota::new(100, Duration::from_secs(4)).burst(50));
        assert_eq!(share(Limit::fixed_window(Quota::per_minute(10)), 4), Quota::per_minute(2));
        assert_eq!(share(Limit::sliding_window(Quota::per_minute(10)), 1), Quota::per_minute(10));
        assert_eq!(share(Limit::gcra(hundred), 0), hundred, "0 processes count as 1");
        // Below one unit: a longer period instead of a higher rate.
        let one = Quota::per_second(1);
        assert_eq!(share(Limit::fixed_window(one), 4), Quota::new(1, Duration::from_secs(4)));
        assert_eq!(share(Limit::gcra(one), 4), Quota::new(1, Duration::from_secs(4)));
        let three = Limit::fixed_window(Quota::per_second(3));
        assert_eq!(share(three, 4), Quota::new(1, Duration::from_secs(2)));
    }

    // G83
    #[test]
    fn every_quota_has_a_share() {
        let century = Quota::new(1, Duration::from_secs(100 * 366 * 86_400));
        let wide = Quota::per_second(1).burst(9_223_372_036);
        let fast = Quota::new(32, Duration::from_nanos(1));
        for quota in [century, wide, fast, LEAST, Quota::per_day(u64::from(u32::MAX))] {
            for processes in [0, 1, 2, 3, 7, u32::MAX] {
                let window = Limit::try_new(LimitKind::FixedWindow, quota);
                for limit in [Limit::gcra(quota)].into_iter().chain(window) {
                    let share = share(limit, processes);
                    let parts = u128::from(processes.max(1));
                    let (rate, whole) = (
                        u128::from(share.limit()) * u128::from(quota.period_ns()),
                        u128::from(quota.limit()) * u128::from(share.period_ns()),
                    );
                    let is_least = share.period_ns() == Quota::MAX_REFILL_NS;
                    assert!(rate.saturating_mul(parts) <= whole || is_least, "{quota} {processes}: {share}");
                    assert!(u128::from(share.burst_size()) <= (u128::from(limit.most()) / parts).max(1));
                }
            }
        }
    }
}
