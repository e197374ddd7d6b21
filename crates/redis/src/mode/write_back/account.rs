//! The account of one key under one limit in one process: the units admitted, the units posted, and how many more the
//! process may admit.
//!
//! *Shares.* A process may spend `share × room`, where `room` is the number of units left at its last answer. With N
//! processes and a limit of L, where the shared state counts `used` units and `own` of them are this process's:
//!
//! ```text
//! share = (own + L / N) / (used + L)
//! ```
//!
//! The share is 1/N at first, and later follows the process's part of the traffic. A process never gets more than its
//! share, so the shares of all processes have a bounded sum: the docs of `WriteBackLimiter` contain the proof. A
//! process that has all the traffic gets twice as many units each time until half of the limit is used, and then about
//! half of the remaining units.
//!
//! *Totals* start from zero in each window; with GCRA, after each answer.

use tollgate_protocol::{
    LimitStanding, POSTS_KEPT_US, PlannedLimit, Portion, PostedTotal, Question, Reply, Windows,
};

use super::allowance::MOST;

/// Levels are counted in parts of a unit, so that a slow refill is not lost: 2^20 parts.
const FRACTION_BITS: u32 = 20;
/// An amount of at most one part in `LITTLE` of a burst is not worth a separate call. Without this bound, a key that is
/// in constant use would cause a call for each refilled unit.
const LITTLE: u64 = 64;
/// Shares are counted in parts of 2^32.
const WHOLE: u64 = 1 << 32;

/// An account; see the module docs.
#[derive(Clone, Debug)]
pub(super) struct Account {
    part: PlannedLimit,
    /// This region's part of the limit, if several regions share it.
    portion: Option<Portion>,
    process: u64,
    pub(super) epoch: Epoch,
    /// A past epoch whose units are not all charged yet.
    before: Option<Epoch>,
    /// The call in flight, which is a post or a peek. There is at most one.
    asked: Option<Option<PostedTotal>>,
    /// The highest total of this epoch that was ever sent. The server may have charged this total,
    /// regardless of its answer.
    tried: u64,
    /// When a total of this epoch was first sent.
    tried_ns: u64,
    /// Whether the last call failed.
    pub(super) fails: bool,
    /// The amount that may be spent before the next answer, in parts of a unit. If it is negative, this amount must
    /// refill first.
    level: i64,
    /// Whether the window may not have begun yet. Spent units then belong to the allowances of this window and of the
    /// previous one.
    is_early: bool,
    /// The local time up to which the level is refilled.
    refilled_ns: u64,
    share: u64,
    /// The state at the last answer, in units: the debt, this process's part of it, and the units left.
    known: Option<LastAnswer>,
}

/// The units admitted in a window, or with GCRA in a batch.
#[derive(Copy, Clone, Default, Debug)]
pub(super) struct Epoch {
    pub(super) number: u64,
    /// The units admitted, and the units known to be charged.
    total: u64,
    acked: u64,
}

impl Epoch {
    const fn pending(&self) -> u64 {
        self.total - self.acked
    }
}

#[derive(Copy, Clone, Debug)]
struct LastAnswer {
    own: u64,
    used: u64,
    room: u64,
    at_us: u64,
}

/// The meaning of an answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Learnt {
    /// The answer is about the current epoch. Of the units charged now, this many exceed the limit.
    Present { overshoot: u64 },
    /// The answer is about another epoch.
    Other { overshoot: u64 },
    /// The window of the post is over, so this many units were not charged.
    TooLate { dropped: u64 },
}

impl Account {
    /// Creates an account for a key that is new in this process. It starts with [its share](Self::starting_share) if `has_share`
    /// is set, and with none otherwise.
    pub(super) fn new(
        part: PlannedLimit,
        process: u64,
        epoch: u64,
        (processes, portion): (u64, Option<Portion>),
        has_share: bool,
        now_ns: u64,
    ) -> Self {
        let mut account = Self {
            part,
            portion,
            process,
            epoch: Epoch { number: epoch, ..Epoch::default() },
            before: None,
            asked: None,
            tried: 0,
            tried_ns: 0,
            fails: false,
            level: 0,
            is_early: false,
            refilled_ns: now_ns,
            share: WHOLE / processes.max(1),
            known: None,
        };
        if has_share {
            account.level = fixed_point(account.starting_share(processes));
        }
        account
    }

    fn most(&self) -> u64 {
        self.part.limit.most()
    }

    /// The units that a process may admit for a key, or for a window, before the first answer.
    fn starting_share(&self, processes: u64) -> u64 {
        let units = self.portion.map_or(self.most(), |portion| portion.part(self.most()));
        (units / processes.max(1)).max(1)
    }

    const fn windows(&self) -> Option<Windows> {
        self.part.windows()
    }

    pub(super) fn slides(&self) -> bool {
        self.windows().is_some_and(|windows| windows.slides)
    }

    /// Returns whether units can become available within a window.
    pub(super) fn gains_units(&self) -> bool {
        // A region's share is renewed within a window.
        self.slides() || self.portion.is_some()
    }

    /// The post in flight.
    fn posted(&self) -> Option<PostedTotal> {
        self.asked.flatten()
    }

    pub(super) fn period_ns(&self) -> Option<u64> {
        self.windows().map(|windows| windows.period_us.saturating_mul(1_000))
    }

    /// The end of the current window, by the server's clock; never, with GCRA.
    pub(super) fn end_ns(&self) -> u64 {
        let end = |period_ns| self.epoch.number.saturating_add(1).saturating_mul(period_ns);
        self.period_ns().map_or(u64::MAX, end)
    }

    /// The whole units that may be spent now.
    pub(super) fn left(&self) -> u64 {
        u64::try_from(self.level >> FRACTION_BITS).unwrap_or(0)
    }

    /// The units that were admitted and are not known to be charged.
    pub(super) fn pending(&self) -> u64 {
        self.before.map_or(0, |before| before.pending()).saturating_add(self.epoch.pending())
    }

    /// Returns whether an answer is outstanding.
    pub(super) const fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Raises the level to the amount that one process alone may admit in a window while the server is unavailable. It
    /// does so only for limits with windows, and not if the last answer left fewer than `cost` units.
    pub(super) fn raise_to_starting_share(&mut self, cost: u64, processes: u64) {
        if self.windows().is_some() && self.known.is_none_or(|known| known.room >= cost) {
            let share = self.starting_share(processes).saturating_sub(self.epoch.total);
            self.level = self.level.max(fixed_point(share));
        }
    }

    /// The units left at the last answer of this epoch, if there was one.
    pub(super) fn room(&self) -> Option<u64> {
        self.known.map(|known| known.room)
    }

    /// Returns whether another call at once is worthwhile. At the last answer, at least `cost` units were left. With
    /// GCRA, units also refill here without a call. So the share of the units left must also be at least one unit, and
    /// the units left must be more than a small part of the burst.
    pub(super) fn is_worth_asking(&self, cost: u64) -> bool {
        self.known.is_none_or(|known| {
            let comes_back = self.windows().is_none();
            let is_little = scaled(self.share, known.room) == 0 || known.room <= self.most() / LITTLE;
            known.room >= cost && !(comes_back && is_little)
        })
    }

    /// Records that this many units were admitted.
    pub(super) fn spend(&mut self, units: u64) {
        self.epoch.total = self.epoch.total.saturating_add(units);
        self.level = self.level.saturating_sub(fixed_point(units));
    }

    /// With GCRA, adds this process's share of the units that refilled since.
    pub(super) fn refill(&mut self, now_ns: u64) {
        let Some(pace) = self.part.pace() else { return };
        let passed = now_ns.saturating_sub(self.refilled_ns);
        if passed == 0 {
            return;
        }
        self.refilled_ns = now_ns;
        // The passed ticks, rounded down, divided by the ticks of a unit. The product is below 2^114.
        let ticks = (u128::from(passed) * u128::from(pace.scale)) << FRACTION_BITS;
        let units = ticks / 1_000 / u128::from(pace.interval);
        let units = units.saturating_mul(self.share.into()) >> 32;
        let most = fixed_point(scaled(self.share, self.most()).max(1));
        let more = i64::try_from(units).unwrap_or(i64::MAX);
        self.level = self.level.saturating_add(more).min(most.max(self.level));
    }

    /// The time until `units` units are refilled, if no answer arrives before.
    pub(super) fn until_refilled_ns(&self, units: u64) -> u64 {
        let Some(pace) = self.part.pace() else { return u64::MAX };
        let missing = u128::try_from(fixed_point(units).saturating_sub(self.level)).unwrap_or(0);
        let ticks = (missing * u128::from(pace.interval)) << (32 - FRACTION_BITS);
        let ns = ticks.saturating_mul(1_000) / u128::from(self.share.max(1)) / u128::from(pace.scale);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// The time until the debt of the last answer, and all units admitted since, are paid.
    pub(super) fn until_paid_ns(&self) -> u64 {
        let Some(pace) = self.part.pace() else { return 0 };
        let owed = self.known.map_or(0, |known| known.used).saturating_add(self.pending());
        let ns = u128::from(owed) * u128::from(pace.interval) * 1_000 / u128::from(pace.scale);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    /// Starts a window. Unspent units of the previous window are not used. Unposted units of the previous window are
    /// dropped, with two exceptions: a window that a sliding window still counts, and the units of the post in flight.
    /// Returns the dropped units: the shared state does not contain them, and never will.
    #[must_use]
    pub(super) fn turn(&mut self, number: u64, processes: u64, has_share: bool) -> u64 {
        let mut dropped = self.before.take().map_or(0, |before| before.pending());
        let mut over = self.epoch;
        if !(self.slides() && number == over.number.saturating_add(1)) {
            // Only the post in flight may still arrive in time.
            let sent = self.posted().filter(|sent| sent.epoch == over.number);
            let kept = sent.map_or(over.acked, |sent| sent.total).clamp(over.acked, over.total);
            dropped += over.total - kept;
            over.total = kept;
        }
        self.before = (over.pending() > 0).then_some(over);
        self.epoch = Epoch { number, ..Epoch::default() };
        self.tried = 0;
        self.known = None;
        self.is_early = false;
        self.share = WHOLE / processes.max(1);
        self.level = if has_share { fixed_point(self.starting_share(processes)) } else { 0 };
        dropped
    }

    /// Like [`turn`](Self::turn), to a window that is not later. This process may already have spent and posted units
    /// of that window. So it gets no units before an answer, and posts with a new number.
    #[must_use]
    pub(super) fn turn_back(&mut self, epoch: u64, processes: u64, process: u64) -> u64 {
        self.process = process;
        self.turn(epoch, processes, false)
    }

    /// Like [`turn`](Self::turn), when the next window may have begun. No more may be spent than is left of the
    /// previous window. So each unit belongs to both allowances, whichever window contains it. It is posted to the
    /// later window.
    #[must_use]
    pub(super) fn turn_early(&mut self, epoch: u64, processes: u64, has_share: bool) -> u64 {
        let left = self.level.max(0);
        let dropped = self.turn(epoch, processes, has_share);
        self.level = self.level.min(left);
        self.is_early = true;
        dropped
    }

    /// The window has certainly begun.
    pub(super) fn begin(&mut self, processes: u64, has_share: bool) {
        if std::mem::take(&mut self.is_early) && has_share && self.known.is_none() {
            self.level =
                fixed_point(self.starting_share(processes)).saturating_sub(fixed_point(self.epoch.total));
        }
    }

    /// With GCRA, drops units that time has already paid for: if no answer arrived for longer than a burst takes to
    /// refill, all units except a share of the burst. Units that were sent stay, because the server may have charged
    /// them. Returns the dropped units.
    #[must_use]
    pub(super) fn clip(&mut self) -> u64 {
        if self.windows().is_some() || self.posted().is_some() {
            return 0;
        }
        let most = scaled(self.share, self.most()).max(1).max(self.tried);
        let dropped = self.epoch.total.saturating_sub(most);
        self.epoch.total -= dropped;
        dropped
    }

    /// With GCRA, drops units that were sent long ago without an answer. The server may soon forget that it charged
    /// them; if they were sent again, they would be charged twice. By then, time has paid for them. Returns the dropped
    /// units.
    #[must_use]
    pub(super) fn give_up(&mut self, now_ns: u64) -> u64 {
        let kept_us = self.part.refill_us() + POSTS_KEPT_US / 2;
        let is_recent = now_ns.saturating_sub(self.tried_ns) < kept_us.saturating_mul(1_000);
        if self.windows().is_some() || self.posted().is_some() || self.tried == 0 || is_recent {
            return 0;
        }
        let dropped = self.epoch.total.min(self.tried);
        self.epoch.total -= dropped;
        self.tried = 0;
        self.epoch.number = self.epoch.number.saturating_add(1);
        dropped
    }

    /// Returns the next call: a post of unposted units, oldest first. If there are none and `peeks` is set, a call that
    /// reads the state. At most one call is in flight.
    #[must_use]
    pub(super) fn ask(&mut self, peeks: bool, now_ns: u64) -> Option<Question> {
        if self.is_asked() {
            return None;
        }
        self.asked = match self.before.filter(|_| self.slides()).unwrap_or(self.epoch) {
            Epoch { number: epoch, total, acked } if total > acked => {
                Some(Some(PostedTotal { epoch, total }))
            }
            _ => peeks.then_some(None),
        };
        if let Some(sent) = self.posted().filter(|sent| sent.epoch == self.epoch.number) {
            if self.tried == 0 {
                self.tried_ns = now_ns;
            }
            self.tried = self.tried.max(sent.total);
        }
        self.asked.map(|post| match post {
            Some(PostedTotal { epoch, total }) => Question::Post { process: self.process, epoch, total },
            None => Question::Peek { cost: 0 },
        })
    }

    /// While no answer arrives from the server, at most 1/N of the rate refills here.
    pub(super) fn fall_back(&mut self, processes: u64) {
        self.share = self.share.min(WHOLE / processes.max(1));
    }

    /// Reports that the call was not answered. A post is sent again, with the same or a larger total, if it can still
    /// be charged. Returns the dropped units.
    #[must_use]
    pub(super) fn failed(&mut self) -> u64 {
        self.fails = true;
        let sent = self.posted();
        self.asked = None;
        match (self.before, sent) {
            (Some(before), Some(PostedTotal { epoch, .. })) if before.number == epoch && !self.slides() => {
                self.before = None;
                before.pending()
            }
            _ => 0,
        }
    }

    /// Reports that the call was answered. At least `least` units may be spent, if this many are left.
    pub(super) fn answered(&mut self, reply: &Reply, processes: u64, least: u64, received_ns: u64) -> Learnt {
        let (granted, at_us) = (reply.granted, reply.now_us);
        self.fails = false;
        let sent = self.posted();
        self.asked = None;
        let Some(standing) = reply.limits.first() else { return Learnt::Present { overshoot: 0 } };
        let (used, over, room, is_present) = match (self.part.pace(), self.windows(), standing) {
            (Some(pace), _, LimitStanding::Pace { ahead, .. }) => {
                let room = pace.capacity.saturating_sub(*ahead) / pace.interval;
                let used = ahead.div_ceil(pace.interval);
                (used, used.saturating_sub(self.most()), room, true)
            }
            (_, Some(windows), LimitStanding::Windows { start_us, previous, current }) => {
                let index = start_us / windows.period_us;
                let left_us = windows.period_us.saturating_sub(at_us.saturating_sub(*start_us));
                let weighed = if windows.slides { windows.weighed(*previous, left_us) } else { 0 };
                let all = current.saturating_add(weighed);
                let is_taken =
                    |epoch: u64| epoch == index || (windows.slides && epoch.saturating_add(1) == index);
                if let Some(PostedTotal { epoch, .. }) = sent.filter(|sent| !is_taken(sent.epoch)) {
                    return Learnt::TooLate { dropped: self.lose(epoch, index) };
                }
                let is_present = index == self.epoch.number;
                (all, all.saturating_sub(windows.limit), windows.limit.saturating_sub(all), is_present)
            }
            _ => return Learnt::Other { overshoot: 0 },
        };
        let overshoot = over.min(granted);
        let own = self.own_as_of(at_us);
        let newly = sent.map_or(0, |sent| self.charged(sent, granted));
        if !is_present {
            return Learnt::Other { overshoot };
        }
        self.is_early = false;
        let own = own.saturating_add(newly).min(used);
        self.known = Some(LastAnswer { own, used, room, at_us });
        self.share = share(own, used, self.most(), processes);
        let spendable = match i64::try_from(over) {
            Ok(0) => fixed_point(scaled(self.share, room).max(least.min(room))),
            _ => -fixed_point(scaled(self.share, over)),
        };
        self.level = spendable.saturating_sub(fixed_point(self.epoch.pending()));
        self.refilled_ns = received_ns;
        Learnt::Present { overshoot }
    }

    /// This process's part of the units in the shared state, before the last post. With GCRA, the debts of all processes
    /// shrink in proportion.
    fn own_as_of(&self, at_us: u64) -> u64 {
        match (self.part.pace(), self.known) {
            (Some(_), None) => 0,
            (Some(pace), Some(known)) => {
                let paid_ticks = u128::from(at_us.saturating_sub(known.at_us)) * u128::from(pace.scale);
                let paid = u64::try_from(paid_ticks.div_ceil(pace.interval.into())).unwrap_or(u64::MAX);
                let left = u128::from(known.own) * u128::from(known.used.saturating_sub(paid));
                u64::try_from(left / u128::from(known.used.max(1))).unwrap_or(0)
            }
            _ => self.epoch.acked,
        }
    }

    /// Records that a post was charged. Returns the increase of the units known to be charged.
    fn charged(&mut self, sent: PostedTotal, granted: u64) -> u64 {
        let PostedTotal { epoch, total } = sent;
        if let Some(before) = self.before.as_mut().filter(|before| before.number == epoch) {
            before.acked = before.acked.max(total.min(before.total));
            if before.pending() == 0 {
                self.before = None;
            }
            return 0;
        }
        let is_window = self.windows().is_some();
        let present = &mut self.epoch;
        if epoch != present.number {
            return 0;
        }
        if is_window {
            let newly = total.saturating_sub(present.acked);
            present.acked = present.acked.max(total.min(present.total));
            return newly;
        }
        // An answered batch is over. Units admitted since belong to the next batch.
        let total = present.total.saturating_sub(total);
        *present = Epoch { number: present.number.saturating_add(1), total, acked: 0 };
        self.tried = 0;
        granted
    }

    /// Records that a post arrived after its window was over, so that nothing was charged. A post to a window that the
    /// server has not reached yet is kept. Returns the dropped units.
    fn lose(&mut self, epoch: u64, index: u64) -> u64 {
        if epoch > index {
            return 0;
        }
        if let Some(before) = self.before.take_if(|before| before.number == epoch) {
            return before.pending();
        }
        if epoch != self.epoch.number {
            return 0;
        }
        // The local clock is behind. Units that were admitted after the post was sent also belong to a past window.
        let lost = self.epoch.pending();
        self.epoch.acked = self.epoch.total;
        self.level = 0;
        lost
    }
}

/// The share; see the module docs.
fn share(own: u64, used: u64, limit: u64, processes: u64) -> u64 {
    let (n, limit) = (u128::from(processes.max(1)), u128::from(limit));
    let numerator = u128::from(own.min(MOST)) * n + limit;
    let denominator = n * (u128::from(used) + limit);
    // Limits and processes are below 2^64 and 2^32. Both sides are shifted right where the left shift would overflow.
    let excess = u128::BITS.saturating_sub(numerator.leading_zeros()).saturating_sub(u128::BITS - 32);
    let share = ((numerator >> excess) << 32) / (denominator >> excess).max(1);
    u64::try_from(share).unwrap_or(WHOLE).min(WHOLE)
}

/// This share of this many units, rounded down.
fn scaled(share: u64, units: u64) -> u64 {
    u64::try_from((u128::from(share) * u128::from(units)) >> 32).unwrap_or(u64::MAX)
}

fn fixed_point(units: u64) -> i64 {
    // At most 2^40, so 2^60 after the shift.
    i64::try_from(units.min(MOST) << FRACTION_BITS).unwrap_or(i64::MAX)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use tollgate::{Limit, Quota};
    use tollgate_protocol::Plan;

    fn account(limit: Limit, processes: u64) -> Account {
        Account::new(Plan::new(&[limit]).unwrap().parts()[0], 1, 0, (processes, None), true, 0)
    }

    fn windows(granted: u64, current: u64) -> Reply {
        let limits = smallvec![LimitStanding::Windows { start_us: 0, previous: 0, current }];
        Reply::new(granted, 1, limits)
    }

    // G80
    #[test]
    fn sum_of_shares_is_bounded() {
        assert_eq!(share(0, 0, 100, 4), WHOLE / 4);
        assert_eq!(share(100, 100, 100, 1), WHOLE);
        assert_eq!(share(50, 50, 100, 2), 2 * WHOLE / 3);
        for processes in [1, 3, 1_000, u64::from(u32::MAX)] {
            for used in [0, 1, 99, u64::MAX >> 1] {
                for own in [0, used / 2, used] {
                    for limit in [1, 100, 1 << 51] {
                        assert!(share(own, used, limit, processes) <= WHOLE);
                    }
                }
            }
        }
        // The integral of the proof: each of ten processes posts a tenth, one after another, and gets its share.
        let handed: u64 =
            (1..=10).map(|turn| scaled(share(100, 100 * turn, 1_000, 10), 1_000 - 100 * turn)).sum();
        assert!(handed <= 1_387, "{handed}");
    }

    #[test]
    fn answer_grants_a_share_of_remaining_units() {
        let mut account = account(Limit::fixed_window(Quota::per_minute(100)), 10);
        assert_eq!(account.left(), 10);
        account.spend(10);
        assert_eq!(account.ask(false, 0), Some(Question::Post { process: 1, epoch: 0, total: 10 }));
        assert_eq!((account.ask(false, 0), account.ask(true, 0)), (None, None), "one call at a time");
        account.spend(2);
        let learnt = account.answered(&windows(10, 40), 10, 1, 0);
        assert_eq!(learnt, Learnt::Present { overshoot: 0 });
        // (10 + 10) / (40 + 100) of 60 is 8; two units are spent.
        assert_eq!((account.left(), account.pending()), (6, 2));
        assert!(account.ask(false, 0).is_some());
        let learnt = account.answered(&windows(2, 105), 10, 1, 0);
        assert_eq!(learnt, Learnt::Present { overshoot: 2 });
        assert_eq!((account.left(), account.pending()), (0, 0));
    }

    #[test]
    fn answer_grants_at_least_the_wanted_units() {
        let mut account = account(Limit::fixed_window(Quota::per_minute(100)), 1_000);
        let least = |account: &mut Account, least, current| {
            assert_eq!(account.ask(true, 0), Some(Question::Peek { cost: 0 }));
            let _ = account.answered(&windows(0, current), 1_000, least, 0);
            account.left()
        };
        assert_eq!(least(&mut account, 1, 0), 1);
        assert_eq!(least(&mut account, 30, 0), 30);
        assert_eq!(least(&mut account, 30, 90), 10);
        assert_eq!(least(&mut account, 30, 100), 0);
    }

    #[test]
    fn gcra_refills_by_share_after_debt_is_paid() {
        const SECOND: u64 = 1_000_000_000;
        let mut account = account(Limit::gcra(Quota::per_second(10).burst(20)), 2);
        assert_eq!(account.left(), 10);
        account.spend(10);
        account.refill(SECOND);
        assert_eq!(account.left(), 5, "the share refills half of the rate");
        account.refill(9 * SECOND);
        assert_eq!(account.left(), 10, "the share holds half of the burst");
        assert!(account.ask(false, 0).is_some());
        // Four units beyond the burst, 100,000 ticks each.
        let limits = smallvec![LimitStanding::Pace { ahead: 2_400_000, is_blocked: false }];
        let reply = Reply::new(10, 1, limits);
        let learnt = account.answered(&reply, 2, 1, 9 * SECOND);
        assert_eq!(learnt, Learnt::Present { overshoot: 4 });
        assert_eq!((account.left(), account.pending()), (0, 0));
        assert!(account.until_refilled_ns(1) > SECOND / 5, "the debt is paid first");
        assert_eq!(account.ask(false, 0), None);
    }

    #[test]
    fn past_window_receives_no_posts() {
        let mut account = account(Limit::fixed_window(Quota::per_minute(100)), 10);
        account.spend(3);
        assert!(account.ask(false, 0).is_some());
        account.spend(2);
        // Only unsent units are dropped. The post in flight may arrive in time.
        assert_eq!(account.turn(1, 10, true), 2);
        assert_eq!((account.left(), account.pending()), (10, 3));
        assert_eq!(account.failed(), 3);
        assert_eq!(account.ask(false, 0), None);
        account.spend(4);
        assert_eq!(account.ask(false, 0), Some(Question::Post { process: 1, epoch: 1, total: 4 }));
    }

    #[test]
    fn window_end_spends_only_common_allowance() {
        let mut account = account(Limit::fixed_window(Quota::per_minute(100)), 10);
        account.spend(7);
        assert_eq!(account.turn_early(1, 10, true), 7);
        assert_eq!(account.left(), 3);
        account.spend(3);
        account.begin(10, true);
        assert_eq!((account.left(), account.epoch.number), (7, 1));
    }
}
