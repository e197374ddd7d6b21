//! The sliding-window log.
//!
//! ```text
//! head = number of units ever admitted                  units are numbered from 0
//! tail = ring of [ time, ns : 63 | lap : 1 ]            unit p is at place p mod length; lap is 1 in the first round
//! ```
//!
//! A request of `cost` units is admitted if the unit that is `limit` places before its last unit has left the window.
//! The outcome therefore depends on one old time, even if the log is long. No call sweeps the log: a time is
//! overwritten only after it has expired.
//!
//! *Claim, then write.*
//!
//! 1. The exchange of the head claims places. The claimer then writes their times, oldest first.
//! 2. A claimed place that is not written yet still shows its time of the previous round, one window ago or more. That
//!    time alone would wrongly admit a request, but its lap bit shows that it is old.
//! 3. Each caller reads the newest place before it claims. Times are written in order, so if the newest place is
//!    written, all claimed places are written.
//! 4. If the newest place is unwritten, the caller *helps*: it writes the missing times instead of the claimer and
//!    starts again. No thread ever waits for another.
//!
//! A helper does not know the claimer's time. It writes its own time or the earliest time that the claim can have had,
//! whichever is later. The claimer still raises the time to the true one. Until then the time can be too early, by at
//! most the age of the helper's clock reading. The bound of every limiter already allows for callers with old clock
//! readings.
//!
//! Times in the ring never decrease: an admission at a time before the newest is written with the newest time.

use super::step::{Algorithm, Fill, Raise, Step, Stepper};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};
use crate::base::sync::AtomicU64;
use alloc::boxed::Box;

/// The sliding-window log: remembers the times of the last `limit` units. The burst is ignored.
///
/// Its decisions are exact: no interval of one period ever holds more than the limit. A window is half-open: a unit
/// admitted at `t` leaves at `t + period`.
///
/// The log takes 8 bytes per key for each unit of the limit. Limits above [`SlidingLog::MAX_LIMIT`] are an error; use
/// [`SubWindow`](crate::SubWindow) for them. To admit or deny, a check reads one old time, even if the limit is large.
/// To compute the remaining units, it does a binary search, O(log limit). An admitted cost of n writes n words.
///
/// The log can store times until the year 2262 (2⁶³ nanoseconds). From then on, it denies every cost above zero.
///
/// # Examples
/// ```
/// use tollgate::{ManualClock, Quota, RateLimiter, SlidingLog, Timestamp};
///
/// let log = SlidingLog::new(Quota::new(3, std::time::Duration::from_secs(10)));
/// let limiter = RateLimiter::builder(log).clock(ManualClock::default()).direct();
/// for (second, allowed) in [(0, true), (4, true), (8, true), (9, false), (11, true), (15, true), (15, false)] {
///     assert_eq!(limiter.at(Timestamp::from_secs(second)).check().is_allowed(), allowed);
/// }
/// ```
/// # Source
/// Common practice. "An alternative approach to rate limiting", Figma, 2017, describes a form that removes old times.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SlidingLog {
    limit: u64,
    window_ns: u64,
    /// Places in the ring: the limit, or more for a per-call quota.
    ring: u64,
}

const NAME: &str = "sliding log";
/// The last time that fits next to the lap bit.
const LAST_NS: u64 = u64::MAX >> 1;

impl SlidingLog {
    /// The largest limit: 512 KiB of times for each key.
    pub const MAX_LIMIT: u64 = 65_536;

    /// Creates a log of `limit` times, each held for one period.
    ///
    /// # Panics
    /// Panics if the limit is above [`SlidingLog::MAX_LIMIT`]. [`SlidingLog::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota) -> Self {
        or_panic(Self::checked(&quota))
    }

    /// Creates a log like [`SlidingLog::new`].
    ///
    /// # Errors
    /// Returns an error if the limit is above [`SlidingLog::MAX_LIMIT`].
    pub fn try_new(quota: Quota) -> Result<Self, QuotaError> {
        Ok(Self::checked(&quota)?)
    }

    pub(super) const fn checked(quota: &Quota) -> Result<Self, Reason> {
        let limit = quota.limit();
        if limit > Self::MAX_LIMIT {
            let max = Self::MAX_LIMIT;
            return Err(Reason::Word { algorithm: NAME, what: "the limit", got: limit, max });
        }
        Ok(Self { limit, window_ns: quota.period_ns(), ring: limit })
    }

    /// Returns the quota.
    pub(crate) const fn quota(&self) -> Quota {
        Quota::stored(self.limit, self.window_ns, self.limit)
    }

    /// Returns the ring place of a unit.
    #[inline]
    fn place(&self, unit: u64) -> usize {
        let place = unit % self.ring;
        #[expect(clippy::cast_possible_truncation, reason = "at most MAX_LIMIT")]
        let place = place as usize;
        place
    }

    /// Returns the lap bit that a unit's place has after the unit's time is written. The bit is 1 in the first round,
    /// so a place that was never written (0) looks like a place of the round before.
    #[inline]
    const fn lap(&self, unit: u64) -> u64 {
        (unit / self.ring + 1) & 1
    }

    /// Returns the step that writes `newest` and the unwritten places before it. Reads each word once, because a word
    /// may change between two readings. The store checks that the head is still the same.
    #[cold]
    fn owed(&self, newest: u64, word: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> Step {
        // The claim is later than the claim of the unit before it. It is also later than the time at which the unit of
        // the previous round, in the same place, left the window.
        let left_ns = if newest < self.ring { 0 } else { (word >> 1).saturating_add(self.window_ns) };
        let (mut from, mut before_ns) = (newest, 0);
        while from > 0 && newest - from + 1 < self.ring {
            let before = read(self.place(from - 1));
            if before & 1 == self.lap(from - 1) {
                before_ns = before >> 1;
                break;
            }
            from -= 1;
        }
        let time_ns = now_ns.max(left_ns).max(before_ns).min(LAST_NS);
        Step::Help(Fill { from, count: newest - from + 1, time_ns })
    }

    /// Returns how many units can be admitted now: the limit, less the units that are still in the window.
    fn remaining(&self, admitted: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> u64 {
        let first = admitted.saturating_sub(self.limit);
        let (mut low, mut high) = (first, admitted);
        while low < high {
            let middle = low + (high - low) / 2;
            let left = (read(self.place(middle)) >> 1).saturating_add(self.window_ns) <= now_ns;
            if left { low = middle + 1 } else { high = middle }
        }
        self.limit - (admitted - low)
    }
}

impl SlidingLog {
    /// Returns the time from now until one more unit fits, after `cost` more units are admitted at `time_ns`. Zero if
    /// units remain.
    #[inline]
    fn room_ns(
        &self,
        head: u64,
        read: impl Fn(usize) -> u64,
        (now_ns, time_ns): (u64, u64),
        cost: u64,
        remaining: u64,
    ) -> u64 {
        if remaining > 0 {
            return 0;
        }
        // No unit remains, so the log holds `limit` units. If the oldest one is not below the head, it is one of the
        // units that are admitted now.
        let oldest = head.saturating_add(cost).saturating_sub(self.limit);
        let came_ns = if oldest < head { read(self.place(oldest)) >> 1 } else { time_ns };
        came_ns.saturating_add(self.window_ns).saturating_sub(now_ns)
    }

    /// Returns the time of the newest unit, or the step that must first write missing times.
    #[inline]
    #[expect(clippy::result_large_err, reason = "the caller returns the step")]
    fn newest(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> Result<u64, Step> {
        let Some(newest) = head.checked_sub(1) else {
            return Ok(0);
        };
        let word = read(self.place(newest));
        if word & 1 == self.lap(newest) { Ok(word >> 1) } else { Err(self.owed(newest, word, read, now_ns)) }
    }

    #[inline]
    fn decide(
        &self,
        outcome: Outcome,
        now_ns: u64,
        cost: u64,
        remaining: u64,
        retry_ns: u64,
        newest_ns: u64,
    ) -> Decision {
        let reset_ns = match remaining == self.limit {
            true => 0,
            false => newest_ns.saturating_add(self.window_ns).saturating_sub(now_ns),
        };
        let facts = Facts::Plain { remaining, retry_ns, reset_ns, delay_ns: 0 };
        Decision::new(outcome, cost, self.limit, now_ns, facts)
    }

    #[inline]
    fn admit(
        &self,
        head: u64,
        read: impl Fn(usize) -> u64,
        now_ns: u64,
        newest_ns: u64,
        cost: u64,
        remaining: u64,
    ) -> Step {
        let time_ns = now_ns.max(newest_ns);
        let newest_ns = if cost > 0 { time_ns } else { newest_ns };
        let remaining = remaining.saturating_sub(cost);
        let room_ns = self.room_ns(head, read, (now_ns, time_ns), cost, remaining);
        let decision = self.decide(Outcome::Allowed, now_ns, cost, remaining, room_ns, newest_ns);
        if cost == 0 {
            return Step::admit(decision, head);
        }
        let fill = Some(Fill { from: head, count: cost, time_ns });
        Step::Admit { decision, next: head + cost, raise: None, fill }
    }
}

impl Stepper for SlidingLog {
    type Tail = Box<[AtomicU64]>;

    fn tail_len(&self) -> usize {
        usize::try_from(self.ring).unwrap_or(usize::MAX)
    }

    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let now_ns = now_ns.min(LAST_NS);
        let newest_ns = match self.newest(head, &read, now_ns) {
            Ok(newest_ns) => newest_ns,
            Err(help) => return help,
        };
        let remaining = self.remaining(head, &read, now_ns);
        let decide = |outcome, remaining, retry_ns, newest_ns| {
            self.decide(outcome, now_ns, cost, remaining, retry_ns, newest_ns)
        };
        if cost > self.limit {
            let room_ns = self.room_ns(head, &read, (now_ns, newest_ns), 0, remaining);
            return Step::Deny(decide(Outcome::Never, remaining, room_ns, newest_ns));
        }
        if cost == 0 {
            let room_ns = self.room_ns(head, &read, (now_ns, newest_ns), 0, remaining);
            return Step::admit(decide(Outcome::Allowed, remaining, room_ns, newest_ns), head);
        }
        // At the last time that a word can hold, no unit leaves the window any more.
        if now_ns == LAST_NS {
            return Step::Deny(decide(Outcome::Denied, remaining, u64::MAX, newest_ns));
        }
        // The unit that must have left the window: `limit` before the last unit of this request.
        if let Some(unit) = (head + cost).checked_sub(self.limit + 1) {
            let leaves_ns = (read(self.place(unit)) >> 1).saturating_add(self.window_ns);
            if leaves_ns > now_ns {
                return Step::Deny(decide(Outcome::Denied, remaining, leaves_ns - now_ns, newest_ns));
            }
        }
        self.admit(head, &read, now_ns, newest_ns, cost, remaining)
    }

    /// Charges only as many units as there is room for. A place may be claimed only after its unit of the previous
    /// round has left; otherwise the lap bit could not tell an unwritten place from a written one.
    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let now_ns = now_ns.min(LAST_NS);
        match self.newest(head, &read, now_ns) {
            Ok(newest_ns) => {
                let remaining = self.remaining(head, &read, now_ns);
                self.admit(head, &read, now_ns, newest_ns, cost.min(remaining), remaining)
            }
            Err(help) => help,
        }
    }

    fn reads(&self, other: &Self) -> bool {
        (self.window_ns, self.ring) == (other.window_ns, other.ring)
    }

    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        match head.checked_sub(1) {
            None => true,
            Some(newest) => {
                let word = read(self.place(newest));
                word & 1 == self.lap(newest) && (word >> 1).saturating_add(self.window_ns) <= now_ns
            }
        }
    }

    /// The places of the last round are written, and their times do not decrease. Places that no unit had are empty.
    fn accepts(&self, head: u64, read: impl Fn(usize) -> u64) -> bool {
        let mut unused = (head..self.ring).map(|unit| read(self.place(unit)));
        let mut before_ns = 0;
        let mut written = (head.saturating_sub(self.ring)..head).map(|unit| (unit, read(self.place(unit))));
        head <= LAST_NS
            && unused.all(|word| word == 0)
            && written.all(|(unit, word)| {
                let is_next = word & 1 == self.lap(unit) && word >> 1 >= before_ns;
                before_ns = word >> 1;
                is_next
            })
    }

    fn filled(&self, fill: Fill, mut raise: impl FnMut(Raise)) {
        for unit in fill.from..fill.from + fill.count {
            raise(Raise { index: self.place(unit), value: (fill.time_ns << 1) | self.lap(unit) });
        }
    }
}

impl Algorithm for SlidingLog {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        if quota.limit() > self.ring {
            let what = "the limit, in a log that was made for a lower limit,";
            return Err(Reason::Word { algorithm: NAME, what, got: quota.limit(), max: self.ring }.into());
        }
        if quota.period_ns() != self.window_ns {
            return Err(Reason::Layout { algorithm: NAME, same: "period" }.into());
        }
        Ok(Self { limit: quota.limit(), ..*self })
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Self::try_new(*quota)
    }
}
