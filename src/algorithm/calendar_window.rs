//! Fixed windows that begin at the times of a calendar: months, years, weeks and days in a time zone.
//!
//! ```text
//! head = [ index of the period + 1 | units used ]
//! ```
//!
//! The times at which periods begin are in a table, which exists before the first check. A check searches the table.
//! Everything else is the same as for a fixed window: a word of an earlier period counts as nothing used, and a time
//! before the word's period counts as the beginning of that period.

use alloc::boxed::Box;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Range;

use super::split::Split;
use super::step::{Algorithm, Refund, Refunded, Step, Stepper};
use crate::base::clock::Timestamp;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};

const NAME: &str = "calendar window";
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The periods of a calendar: months, years, weeks or days in a time zone.
///
/// A calendar is a handle to a table, which `Calendar::new` (feature `calendar`) computes once. A copy costs nothing.
/// Calendars with the same periods, start and zone are equal.
///
/// Periods are half-open. The table contains all periods from the Unix epoch to 2106-02-07. The first period begins at
/// the epoch or before. **The last one never ends:** after 2106, used units do not return.
#[derive(Copy, Clone)]
pub struct Calendar(&'static CalendarTable);

/// The table of a calendar.
pub(crate) struct CalendarTable {
    text: Box<str>,
    /// The second since the epoch at which each period begins, in ascending order. The first one is 0.
    starts: Box<[u32]>,
    /// The length of the longest period that ends.
    longest_ns: u64,
    /// The usual length of a period in seconds, at least 1.
    usual: u32,
    split: Split,
}

/// A period of a calendar, in nanoseconds.
#[derive(Copy, Clone)]
struct Period {
    index: u64,
    start_ns: u64,
    end_ns: u64,
}

impl CalendarTable {
    /// Creates a table from the seconds at which periods begin, in ascending order. Times before the epoch count as the
    /// epoch, and times at which two periods begin count once.
    #[allow(dead_code, reason = "the feature calendar computes tables")]
    pub(crate) fn new(text: Box<str>, seconds: impl Iterator<Item = u32>) -> Self {
        let mut starts = alloc::vec![0];
        let mut longest = 0;
        for second in seconds {
            let last = starts[starts.len() - 1];
            if second > last {
                longest = longest.max(second - last);
                starts.push(second);
            }
        }
        let longest_ns = u64::from(longest.max(1)) * NANOS_PER_SEC;
        let count = u32::try_from(starts.len()).unwrap_or(u32::MAX);
        let split = Split::for_periods(count);
        let last = starts[starts.len() - 1];
        let usual = last.checked_div(count - 1).unwrap_or(1).max(1);
        Self { text, starts: starts.into(), longest_ns, usual, split }
    }

    /// Returns the index of the period that contains a time.
    #[inline]
    pub(crate) fn index(&self, now_ns: u64) -> usize {
        // No start is above the largest 32-bit number, so all later times are in the last period.
        let second = u32::try_from(now_ns / NANOS_PER_SEC).unwrap_or(u32::MAX);
        // The first period begins at 0, so the search ends there.
        let mut index = self.guess(second);
        while self.starts[index] > second {
            index -= 1;
        }
        while self.starts.get(index + 1).is_some_and(|&next| next <= second) {
            index += 1;
        }
        index
    }

    /// Returns an index that is at most two from the right one, as a test checks for each zone: the lengths of periods
    /// differ, but their sums hardly do.
    #[inline]
    pub(crate) fn guess(&self, second: u32) -> usize {
        ((second / self.usual) as usize).min(self.starts.len() - 1)
    }

    /// Returns a period; the last one, if there is none with this index.
    fn period(&self, index: usize) -> Period {
        let index = index.min(self.starts.len() - 1);
        let ns = |start: u32| u64::from(start) * NANOS_PER_SEC;
        let end_ns = self.starts.get(index + 1).map_or(u64::MAX, |&start| ns(start));
        Period { index: index as u64, start_ns: ns(self.starts[index]), end_ns }
    }
}

impl Calendar {
    #[allow(dead_code, reason = "the feature calendar computes tables")]
    pub(crate) const fn of(table: &'static CalendarTable) -> Self {
        Self(table)
    }

    /// Returns the period that contains `now`: its first time, and the first time after it.
    ///
    /// The first period of the table begins at the epoch. The last one ends at the latest [`Timestamp`].
    #[must_use]
    pub fn period_at(self, now: Timestamp) -> Range<Timestamp> {
        let period = self.0.period(self.0.index(now.as_nanos()));
        Timestamp::from_nanos(period.start_ns)..Timestamp::from_nanos(period.end_ns)
    }

    /// Returns a quota of `limit` units for each period of the calendar. The quota's period is the calendar's longest
    /// one, such as 366 days: no two periods need to have the same length, and a quota has only one.
    ///
    /// Use it where a method takes a quota, such as [`RateLimiter::set_quota`](crate::RateLimiter::set_quota).
    ///
    /// # Errors
    /// Returns an error if the limit is 0, or above 32 units per nanosecond.
    pub fn quota(self, limit: u64) -> Result<Quota, QuotaError> {
        Quota::try_new(limit, core::time::Duration::from_nanos(self.0.longest_ns))
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::eq(self.0, other.0)
    }
}

impl Eq for Calendar {}

impl Hash for Calendar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        core::ptr::from_ref(self.0).hash(state);
    }
}

impl fmt::Display for Calendar {
    /// Writes the period, its start and the time zone: `month from day 15 at 06:00 in Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Calendar({self})")
    }
}

/// Fixed windows that follow a calendar: at most `limit` units in each month, year, week or day of a time zone.
///
/// The bound is that of [`FixedWindow`](crate::FixedWindow): a period never admits more than the limit, and around the
/// end of a period **twice the limit** can be admitted in a short time. [`Decision::retry_after`] and
/// [`Decision::reset_after`] point to the end of the period, also if a month is short or a day has 23 hours.
///
/// The state is one word. It has at least 2⁴⁷ units of room. A calendar needs a direct or a keyed store.
///
/// A [`Calendar`] is built with the feature `calendar`: see `docs/calendars.md`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct CalendarWindow {
    calendar: Calendar,
    limit: u64,
}

/// A state at one time.
struct Present {
    period: Period,
    used: u64,
}

impl CalendarWindow {
    /// Creates windows of `limit` units for each period of the calendar.
    ///
    /// # Panics
    /// Panics if the limit is 0, or if a 64-bit word has no room for the limit and the number of the period.
    /// [`CalendarWindow::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(calendar: Calendar, limit: u64) -> Self {
        or_panic(Self::checked(calendar, limit))
    }

    /// Creates windows like [`CalendarWindow::new`].
    ///
    /// # Errors
    /// Returns an error if the limit is 0, or if a 64-bit word has no room for the limit and the number of the period.
    /// The error states the maximum.
    pub fn try_new(calendar: Calendar, limit: u64) -> Result<Self, QuotaError> {
        Ok(Self::checked(calendar, limit)?)
    }

    const fn checked(calendar: Calendar, limit: u64) -> Result<Self, Reason> {
        if limit == 0 {
            return Err(Reason::ZeroLimit);
        }
        let max = calendar.0.split.max_low();
        if limit > max {
            return Err(Reason::Word { algorithm: NAME, what: "the limit", got: limit, max });
        }
        Ok(Self { calendar, limit })
    }

    /// Creates windows with a quota's limit. Its period must be that of [`Calendar::quota`].
    pub(super) const fn of_quota(calendar: Calendar, quota: &Quota) -> Result<Self, Reason> {
        if quota.period_ns() != calendar.0.longest_ns {
            return Err(Reason::Layout { algorithm: NAME, same: "period, which Calendar::quota gives" });
        }
        Self::checked(calendar, quota.limit())
    }

    /// Returns the calendar.
    #[must_use]
    pub const fn calendar(&self) -> Calendar {
        self.calendar
    }

    /// Returns the quota of [`Calendar::quota`].
    pub(super) fn quota(&self) -> Quota {
        Quota::stored(self.limit, self.calendar.0.longest_ns, self.limit)
    }

    /// The current period is never before the word's own.
    #[inline]
    fn present(&self, head: u64, now_ns: u64) -> Present {
        let table = self.calendar.0;
        let now_index = table.index(now_ns);
        let (stored, used) = self.calendar.0.split.unpack(head);
        match usize::try_from(stored) {
            Ok(stored) if stored > now_index => Present { period: table.period(stored - 1), used },
            _ => Present { period: table.period(now_index), used: 0 },
        }
    }

    fn decide(&self, outcome: Outcome, now_ns: u64, cost: u64, present: &Present) -> Decision {
        let Period { start_ns, end_ns, .. } = present.period;
        let facts = Facts::Batch {
            used: present.used,
            raised: 0,
            batch: u64::MAX,
            to_boundary_ns: end_ns - now_ns,
            period_ns: end_ns - start_ns,
        };
        Decision::new(outcome, cost, self.limit, now_ns, facts)
    }

    /// Admits `cost` more units.
    fn admit(&self, head: u64, now_ns: u64, cost: u64, present: &Present) -> (Decision, u64) {
        let after = Present { used: present.used + cost, ..*present };
        let decision = self.decide(Outcome::Allowed, now_ns, cost, &after);
        let next =
            if cost == 0 { head } else { self.calendar.0.split.pack(present.period.index + 1, after.used) };
        (decision, next)
    }
}

impl Stepper for CalendarWindow {
    type Tail = ();

    #[inline]
    fn step(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let present = self.present(head, now_ns);
        if cost > self.limit {
            return Step::Deny(self.decide(Outcome::Never, now_ns, cost, &present));
        }
        // With a per-call quota, more units may be used than this limit.
        if cost > 0 && cost > self.limit.saturating_sub(present.used) {
            return Step::Deny(self.decide(Outcome::Denied, now_ns, cost, &present));
        }
        let (decision, next) = self.admit(head, now_ns, cost, &present);
        Step::admit(decision, next)
    }

    fn force(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let present = self.present(head, now_ns);
        let cost = cost.min(self.calendar.0.split.max_low().saturating_sub(present.used));
        let (decision, next) = self.admit(head, now_ns, cost, &present);
        Step::admit(decision.forced(), next)
    }

    const CAN_REFUND: bool = true;

    /// Refunds up to `units` of a charge, if its period is the current one. Without a charge, refunds up to `units` of the
    /// used units.
    fn refund(&self, head: u64, _read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let &Refund { charge, units, now_ns } = refund;
        let Present { period, used } = self.present(head, now_ns);
        let mut units = units.min(used);
        if let Some(charge) = charge {
            let &Facts::Batch { batch: u64::MAX, to_boundary_ns, .. } = charge.facts() else { return None };
            if charge.at_ns().checked_add(to_boundary_ns) != Some(period.end_ns) {
                return None;
            }
            units = units.min(charge.charged());
        }
        (units > 0)
            .then(|| Refunded { next: self.calendar.0.split.pack(period.index + 1, used - units), units })
    }

    fn is_idle(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.present(head, now_ns).used == 0
    }

    fn reads(&self, other: &Self) -> bool {
        self.calendar == other.calendar
    }
}

impl Algorithm for CalendarWindow {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::of_quota(self.calendar, quota)?)
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::of_quota(self.calendar, quota)?)
    }
}
