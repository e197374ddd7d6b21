//! The held units of one key, and what this process knows about the key.
//!
//! ```text
//!          a check finds too few units      the task sends the call
//!   IDLE ──────────────────────────▶ QUEUED ─────────────────────▶ ASKED
//!    ▲ ╰───────────────────────────────────────────────────────────▶ │
//!    │              a waiting caller sends the call itself           │
//!    ╰──────────────────── granted, denied, failed ──────────────────╯
//! ```
//! 1. There is at most one call for a key at a time. The thread that changed the state to `ASKED` changes it back.
//! 2. All other words are hints about when to ask, and for how many units. A wrong hint costs a call, or a denial with
//!    a retry time.
//! 3. The hints do not affect the number of units. The units are in the words of `limiter::striped`, and loom models
//!    check the rules of those words.
//!
//! Ordering of all words here: Relaxed. They publish no other memory, and the units are in words that need no stronger
//! ordering.

use tollgate::internals::sync::{AtomicU64, Ordering, thread_number};
use tollgate::internals::{Account, Padded, Small, Terms};
use tollgate::leases::{Lease, LeaseRequest, LeaseSource};
use tollgate::{Decision, Timestamp};

const IDLE: u64 = 0;
const QUEUED: u64 = 1;
const ASKED: u64 = 2;

/// While many keys are queued, a block is at most this many times the previous block. Two calls then suffice for a key
/// that is used hundreds of times in a life.
const CROWDED_GROWTH: u64 = 16;

/// In the word that holds the reason of a pause, this value means a pause after failures. Any other value is the
/// smallest number of units that the server denied.
const FAILING: u64 = 0;

/// The words that hold a key's units.
#[derive(Debug)]
enum LeaseWords {
    One(Small),
    /// Stripes, for one key that many cores use at the same time.
    Many(Box<Padded>),
}

/// Forwards an operation to either kind of words. `$wait_ns` is the retry time of a denial.
macro_rules! each {
    ($holding:expr, $terms:expr, $wait_ns:expr, $account:ident => $does:expr) => {{
        let (terms, source) = ($terms, &NoSource { limit: $terms.limit, wait_ns: $wait_ns });
        match &$holding.units {
            LeaseWords::One(words) => {
                let $account = Account { source, terms, words };
                $does
            }
            LeaseWords::Many(words) => {
                let $account = Account { source, terms, words: &**words };
                $does
            }
        }
    }};
}

/// A source that denies: units arrive by deposits only.
struct NoSource {
    limit: u64,
    /// The retry time of a check that found too few units.
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

/// The state of a key. See the module docs.
#[derive(Debug)]
pub struct KeyLease {
    units: LeaseWords,
    state: AtomicU64,
    /// The units that calls lacked since the last call to the server: the minimum of one call, and the sum. Without
    /// such a call, `u64::MAX` and 0.
    least: AtomicU64,
    unmet: AtomicU64,
    /// The units for which callers currently wait.
    waiting: AtomicU64,
    /// The start and end of a pause in which no call is sent, and its reason.
    pause_from_ns: AtomicU64,
    pause_until_ns: AtomicU64,
    pause_for: AtomicU64,
    /// If fewer units than this are held, a call is sent in advance. 0 for rarely used keys.
    low: AtomicU64,
    /// The time of the last answer, the units held then, and the number of units that were meant to be held.
    mark_ns: AtomicU64,
    mark_held: AtomicU64,
    block: AtomicU64,
    /// How often in a row the server had fewer units than were wanted, while blocks were used up quickly.
    short: AtomicU64,
}

/// Which thread moves a key to its next state.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Turn {
    /// The caller does.
    Own,
    /// Another thread did, or the key was in another state.
    Others,
}

/// Why no call for a key is sent now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    /// The server does not have these units until this time.
    Refused { until_ns: u64 },
    /// A call failed a short time ago.
    Failing,
}

/// The units to ask for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Wish {
    pub(super) least: u64,
    pub(super) wanted: u64,
    /// The remaining units are divided into this many equal parts, and the server grants at most one part.
    pub(super) share: u64,
    /// Whether the last block was used up in a 16th of a life.
    is_fast: bool,
    /// The number of units to hold after the answer.
    target: u64,
    /// The next call is due when fewer units than this are held.
    low: u64,
}

/// Parameters that apply to the calls of all keys.
#[derive(Copy, Clone, Debug)]
pub(super) struct Habit {
    pub(super) max_block: u64,
    pub(super) processes: u32,
    /// A round trip.
    pub(super) trip_ns: u64,
    /// Whether more keys are queued than the process can ask for at once.
    pub(super) is_crowded: bool,
}

impl KeyLease {
    pub(super) fn new(stripes: Option<usize>, now_ns: u64) -> Self {
        let units = match stripes {
            None => LeaseWords::One(Small::default()),
            Some(stripes) => LeaseWords::Many(Box::new(Padded::new(stripes))),
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

    /// Spends a cost, if this thread's stripe holds it and no other thread interferes. Returns the units left in the
    /// stripe, and when they expire.
    #[inline(always)]
    pub(super) fn take(&self, terms: &Terms, cost: u64, now_ns: u64) -> Option<(u64, u64)> {
        match &self.units {
            LeaseWords::One(words) => terms.take(words, 0, now_ns, cost),
            LeaseWords::Many(words) => terms.take(&**words, thread_number(), now_ns, cost),
        }
    }

    /// Spends a cost, if it is held. Returns the decision, and the time until which the units could be spent, or 0.
    /// `wait_ns` is the retry time of a denial.
    pub(super) fn spend(&self, terms: &Terms, cost: u64, now_ns: u64, wait_ns: u64) -> (Decision, u64) {
        each!(self, terms, wait_ns, account => account.charge_on(thread_number(), now_ns, cost))
    }

    /// Returns the decision without a charge.
    pub(super) fn peek(&self, terms: &Terms, cost: u64, now_ns: u64, wait_ns: u64) -> Decision {
        each!(self, terms, wait_ns, account => account.peek(now_ns, cost))
    }

    /// The sum of all held units.
    pub(super) fn held(&self, terms: &Terms, now_ns: u64) -> u64 {
        each!(self, terms, 0, account => account.held(now_ns))
    }

    /// Puts units where checks find them. Returns the number of units that could be kept.
    pub(super) fn deposit(&self, terms: &Terms, lease: Lease, asked_ns: u64, now_ns: u64) -> u64 {
        each!(self, terms, 0, account => account.deposit(lease, asked_ns, now_ns))
    }

    /// Takes all units. Calls `visit` with the number of units and when they expire.
    pub(super) fn take_all(&self, terms: &Terms, now_ns: u64, visit: impl FnMut(u64, u64)) {
        each!(self, terms, 0, account => account.take_all(now_ns, visit));
    }

    /// If a stripe has fewer units than this, it is time to ask for more.
    #[inline(always)]
    pub(super) fn low(&self) -> u64 {
        self.low.load(Ordering::Relaxed)
    }

    /// Returns whether no call is pending or in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Returns whether the caller must queue the key.
    pub(super) fn queue(&self) -> Turn {
        self.exchange(IDLE, QUEUED)
    }

    /// Returns whether the caller, which found the key queued, must send the call.
    pub(super) fn take_up(&self) -> Turn {
        self.exchange(QUEUED, ASKED)
    }

    /// Returns whether the caller must send the call, at once.
    pub(super) fn claim(&self) -> Turn {
        self.exchange(IDLE, ASKED)
    }

    /// Ends a call: it was answered, or will not be.
    pub(super) fn release(&self) {
        self.state.store(IDLE, Ordering::Relaxed);
    }

    fn exchange(&self, from: u64, to: u64) -> Turn {
        match self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Turn::Own,
            Err(_) => Turn::Others,
        }
    }

    /// Records that a call lacked these units.
    pub(super) fn note(&self, missing: u64) {
        self.least.fetch_min(missing.max(1), Ordering::Relaxed);
        let add = |unmet: u64| Some(unmet.saturating_add(missing));
        let _ = self.unmet.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Records that a caller waits for these units, until [`waited`](Self::waited).
    pub(super) fn wait(&self, missing: u64) {
        self.waiting.fetch_add(missing, Ordering::Relaxed);
    }

    pub(super) fn waited(&self, missing: u64) {
        self.waiting.fetch_sub(missing, Ordering::Relaxed);
    }

    /// Returns why a call that lacks these units must not ask now, if there is a reason. A pause that ends more than a
    /// life ahead comes from before a step back of the clock, and does not count.
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

    /// The server does not have these units until then.
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

    /// Returns the units to ask for now, or `None` if enough are held. `least` is the number of units that the caller
    /// itself lacks, or 0.
    ///
    /// A block lasts for about a quarter of a life, at the rate at which units were used or lacked since the last
    /// answer. A block is at most twice the previous block, but is large enough for all waiting callers. While many
    /// keys are queued, a block lasts for a life and grows faster, because the next call comes late.
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
        // A key that is used less than once in a quarter of a life gets only the units that a request asks for.
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
        // If a limit is used up as fast as it refills, few units remain, and each small part costs a call. A process
        // that has just spent several parts quickly will spend a larger part too, so it asks for a larger one.
        let parts = u64::from(habit.processes.max(1)) * 2;
        let share = parts >> self.short.load(Ordering::Relaxed).min(32);
        let is_fast = since_ns < terms.life_ns() / 16;
        Some(Wish { least, wanted, share: share.max(1), is_fast, target: target.max(1), low })
    }

    /// Records that an answer brought these units, which are already deposited.
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

    /// Returns whether the key can be removed without loss: it holds nothing, no call is in flight, and it was not used
    /// for `idle_ns`.
    pub(super) fn is_forgettable(&self, terms: &Terms, now_ns: u64, idle_ns: u64) -> bool {
        let mark_ns = self.mark_ns.load(Ordering::Relaxed);
        // A mark in the future comes from before a step back of the clock. A denial is remembered for longer, because
        // later requests for the key are not recorded. If it is forgotten too early, this costs one call.
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

    /// Grants the units that the wish asks for.
    fn grant(holding: &KeyLease, terms: &Terms, wish: &Wish, now_ns: u64) {
        let lease = Lease::new(wish.wanted, std::time::Duration::from_secs(1));
        assert_eq!(holding.deposit(terms, lease, now_ns, now_ns), wish.wanted);
        holding.mark(terms, wish, wish.wanted, now_ns);
    }

    #[test]
    fn holding_is_at_most_160_bytes() {
        assert!(size_of::<KeyLease>() <= 160, "{}", size_of::<KeyLease>());
    }

    #[test]
    fn blocks_follow_use() {
        let (terms, mut now_ns) = (terms(), 1 << 50);
        let holding = KeyLease::new(None, now_ns);
        // One unit every 2 ms: blocks double until they last for a quarter of a second.
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
        // One unit every 2 s: exactly the requested unit.
        for _ in 0..5 {
            now_ns += 2_000 * MS;
            let wish = holding.wish(&terms, HABIT, 1, now_ns).unwrap();
            grant(&holding, &terms, &wish, now_ns);
            assert!(holding.spend(&terms, 1, now_ns, 1).0.is_allowed());
            assert!(wish.wanted <= 64, "a block must shrink to half or less: {wish:?}");
        }
        let wish = holding.wish(&terms, HABIT, 1, now_ns + 2_000 * MS).unwrap();
        assert_eq!((wish.wanted, wish.low), (1, 0), "nothing is fetched in advance for a rarely used key");
    }

    // G79
    #[test]
    fn crowded_blocks_last_for_a_life() {
        let (terms, mut now_ns) = (terms(), 1 << 50);
        let crowded = Habit { is_crowded: true, ..HABIT };
        let holding = KeyLease::new(None, now_ns);
        // 100 units a second, with one call every two seconds.
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
    fn block_covers_waiting_callers() {
        let (terms, now_ns) = (terms(), 1 << 50);
        let holding = KeyLease::new(None, now_ns);
        holding.wait(70);
        holding.note(70);
        let wish = holding.wish(&terms, HABIT, 3, now_ns).unwrap();
        assert_eq!((wish.least, wish.wanted, wish.share), (3, 73, 16));
        holding.waited(70);
    }

    #[test]
    fn one_thread_sends_a_call() {
        let holding = KeyLease::new(None, 0);
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
    fn pause_ends_and_ignores_other_clock_times() {
        let (terms, from) = (terms(), 1 << 50);
        let holding = KeyLease::new(None, from);
        assert_eq!(holding.pause(&terms, 1, from), None);
        holding.pause_refused(5, from, from + 9_000 * MS);
        let refused = Some(Pause::Refused { until_ns: from + 9_000 * MS });
        for (units, at_ns, expected) in [
            (5, from, refused),
            // The server did not deny 4 units.
            (4, from, None),
            // The pause began at most a life ahead, or comes from before a step back of the clock.
            (5, from - 1_000 * MS, refused),
            (5, from - 1_001 * MS, None),
            (5, from + 9_000 * MS, None),
        ] {
            assert_eq!(holding.pause(&terms, units, at_ns), expected, "{units} units at {at_ns}");
        }
        holding.pause_failing(from, from + MS);
        assert_eq!(holding.pause(&terms, 1, from), Some(Pause::Failing));
    }
}
