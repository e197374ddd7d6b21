//! What a reply of the shared state means for a request: the decision and its figures.

use std::cmp::Reverse;

use tollgate::internals::Facts;
use tollgate::{Decision, LimitKind, Outcome, Timestamp};

use super::call::{LimitStanding, Reply};
use super::exact::EXACT;
use super::kinds::{Blocks, Pace};
use super::plan::{Arithmetic, Plan, PlannedLimit, Windows};

const NS: u64 = 1_000;

impl Plan {
    /// The units left after this reply: the minimum over all limits.
    pub fn remaining(&self, reply: &Reply) -> u64 {
        let each = self.standings(reply).map(|(part, standing)| part.left(standing, reply.now_us));
        each.min().unwrap_or(0)
    }

    /// The decision about a request of this cost, at the time `at`. The request is admitted if all of it was granted.
    ///
    /// With several limits, the decision describes one of them. If limits denied, that is the limit that has room last.
    /// Otherwise, it is the limit with the fewest units left. Times are relative to the reply's time, in whole
    /// microseconds, rounded up.
    pub fn decision(&self, reply: &Reply, cost: u64, at: Timestamp) -> Decision {
        // Minimum spacing admits costs that the script cannot count.
        self.decided(reply, self.outcome(cost, reply.granted >= cost.min(EXACT - 1)), cost, at)
    }

    /// The decision about a request of this cost that charged nothing. The request is admitted if enough units are
    /// left.
    pub fn peeked(&self, reply: &Reply, cost: u64, at: Timestamp) -> Decision {
        let is_there =
            self.standings(reply).all(|(part, standing)| cost <= part.room(standing, reply.now_us));
        self.decided(reply, self.outcome(cost, is_there), cost, at).uncharged()
    }

    fn outcome(&self, cost: u64, is_there: bool) -> Outcome {
        match is_there {
            _ if cost > self.most() => Outcome::Never,
            true => Outcome::Allowed,
            false => Outcome::Denied,
        }
    }

    /// The decision about units that were charged without a check.
    pub fn forced(&self, reply: &Reply, cost: u64, at: Timestamp) -> Decision {
        self.decided(reply, Outcome::Allowed, cost, at).forced()
    }

    fn decided(&self, reply: &Reply, outcome: Outcome, cost: u64, at: Timestamp) -> Decision {
        let each = self.standings(reply).map(|(part, standing)| {
            let own = match outcome {
                Outcome::Never if cost <= part.limit.most() => Outcome::Denied,
                // Another limit denied the request, and this limit was not charged.
                Outcome::Denied if cost <= part.room(standing, reply.now_us) => Outcome::Allowed,
                own => own,
            };
            part.decide(standing, own, cost, reply, at.as_nanos())
        });
        let facts = Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 };
        // The order of a single decision is not computed.
        let order = |decision: &Decision| (strictness(decision), decision.reset_after());
        let decision = each.max_by(|one, other| order(one).cmp(&order(other)));
        decision.unwrap_or_else(|| Decision::new(outcome, cost, 0, at.as_nanos(), facts))
    }

    /// The rest of the current window in microseconds; with several windows, of the window that ends first. `None` if
    /// no limit has windows.
    pub fn window_left_us(&self, reply: &Reply) -> Option<u64> {
        let left = |(part, standing): (&PlannedLimit, &LimitStanding)| match (part.kind, standing) {
            (Arithmetic::Windows(windows), LimitStanding::Windows { start_us, .. }) => {
                Some(windows.until_end_us(*start_us, reply.now_us))
            }
            _ => None,
        };
        self.standings(reply).filter_map(left).min()
    }

    fn standings<'a>(
        &'a self,
        reply: &'a Reply,
    ) -> impl Iterator<Item = (&'a PlannedLimit, &'a LimitStanding)> {
        self.parts().iter().zip(&reply.limits)
    }
}

impl PlannedLimit {
    /// The units left.
    fn left(&self, standing: &LimitStanding, now_us: u64) -> u64 {
        match (self.kind, *standing) {
            (Arithmetic::Pace(pace), LimitStanding::Pace { ahead, .. }) => pace.left(ahead),
            (Arithmetic::Blocked(blocks), LimitStanding::Pace { ahead, .. }) => blocks.pace.left(ahead),
            (Arithmetic::Windows(windows), LimitStanding::Windows { start_us, previous, current }) => {
                windows.left(previous, current, windows.until_end_us(start_us, now_us).min(windows.period_us))
            }
            (Arithmetic::Batches(batches), LimitStanding::Batches { used, .. }) => {
                batches.capacity.saturating_sub(used)
            }
            (Arithmetic::Calendar(periods), LimitStanding::Batches { used, .. }) => {
                periods.limit.saturating_sub(used)
            }
            (_, LimitStanding::Plain { left, .. }) => left,
            _ => 0,
        }
    }

    /// The largest cost that is admitted now. Minimum spacing admits any cost or none.
    fn room(&self, standing: &LimitStanding, now_us: u64) -> u64 {
        match (self.limit.kind(), self.left(standing, now_us)) {
            (LimitKind::MinimumSpacing { .. }, 1..) => u64::MAX,
            (_, left) => left,
        }
    }

    fn decide(
        &self,
        standing: &LimitStanding,
        outcome: Outcome,
        cost: u64,
        reply: &Reply,
        at_ns: u64,
    ) -> Decision {
        let now_us = reply.now_us;
        let remaining = self.left(standing, now_us);
        let facts = match (self.kind, *standing) {
            (Arithmetic::Pace(pace), LimitStanding::Pace { ahead, .. }) => {
                let mut facts = pace.facts(ahead, remaining, outcome, cost);
                if let (LimitKind::LeakyBucketQueue, Facts::Plain { delay_ns, .. }) =
                    (self.limit.kind(), &mut facts)
                {
                    let charged = if reply.granted > 0 { pace.interval.saturating_mul(cost) } else { 0 };
                    *delay_ns = pace.ns(ahead.saturating_sub(charged));
                }
                facts
            }
            (Arithmetic::Blocked(Blocks { pace, .. }), LimitStanding::Pace { ahead, is_blocked }) => {
                match pace.facts(ahead, remaining, outcome, cost) {
                    Facts::Plain { retry_ns, reset_ns, .. } if is_blocked && outcome == Outcome::Denied => {
                        pace.blocked(retry_ns, reset_ns, cost)
                    }
                    facts => facts,
                }
            }
            (Arithmetic::Windows(windows), LimitStanding::Windows { start_us, previous, current }) => {
                let to_end_us = windows.until_end_us(start_us, now_us);
                if windows.slides {
                    windows.facts(previous, current, to_end_us, remaining, outcome, cost)
                } else {
                    batch_facts(current, u64::MAX, to_end_us, windows.period_us)
                }
            }
            (Arithmetic::Batches(batches), LimitStanding::Batches { ends_us, used }) => {
                batch_facts(used, batches.batch, ends_us.saturating_sub(now_us), batches.period_us)
            }
            (Arithmetic::Calendar(periods), LimitStanding::Batches { ends_us, used }) => {
                batch_facts(used, u64::MAX, ends_us.saturating_sub(now_us), periods.length_us(ends_us))
            }
            (_, LimitStanding::Plain { left: _, wait_us, reset_us, delay_us }) => {
                let [retry_ns, reset_ns, delay_ns] =
                    [wait_us, reset_us, delay_us].map(|us| us.saturating_mul(NS));
                Facts::Plain { remaining, retry_ns, reset_ns, delay_ns }
            }
            _ => Facts::Plain { remaining: 0, retry_ns: 0, reset_ns: 0, delay_ns: 0 },
        };
        let most = match self.limit.kind() {
            LimitKind::MinimumSpacing { .. } => 1,
            _ => self.limit.most(),
        };
        Decision::new(outcome, cost, most, at_ns, facts)
    }
}

/// The figures of used units. A batch of them returns when this period ends, and at the end of each later one.
const fn batch_facts(used: u64, batch: u64, to_end_us: u64, period_us: u64) -> Facts {
    let (to_boundary_ns, period_ns) = (to_end_us.saturating_mul(NS), period_us.saturating_mul(NS));
    Facts::Batch { used, raised: 0, batch, to_boundary_ns, period_ns }
}

/// The order of several limits' decisions about one request. The greatest is the strictest: it denies for longest, or
/// has the fewest units left.
pub fn strictness(decision: &Decision) -> impl Ord + use<> {
    (decision.is_never(), decision.is_denied(), decision.retry_after(), Reverse(decision.remaining()))
}

/// The cost for which the caller needs the retry time: the request's cost if it was denied, otherwise one unit if no
/// units are left.
const fn wanted(outcome: Outcome, cost: u64, remaining: u64) -> u64 {
    match outcome {
        Outcome::Denied => cost,
        Outcome::Allowed | Outcome::Never => (remaining == 0) as u64,
    }
}

impl Pace {
    /// Converts ticks to nanoseconds. The result is whole microseconds, because times are given in microseconds.
    const fn ns(&self, ticks: u64) -> u64 {
        ticks.div_ceil(self.scale).saturating_mul(NS)
    }

    /// Returns the figures of a denial in a block: those of an arrival time, because they tell a block. They give the same
    /// wait and reset, in whole microseconds.
    fn blocked(&self, retry_ns: u64, reset_ns: u64, cost: u64) -> Facts {
        // A tick of `1 / scale` microseconds is 1,000 ticks of `1 / scale` nanoseconds.
        let interval = self.interval.saturating_mul(NS);
        let ticks = |ns: u64| ns.saturating_mul(self.scale);
        let (ahead, wait) = (ticks(reset_ns), ticks(retry_ns));
        let capacity = ahead.saturating_sub(wait).saturating_add(interval.saturating_mul(cost));
        // The scale is at most 2^30.
        let scale = u32::try_from(self.scale).unwrap_or(u32::MAX);
        Facts::Pace { ahead, interval, capacity, scale, queued: false, mark: 1 }
    }

    const fn facts(&self, ahead: u64, remaining: u64, outcome: Outcome, cost: u64) -> Facts {
        let wanted = self.interval.saturating_mul(wanted(outcome, cost, remaining));
        Facts::Plain {
            remaining,
            retry_ns: self.ns(ahead.saturating_sub(self.capacity.saturating_sub(wanted))),
            reset_ns: self.ns(ahead),
            delay_ns: self.ns(ahead.saturating_sub(self.capacity)),
        }
    }
}

impl Windows {
    fn until_end_us(&self, start_us: u64, now_us: u64) -> u64 {
        start_us.saturating_add(self.period_us).saturating_sub(now_us)
    }

    fn facts(
        &self,
        previous: u64,
        current: u64,
        to_end_us: u64,
        remaining: u64,
        outcome: Outcome,
        cost: u64,
    ) -> Facts {
        // The result of the algorithm of `tollgate`, in time units instead of nanoseconds.
        let units = to_end_us.div_ceil(self.unit_us);
        let window = self.period_us / self.unit_us;
        let blend = Facts::Blend {
            previous,
            current,
            left_ns: units.min(window),
            to_end_ns: units,
            window_ns: window,
            ceil: self.strict,
        };
        let decision = |outcome, cost| Decision::new(outcome, cost, self.limit, 0, blend);
        // The time was rounded up, so the part of the current unit that has passed is subtracted.
        let passed_us = (units * self.unit_us).saturating_sub(to_end_us);
        let ns = |units: std::time::Duration| {
            let units = u64::try_from(units.as_nanos()).unwrap_or(u64::MAX);
            units.saturating_mul(self.unit_us).saturating_sub(passed_us).saturating_mul(NS)
        };
        let wait = match wanted(outcome, cost, remaining) {
            0 => None,
            wanted => decision(Outcome::Denied, wanted).retry_after(),
        };
        Facts::Plain {
            remaining,
            retry_ns: wait.map_or(0, ns),
            reset_ns: ns(decision(Outcome::Allowed, 0).reset_after()),
            delay_ns: 0,
        }
    }
}
