//! What this process holds of one key, and what it knows of it.
//!
//! ```text
//!            a check finds too little        the task takes it up
//!   IDLE ──────────────────────────▶ QUEUED ─────────────────────▶ ASKED
//!    ▲ ╰───────────────────────────────────────────────────────────▶ │
//!    │                   a caller asks by itself                     │
//!    ╰──────────────────── granted, refused, failed ─────────────────╯
//! ```
//! So there is one question about a key at a time. The caller that changed the state to `ASKED` changes it back. All other words are hints: of
//! when to ask, and for how much. A wrong one costs a question, or a denial that says when to come back. No unit hangs on them:
//! those are in the words of `lease`, whose laws are modelled there.
//!
//! Ordering of all of it: Relaxed. Nothing is published by these words, and units are in others that need no more.

use crate::Timestamp;
use crate::base::decision::Decision;
use crate::base::sync::{AtomicU64, Ordering, thread_number};
use crate::limiter::striped::{Account, Lease, LeaseRequest, LeaseSource, Padded, Small, Terms};

const IDLE: u64 = 0;
const QUEUED: u64 = 1;
const ASKED: u64 = 2;

/// In a crowd a block is at most this many times the previous one. Two questions then suffice for a key that is used hundreds of times in a life.
const CROWDED_GROWTH: u64 = 16;

/// A pause of this kind is one after failures; other numbers are the fewest units that were refused.
const FAILING: u64 = 0;

/// Where a key's units are.
#[derive(Debug)]
enum HeldUnits {
    One(Small),
    /// Stripes for cores that hit one key at once.
    Many(Box<Padded>),
}

/// What an account does, whichever words it has. `$wait_ns` is what a denial says.
macro_rules! each {
    ($holding:expr, $terms:expr, $wait_ns:expr, $account:ident => $does:expr) => {{
        let (terms, source) = ($terms, &NoSource { limit: $terms.limit, wait_ns: $wait_ns });
        match &$holding.units {
            HeldUnits::One(words) => {
                let $account = Account { source, terms, words };
                $does
            }
            HeldUnits::Many(words) => {
                let $account = Account { source, terms, words: &**words };
                $does
            }
        }
    }};
}

/// Denies: the units are elsewhere, and come by deposits.
struct NoSource {
    limit: u64,
    /// What a check that found too little is told to wait.
    wait_ns: u64,
}

impl LeaseSource for NoSource {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
        Err(self.peek(request.least, request.now))
    }

    fn peek(&self, cost: u64, now: Timestamp) -> Decision {
        Decision::denied(cost, self.limit, 0, std::time::Duration::from_nanos(self.wait_ns), now)
    }
}

/// A key. See the module's text.
#[derive(Debug)]
pub(crate) struct Holding {
    units: HeldUnits,
    state: AtomicU64,
    /// Units that calls lacked since the last question: the fewest of one call, and the sum. `u64::MAX` and 0 without such a call.
    least: AtomicU64,
    unmet: AtomicU64,
    /// What callers wait for at this moment.
    waiting: AtomicU64,
    /// Not to be asked from a time until another, and why.
    pause_from_ns: AtomicU64,
    pause_until_ns: AtomicU64,
    pause_for: AtomicU64,
    /// When less is held, more is asked for beforehand; 0 for keys that are used seldom.
    low: AtomicU64,
    /// When the last question was answered, the units held then, and the units meant to be held.
    mark_ns: AtomicU64,
    mark_held: AtomicU64,
    block: AtomicU64,
    /// How often in a row the server had less than was wanted of it at once, while blocks were used up at once.
    short: AtomicU64,
}

/// Who brings a key to its next state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Turn {
    /// The caller did.
    Own,
    /// Somebody else has, or the key was in another state.
    Others,
}

/// Why a key is not asked for now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    /// The server lacks these units until this time.
    Refused { until_ns: u64 },
    /// It was asked in vain just now.
    Failing,
}

/// What to ask for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) least: u64,
    pub(super) wanted: u64,
    /// Into how many equal parts the remaining units are divided, to take one.
    pub(super) share: u64,
    /// Whether the last block was used up in a 16th of a life.
    is_fast: bool,
    /// The units to hold after the answer.
    target: u64,
    /// When less than that is held, the next question is due.
    low: u64,
}

/// How a key is asked for, whichever it is.
#[derive(Copy, Clone, Debug)]
pub(super) struct Habit {
    pub(super) max_block: u64,
    pub(super) processes: u32,
    /// A round trip.
    pub(super) trip_ns: u64,
    /// Whether more keys are queued than the process can ask for at once.
    pub(super) is_crowded: bool,
}

impl Holding {
    pub(super) fn new(stripes: Option<usize>, now_ns: u64) -> Self {
        let units = match stripes {
            None => HeldUnits::One(Small::new()),
            Some(stripes) => HeldUnits::Many(Box::new(Padded::new(stripes))),
        };
        let word = || AtomicU64::new(0);
        Self {
            units,
            state: AtomicU64::new(IDLE),
            least: AtomicU64::new(u64::MAX),
            unmet: word(),
            waiting: word(),
            pause_from_ns: word(),
            pause_until_ns: word(),
            pause_for: word(),
            low: word(),
            mark_ns: AtomicU64::new(now_ns),
            mark_held: word(),
            block: word(),
            short: word(),
        }
    }

    /// Spends a cost, if this thread's stripe holds it and nobody comes between: how much is left there, and when that expires.
    #[inline(always)]
    pub(super) fn take(&self, terms: &Terms, cost: u64, now_ns: u64) -> Option<(u64, u64)> {
        match &self.units {
            HeldUnits::One(words) => terms.take(words, 0, now_ns, cost),
            HeldUnits::Many(words) => terms.take(&**words, thread_number(), now_ns, cost),
        }
    }

    /// Spends a cost, if it is held: until when that could have been done, or 0. `wait_ns` is what a denial says.
    pub(super) fn spend(&self, terms: &Terms, cost: u64, now_ns: u64, wait_ns: u64) -> (Decision, u64) {
        each!(self, terms, wait_ns, account => account.charge_on(thread_number(), now_ns, cost))
    }

    /// How things stand, without charging.
    pub(super) fn peek(&self, terms: &Terms, cost: u64, now_ns: u64, wait_ns: u64) -> Decision {
        each!(self, terms, wait_ns, account => account.peek(now_ns, cost))
    }

    /// All units that are there.
    pub(super) fn held(&self, terms: &Terms, now_ns: u64) -> u64 {
        each!(self, terms, 0, account => account.held(now_ns))
    }

    /// Puts units where checks find them. How many of them could be kept.
    pub(super) fn deposit(&self, terms: &Terms, lease: Lease, asked_ns: u64, now_ns: u64) -> u64 {
        each!(self, terms, 0, account => account.deposit(lease, asked_ns, now_ns))
    }

    /// Takes all units out: how many, and when they expire.
    pub(super) fn take_all(&self, terms: &Terms, now_ns: u64, visit: impl FnMut(u64, u64)) {
        each!(self, terms, 0, account => account.take_all(now_ns, visit));
    }

    /// Below what it is time to ask, if so few are left in a stripe.
    #[inline(always)]
    pub(super) fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Whether no question is under way or about to be sent.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Whether the caller is the one to queue it.
    pub(super) fn queue(&self) -> Turn {
        self.exchange(IDLE, QUEUED)
    }

    /// Whether the caller, who found it queued, is the one to ask.
    pub(super) fn take_up(&self) -> Turn {
        self.exchange(QUEUED, ASKED)
    }

    /// Whether the caller is the one to ask, at once.
    pub(super) fn claim(&self) -> Turn {
        self.exchange(IDLE, ASKED)
    }

    /// There was an answer, or there will be none.
    pub(super) fn release(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    fn exchange(&self, from: u64, to: u64) -> Turn {
        match self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Turn::Own,
            Err(_) => Turn::Others,
        }
    }

    /// Takes note of a call that lacked these units.
    pub(super) fn note(&self, missing: u64) {
        self.least.fetch_min(missing.max(1), Ordering::Relaxed);
        let add = |unmet: u64| Some(unmet.saturating_add(missing));
        let _ = self.unmet.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// A caller waits for these units, until [`waited`](Self::waited).
    pub(super) fn wait(&self, missing: u64) {
        self.waiting.fetch_add(missing, Ordering::Relaxed);
    }

    pub(super) fn waited(&self, missing: u64) {
        self.waiting.fetch_sub(missing, Ordering::Relaxed);
    }

    /// Why a call that lacks these units need not ask now, if it need not. A pause more than a life ahead is left over from before
    /// the clock stepped back, and does not count.
    pub(super) fn pause(&self, terms: &Terms, missing: u64, now_ns: u64) -> Option<Pause> {
        let until_ns = self.pause_until_ns.load(Ordering::Relaxed);
        let from_ns = self.pause_from_ns.load(Ordering::Relaxed);
        if until_ns <= now_ns || from_ns.saturating_sub(now_ns) > terms.life_ns() {
            return None;
        }
        match self.pause_for.load(Ordering::Relaxed) {
            FAILING => Some(Pause::Failing),
            least if missing >= least => Some(Pause::Refused { until_ns }),
            _ => None,
        }
    }

    /// The server lacks these units until then.
    pub(super) fn pause_refused(&self, least: u64, now_ns: u64, until_ns: u64) {
        self.pause_as(least.max(1), now_ns, until_ns);
    }

    pub(super) fn pause_failing(&self, now_ns: u64, until_ns: u64) {
        self.pause_as(FAILING, now_ns, until_ns);
    }

    fn pause_as(&self, why: u64, now_ns: u64, until_ns: u64) {
        self.pause_for.store(why, Ordering::Relaxed);
        self.pause_from_ns.store(now_ns, Ordering::Relaxed);
        self.pause_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// What to ask for now. `least`: the units that the caller itself lacks, or 0. `None` if there is enough.
    ///
    /// Blocks last for about a quarter of a life, by the units that were used or lacking since the last answer. They at most double,
    /// but suffice for all callers that wait. In a crowd they last for a life, and grow faster: the next question is far away.
    pub(super) fn wish(&self, terms: &Terms, habit: Habit, least: u64, now_ns: u64) -> Option<Wish> {
        let noted = self.least.swap(u64::MAX, Ordering::Relaxed);
        let unmet = self.unmet.swap(0, Ordering::Relaxed).max(least);
        let held = self.held(terms, now_ns);
        let used = self.mark_held.load(Ordering::Relaxed).saturating_sub(held).saturating_add(unmet);
        let since_ns = now_ns.saturating_sub(self.mark_ns.load(Ordering::Relaxed));
        let elapsed_ns = since_ns.max(habit.trip_ns).max(1);
        let in_time = |ns: u64| {
            let units = u128::from(used) * u128::from(ns) / u128::from(elapsed_ns);
            u64::try_from(units).unwrap_or(u64::MAX)
        };
        let quarter = in_time(terms.life_ns() / 4);
        let waiting = self.waiting.load(Ordering::Relaxed).saturating_add(least);
        let (lasting, growth) =
            if habit.is_crowded { (in_time(terms.life_ns()), CROWDED_GROWTH) } else { (quarter, 2) };
        let grown = self.block.load(Ordering::Relaxed).saturating_mul(growth).max(waiting).max(1);
        let target = lasting.min(grown).min(habit.max_block);
        // Keys that are used less than once in a quarter of a life get what they ask for, when they ask for it.
        let low = if quarter == 0 || target == 0 {
            0
        } else {
            let trips = in_time(habit.trip_ns.saturating_mul(2));
            (target / 4).max(trips).min(target / 2).max(1)
        };
        let needed = match (least, noted) {
            (0, u64::MAX) => 0,
            (0, noted) => noted,
            (least, _) => least,
        };
        if needed == 0 && held >= target.max(low) {
            return None;
        }
        let least = needed.max(1);
        let wanted = target.saturating_sub(held).max(least);
        // Where the limit is used up as fast as it is refilled, few units remain, and a part of them would cost a question each time.
        // A process that has just spent such parts will not strand a larger one.
        let parts = u64::from(habit.processes.max(1)) * 2;
        let share = parts >> self.short.load(Ordering::Relaxed).min(32);
        let is_fast = since_ns < terms.life_ns() / 16;
        Some(Wish { least, wanted, share: share.max(1), is_fast, target: target.max(1), low })
    }

    /// An answer brought these units, which are deposited already.
    pub(super) fn mark(&self, terms: &Terms, wish: &Wish, granted: u64, now_ns: u64) {
        let held = self.held(terms, now_ns);
        let is_short = granted < wish.wanted;
        if granted > 0 {
            self.block.store(wish.target, Ordering::Relaxed);
        }
        let short =
            if is_short && wish.is_fast { self.short.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        self.short.store(short.min(32), Ordering::Relaxed);
        self.low.store(wish.low.min((held / 2).max(1)), Ordering::Relaxed);
        self.mark_held.store(held, Ordering::Relaxed);
        self.mark_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Whether nothing is lost if it is forgotten: it holds nothing, no question is under way, and it was not used for `idle_ns`.
    pub(super) fn is_forgettable(&self, terms: &Terms, now_ns: u64, idle_ns: u64) -> bool {
        let mark_ns = self.mark_ns.load(Ordering::Relaxed);
        // A mark that is yet to come is of a clock that has stepped back. What was refused is remembered for longer, as it is not
        // written that somebody asks for it still; forgotten too soon it costs a question.
        let idle_ns = match self.pause(terms, u64::MAX, now_ns) {
            Some(_) => idle_ns.saturating_mul(16),
            None => idle_ns,
        };
        self.is_idle() && now_ns.abs_diff(mark_ns) > idle_ns && self.held(terms, now_ns) == 0
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn terms() -> Terms {
        Terms::new(1_000_000, std::time::Duration::from_secs(1), 4_096)
    }

    const HABIT: Habit = Habit { max_block: 4_096, processes: 8, trip_ns: MS, is_crowded: false };

    /// Grants what is wished for.
    fn grant(holding: &Holding, terms: &Terms, wish: &Wish, now_ns: u64) {
        let lease = Lease::new(wish.wanted, std::time::Duration::from_secs(1));
        assert_eq!(holding.deposit(terms, lease, now_ns, now_ns), wish.wanted);
        holding.mark(terms, wish, wish.wanted, now_ns);
    }

    #[test]
    fn a_key_is_small() {
        assert!(size_of::<Holding>() <= 160, "{}", size_of::<Holding>());
    }

    #[test]
    fn blocks_follow_use() {
        let (terms, mut now_ns) = (terms(), 1 << 50);
        let holding = Holding::new(None, now_ns);
        // A unit each 2 ms: blocks double until they last for a quarter of a second.
        let mut wanted = Vec::new();
        for _ in 0..2_000 {
            now_ns += 2 * MS;
            if holding.spend(&terms, 1, now_ns, 1).0.is_denied() {
                let wish = holding.wish(&terms, HABIT, 1, now_ns).unwrap();
                wanted.push(wish.wanted);
                grant(&holding, &terms, &wish, now_ns);
                assert!(holding.spend(&terms, 1, now_ns, 1).0.is_allowed());
            }
        }
        assert_eq!(wanted[..6], [1, 2, 4, 8, 16, 32]);
        assert!(wanted[8..].iter().all(|wanted| (120..=130).contains(wanted)), "{wanted:?}");
        // One each 2 s: just that.
        for _ in 0..5 {
            now_ns += 2_000 * MS;
            let wish = holding.wish(&terms, HABIT, 1, now_ns).unwrap();
            grant(&holding, &terms, &wish, now_ns);
            assert!(holding.spend(&terms, 1, now_ns, 1).0.is_allowed());
            assert!(wish.wanted <= 64, "halved at least: {wish:?}");
        }
        let wish = holding.wish(&terms, HABIT, 1, now_ns + 2_000 * MS).unwrap();
        assert_eq!((wish.wanted, wish.low), (1, 0), "nothing is fetched beforehand");
    }

    #[test]
    fn crowded_blocks_last_for_a_life() {
        let (terms, mut now_ns) = (terms(), 1 << 50);
        let crowded = Habit { is_crowded: true, ..HABIT };
        let holding = Holding::new(None, now_ns);
        // 100 units a second, for which one question in two seconds is asked.
        let mut wanted = Vec::new();
        for _ in 0..4 {
            for _ in 0..200 {
                now_ns += 10 * MS;
                if holding.spend(&terms, 1, now_ns, 1).0.is_denied() {
                    holding.note(1);
                }
            }
            let wish = holding.wish(&terms, crowded, 0, now_ns).unwrap();
            wanted.push(wish.wanted);
            grant(&holding, &terms, &wish, now_ns);
        }
        assert_eq!(wanted[..3], [1, 16, 100], "{wanted:?}");
    }

    #[test]
    fn who_waits_is_provided_for_at_once() {
        let (terms, now_ns) = (terms(), 1 << 50);
        let holding = Holding::new(None, now_ns);
        holding.wait(70);
        holding.note(70);
        let wish = holding.wish(&terms, HABIT, 3, now_ns).unwrap();
        assert_eq!((wish.least, wish.wanted, wish.share), (3, 73, 16));
        holding.waited(70);
    }

    #[test]
    fn a_question_is_asked_by_one() {
        let holding = Holding::new(None, 0);
        assert_eq!(holding.take_up(), Turn::Others);
        let queued = [holding.queue(), holding.queue(), holding.claim()];
        assert_eq!(queued, [Turn::Own, Turn::Others, Turn::Others]);
        let taken = [holding.take_up(), holding.take_up(), holding.queue()];
        assert_eq!(taken, [Turn::Own, Turn::Others, Turn::Others]);
        assert!(!holding.is_idle());
        holding.release();
        assert_eq!([holding.claim(), holding.claim()], [Turn::Own, Turn::Others]);
    }

    #[test]
    fn pauses_end_and_are_not_of_other_times() {
        let (terms, from) = (terms(), 1 << 50);
        let holding = Holding::new(None, from);
        assert_eq!(holding.pause(&terms, 1, from), None);
        holding.pause_refused(5, from, from + 9_000 * MS);
        let refused = Some(Pause::Refused { until_ns: from + 9_000 * MS });
        assert_eq!(holding.pause(&terms, 5, from), refused);
        assert_eq!(holding.pause(&terms, 4, from), None, "so few were not refused");
        assert_eq!(holding.pause(&terms, 5, from - 1_000 * MS), refused, "to a late time");
        assert_eq!(holding.pause(&terms, 5, from - 1_001 * MS), None, "the clock has stepped back");
        assert_eq!(holding.pause(&terms, 5, from + 9_000 * MS), None);
        holding.pause_failing(from, from + MS);
        assert_eq!(holding.pause(&terms, 1, from), Some(Pause::Failing));
    }
}
