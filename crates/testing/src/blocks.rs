//! A slow, simple model of GCRA with blocks, and a player that compares a limiter with it.
//!
//! The model keeps the end of the block and the number of blocks as numbers of their own. It shares no code with the
//! library, which keeps them in one word.

use super::compact::{Layout, Seeded};
use super::kinds::quota;
use super::oracle::{Oracle, Spec, Verdict};
use super::steps::Op;
use super::subjects::{Subject, verdict};
use std::time::Duration;
use tollgate::{
    Block, Blocked, Capacity, Compact, Decision, Direct, Keyed, ManualClock, QuotaError, RateLimiter,
};

/// A compact limiter with blocks.
pub type CompactBlocks = RateLimiter<Compact<Blocked, Seeded>, ManualClock>;

/// A quota with its blocks.
#[derive(Copy, Clone, Debug)]
pub struct BlockSpec {
    pub spec: Spec,
    pub first_ns: u64,
    pub most_ns: u64,
}

impl BlockSpec {
    /// The algorithm, if it accepts these numbers.
    pub fn algorithm(&self) -> Option<Blocked> {
        let block =
            Block::of(Duration::from_nanos(self.first_ns)).at_most(Duration::from_nanos(self.most_ns));
        Blocked::try_new(quota(self.spec)?, block).ok()
    }

    /// Whether the algorithm decides exactly: at most four emission intervals are a whole number of nanoseconds. Bursts and
    /// blocks last for days at most, and not for years.
    pub fn is_exact(&self) -> bool {
        let (num, den) = self.spec.interval();
        let refill = num * u128::from(self.spec.burst) / den;
        den <= 4 && refill + u128::from(self.most_ns) < 1 << 47
    }

    pub fn direct(&self) -> Option<RateLimiter<Direct<Blocked>, ManualClock>> {
        Some(RateLimiter::builder(self.algorithm()?).clock(ManualClock::default()).direct())
    }

    /// A compact limiter with far more room than a few keys need.
    pub fn compact(&self) -> Option<Result<CompactBlocks, QuotaError>> {
        let builder = RateLimiter::builder(self.algorithm()?).clock(ManualClock::default()).hasher(Seeded(7));
        Some(builder.capacity(Capacity::memory(1 << 12)).compact())
    }

    /// The layout of a compact limiter's states, if a block takes a whole number of its ticks.
    pub fn layout(&self, snapshot: &[u8]) -> Option<Layout> {
        match Layout::read(snapshot) {
            Layout::Ticks(ticks) if u128::from(self.most_ns) * ticks.num % ticks.den == 0 => {
                Some(Layout::Ticks(ticks))
            }
            _ => None,
        }
    }

    pub fn keyed(&self) -> Option<RateLimiter<Keyed<u32, Blocked>, ManualClock>> {
        Some(RateLimiter::builder(self.algorithm()?).clock(ManualClock::default()).keyed())
    }
}

/// The model of one key. Times are in fractions of a nanosecond with the quota's own denominator.
#[derive(Clone, Debug)]
pub struct BlockOracle {
    spec: BlockSpec,
    interval: u128,
    den: u128,
    /// When the debt is paid.
    empty: u128,
    /// The end of the last block; 0 if there was none, or if the key was charged since.
    until: u128,
    /// How many blocks followed each other, and the length of the last one.
    blocks: u32,
    length: u128,
}

impl BlockOracle {
    pub fn new(spec: BlockSpec) -> Self {
        let (interval, den) = spec.spec.interval();
        Self { spec, interval, den, empty: 0, until: 0, blocks: 0, length: 0 }
    }

    fn ticks(&self, ns: u64) -> u128 {
        u128::from(ns) * self.den
    }

    fn full(&self) -> u128 {
        self.interval * u128::from(self.spec.spec.burst)
    }

    fn charged(&self, cost: u64) -> u128 {
        self.interval * u128::from(cost)
    }

    fn is_blocked(&self, now: u128) -> bool {
        self.until > now
    }

    /// Forgets the blocks of a key that has owed nothing for the length of its last block.
    fn forget(&mut self, now: u128) {
        if self.empty + self.length <= now {
            (self.until, self.blocks) = (0, 0);
        }
    }

    /// When a request fits: after the block, and after enough units were paid.
    fn fits_at(&self, cost: u64) -> u128 {
        self.until.max((self.empty + self.charged(cost)).saturating_sub(self.full()))
    }

    /// A denial at `now`: starts a block, unless the key is in one.
    pub fn deny(&mut self, now_ns: u64) {
        let now = self.ticks(now_ns);
        if self.is_blocked(now) {
            return;
        }
        self.forget(now);
        let BlockSpec { first_ns, most_ns, .. } = self.spec;
        let length = (u128::from(first_ns) << self.blocks).min(u128::from(most_ns));
        if u128::from(first_ns) << self.blocks < u128::from(most_ns) || self.blocks == 0 {
            self.blocks += 1;
        }
        self.length = length * self.den;
        self.until = self.fits_at(1).max(now + self.length);
        self.empty = self.until + self.full() - self.interval;
    }

    fn add(&mut self, now: u128, cost: u64) {
        if self.is_blocked(now) {
            self.until += self.charged(cost);
        } else {
            self.forget(now);
            self.until = 0;
        }
        self.empty = self.empty.max(now) + self.charged(cost);
    }

    /// Charges `cost` at a turn within `wait_ns`, if there is one. Returns whether there is.
    fn turn(&mut self, now_ns: u64, cost: u64, wait_ns: u64) -> bool {
        let now = self.ticks(now_ns);
        let debt = self.empty.saturating_sub(now);
        let fits =
            cost <= self.spec.spec.burst && debt + self.charged(cost) <= self.full() + self.ticks(wait_ns);
        if fits && cost > 0 {
            self.add(now, cost);
        }
        fits || cost == 0
    }

    /// Takes units of a charge back that was made at `at_ns`. Returns their number.
    fn give_back(&mut self, now_ns: u64, (at_ns, cost): (u64, u64), units: u64) -> u128 {
        let now = self.ticks(now_ns);
        if self.is_blocked(now) {
            return 0;
        }
        let unpaid = self.charged(cost).saturating_sub(self.ticks(now_ns.saturating_sub(at_ns)));
        let back = unpaid.min(self.charged(units)).min(self.empty.saturating_sub(now));
        if back > 0 {
            self.until = 0;
            self.empty = self.empty.max(now) - back;
        }
        back.div_ceil(self.interval)
    }
}

impl Oracle for BlockOracle {
    fn capacity(&self) -> u64 {
        self.spec.spec.burst
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        let now = now * self.den;
        !self.is_blocked(now) && self.empty.saturating_sub(now) + self.charged(cost) <= self.full()
    }

    fn charge(&mut self, now: u128, cost: u64) {
        self.add(now * self.den, cost);
    }

    fn most_in(&self, t: u128) -> u128 {
        u128::from(self.spec.spec.burst) + t * self.den / self.interval
    }
}

/// What to do with a key.
#[derive(Copy, Clone, Debug)]
pub enum BlockOp {
    Check,
    Peek,
    Take,
    /// Charges some units without a check.
    Force(u64),
    /// Waits at most this many nanoseconds.
    Reserve(u64),
    /// Refunds some units of the last charge.
    Refund(u64),
}

/// Plays the operations on one key, and compares each decision with the model's.
pub fn play(spec: BlockSpec, start: u64, ops: &[(Op, BlockOp)], limiter: &dyn Subject) {
    // No word lasts longer than half a year with fractions of a quarter nanosecond.
    let (low, high) = (start.saturating_sub(1 << 51), start + (1 << 53));
    play_at(spec, start, ops, limiter, |now| now.clamp(low, high));
}

/// [`play`] at times that the limiter decides exactly: `exact` returns the one for a time.
pub fn play_at(
    spec: BlockSpec,
    start: u64,
    ops: &[(Op, BlockOp)],
    limiter: &dyn Subject,
    exact: impl Fn(u64) -> u64,
) {
    let mut oracle = BlockOracle::new(spec);
    let (mut now, mut last) = (exact(start), None::<(Decision, u64)>);
    for (op, verb) in ops {
        now = exact(op.step.apply(now, spec.spec, &oracle));
        let cost = op.cost.apply(now, &oracle);
        let before = format!("{verb:?} {cost} at {now} for {oracle:?}");
        let at = limiter.at(now);
        match *verb {
            BlockOp::Check | BlockOp::Peek => {
                let is_blocked = oracle.is_blocked(oracle.ticks(now));
                let peeked = at.peek_n(0, cost);
                let expected = oracle.peek(now, cost);
                assert_eq!(verdict(&peeked), expected, "{before}");
                assert_eq!(peeked.is_block(), is_blocked && expected == Verdict::Denied, "{before}");
                if matches!(verb, BlockOp::Peek) {
                    assert_wait(&peeked, &oracle, now, cost, &before);
                    continue;
                }
                let decided = at.check_n(0, cost);
                match expected {
                    Verdict::Allowed if cost > 0 => {
                        oracle.charge(now.into(), cost);
                        last = Some((decided, now));
                    }
                    Verdict::Denied => oracle.deny(now),
                    Verdict::Allowed | Verdict::Never => {}
                }
                assert_eq!(verdict(&decided), expected, "{before}");
                assert_eq!(
                    decided.is_block(),
                    expected == Verdict::Denied,
                    "every denial is a block: {before}"
                );
                assert_wait(&decided, &oracle, now, cost, &before);
                assert_eq!(decided.remaining(), oracle.remaining(now), "{before}");
            }
            BlockOp::Take => {
                let most = oracle.remaining(now).min(cost);
                let taken = at.take(0, cost);
                if most > 0 {
                    oracle.charge(now.into(), most);
                    last = Some((taken, now));
                } else if cost > 0 {
                    oracle.deny(now);
                }
                assert_eq!(
                    (taken.is_denied(), taken.is_block()),
                    (cost > 0 && most == 0, cost > 0 && most == 0),
                    "{before}"
                );
                assert!(taken.is_denied() || taken.cost() == most, "{before}");
            }
            BlockOp::Force(units) => {
                assert_eq!(at.charge_unchecked(0, units).cost(), units, "{before}");
                oracle.force(now.into(), units);
            }
            BlockOp::Reserve(wait) => {
                let reserved = at.reserve(0, cost, Duration::from_nanos(wait));
                assert_eq!(reserved.is_allowed(), oracle.turn(now, cost, wait), "{before}");
            }
            BlockOp::Refund(units) => {
                if let Some((charge, at_ns)) = last.take() {
                    let back = oracle.give_back(now, (at_ns, charge.cost()), units);
                    assert_eq!(u128::from(at.refund_n(0, &charge, units)), back, "{before}");
                }
            }
        }
    }
}

/// A denied request waits until the block has ended and its cost fits, to the nanosecond.
fn assert_wait(decided: &Decision, oracle: &BlockOracle, now: u64, cost: u64, before: &str) {
    if verdict(decided) == Verdict::Denied {
        let wait = (oracle.fits_at(cost) - oracle.ticks(now)).div_ceil(oracle.den);
        assert_eq!(decided.retry_after().map(|wait| wait.as_nanos()), Some(wait), "{before}");
    }
}
