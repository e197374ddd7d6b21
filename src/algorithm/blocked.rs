//! GCRA with blocks: a denial blocks its key for a time.
//!
//! ```text
//!            |<------- capacity - T ------->|<------- block ------->|
//! -----------+------------------------------+-----------------------+------> time
//!           now                                                    TAT
//! ```
//! A block moves the TAT so far ahead that exactly one unit is free when the block ends. So a block is one exchange of the
//! word that all charges use, and the rest of the burst refills at the rate, as always.
//!
//! *The mark.* The low five bits of a word hold a mark. All times are multiples of 32 ticks, so the mark does not change
//! them.
//!
//! | mark | meaning |
//! |---|---|
//! | 0 | no block |
//! | 2n − 1 | the last write started the n-th block, which lasts until one unit is free |
//! | 2n | after the n-th block, the key was charged |
//!
//! The mark tells a block from a burst that is used up: without it, a denial in the last interval of a block would start
//! another block. It also counts the blocks that followed each other. It counts no more when the TAT is as long ago as the
//! block was long: this quiet time needs no other word. Mark 31 is not used, so no word equals
//! [`DEAD`](super::step::DEAD).
//!
//! *No block lasts longer than it should.* The ticks of such words wrap, after four years at the earliest. A word that is
//! further ahead than a quarter of the range is further than any debt can be. So it is old, and means an idle key.
//! Otherwise a key that was not used for two years could look blocked for two years.

use core::time::Duration;

use super::compact::{BlockedWord, IntoCompact};
use super::pace::{Pace, gcd};
use super::step::{Algorithm, BlockRest, Refund, Refunded, Step, Stepper};
use crate::base::clock::saturating_nanos;
use crate::base::decision::{Decision, Facts, Outcome};
use crate::base::quota::{Quota, QuotaError, Reason, or_panic};

/// The number of ticks between two times: room for a mark.
const SPREAD: u32 = 32;
/// The most blocks that a mark counts.
const MAX_LEVEL: u32 = 15;
/// Intervals are exact if they are multiples of `1 / 4` ns. With more ticks, words would wrap too early.
const MAX_SCALE: u32 = 4;

/// How long a denial blocks a key: see [`Blocked`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::Block;
///
/// let always_the_same = Block::of(Duration::from_secs(600));
/// let growing = always_the_same.at_most(Duration::from_secs(86_400)); // 10 min, 20 min, 40 min, …, a day
/// assert_eq!(growing.longest(), Duration::from_secs(86_400));
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Block {
    first_ns: u64,
    most_ns: u64,
}

impl Block {
    /// Every block has this length.
    #[must_use]
    pub const fn of(length: Duration) -> Self {
        let first_ns = saturating_nanos(length);
        Self { first_ns, most_ns: first_ns }
    }

    /// Each block that follows another one is twice as long, up to this length.
    #[must_use]
    pub const fn at_most(self, longest: Duration) -> Self {
        Self { most_ns: saturating_nanos(longest), ..self }
    }

    /// Returns the length of the first block.
    #[must_use]
    pub const fn first(&self) -> Duration {
        Duration::from_nanos(self.first_ns)
    }

    /// Returns the length of the longest block.
    #[must_use]
    pub const fn longest(&self) -> Duration {
        Duration::from_nanos(self.most_ns)
    }

    /// Returns how many blocks follow each other until they do not grow any more. `None` if a word cannot count them.
    const fn levels(&self) -> Option<u8> {
        let mut level = 1;
        while level <= MAX_LEVEL {
            if self.at_level(level) == self.most_ns {
                #[expect(clippy::cast_possible_truncation, reason = "at most 15")]
                return Some(level as u8);
            }
            level += 1;
        }
        None
    }

    /// Returns the length of the n-th block, from 1.
    const fn at_level(&self, level: u32) -> u64 {
        let length_ns = self.first_ns.saturating_mul(1 << (level - 1));
        if length_ns < self.most_ns { length_ns } else { self.most_ns }
    }

    /// Returns the longest length to which the first one can double.
    const fn grown(&self) -> u64 {
        self.first_ns.saturating_mul(1 << (MAX_LEVEL - 1))
    }
}

/// GCRA that blocks a key after a denial, instead of admitting single units at the rate: for logins, scans, and other
/// requests that should not be tried again and again.
///
/// - Until a denial, it decides as [`Gcra`](crate::Gcra) does. Token buckets with greedy refill and leaky buckets as meters
///   make the same decisions.
/// - A denied check blocks its key for [`Block::of`]. A request that can [never](crate::Outcome::Never) be admitted does
///   not. Peeks, reservations and waits start no block.
/// - During the block, all checks of the key are denied, and these denials write nothing. So they do not extend the block.
///   [`Decision::is_block`](crate::Decision::is_block) is true, and
///   [`Decision::retry_after`](crate::Decision::retry_after) is the time until the block ends.
/// - When the block ends, one unit is free, and the rest of the burst refills at the rate.
/// - A denial after the block starts a block of twice the length, up to [`Block::at_most`]. The key starts again with the
///   first length after a quiet time: when it has owed nothing for as long as its last block was.
///
/// A block ends at its stated time, unless the caller charges the key during the block without a check
/// ([`charge_unchecked`](crate::RateLimiter::charge_unchecked), [`reserve`](crate::RateLimiter::reserve)): each such
/// unit is paid after the block. (A compact store charges none, because it has no overdraft.) A block is never shorter
/// than the wait that the denial would have had without it. A refund during a block returns nothing.
///
/// A [joint check](crate::check_all) blocks the keys of those limits that deny it. It blocks no key of the others.
///
/// Direct and keyed stores hold this algorithm, and so does a
/// [Redis server](https://docs.rs/crate/tollgate/latest/source/docs/blocks.md#on-a-redis-server). A compact
/// store holds blocks of one length: [`Builder::compact`](crate::Builder::compact) refuses blocks that grow, because its
/// words have no room to count them, and blocks in which more than 131,071 units would refill. Its only overflow policy is
/// [`Overflow::Forget`](crate::Overflow::Forget), the default: in a full bucket, the block that ends first is dropped, and
/// no key gets the block of another one. A block ends within a tick of its length, at the time that each denial states.
/// Windows, logs and sketches have no blocks, because their states hold counts instead of a time.
///
/// Times are exact if `T = period / limit` is a whole number of nanoseconds, or a fraction with a denominator of at most 4.
/// Otherwise `T` is rounded up by less than 1/4 ns, or by less than 1 ns if the burst or the block takes months. The limiter
/// decides correctly only at times within three years of the key's last use. Quotas for
/// single calls ([`check_with`](crate::RateLimiter::check_with)) are refused, because a block would end
/// at another time under another quota.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Block, Blocked, ManualClock, Quota, RateLimiter};
///
/// let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
/// let block = Block::of(minutes(10)).at_most(minutes(60 * 24));
/// let clock = ManualClock::default();
/// let logins = RateLimiter::builder(Blocked::new(Quota::per_minute(5), block)).clock(clock.clone()).keyed::<String>();
/// assert!(logins.check_n("mallory", 5).is_allowed());
///
/// let denial = logins.check("mallory");
/// assert!(denial.is_block());
/// assert_eq!(denial.retry_after(), Some(minutes(10)));
/// clock.advance(minutes(10));
/// assert!(logins.check("mallory").is_allowed());
///
/// assert_eq!(logins.check("mallory").retry_after(), Some(minutes(20)));
/// ```
/// # Source
/// ITU-T Recommendation I.371 for the rate; blocks as in fail2ban and rate-limiter-flexible.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Blocked {
    pace: Pace<false>,
    block: Block,
    levels: u8,
}

/// The parts of a word.
#[derive(Copy, Clone, Debug)]
struct Parts {
    /// A word of the pace: a multiple of 32, or 0 for a key that owes nothing.
    tat: u64,
    /// Also of a key that owes nothing, until its quiet time has passed.
    mark: u8,
    is_blocked: bool,
}

impl Parts {
    /// Returns the mark after a charge or a refund. A block that has ended does not begin again, even if the whole burst
    /// is used up.
    const fn after_charge(self) -> u8 {
        if self.is_blocked { self.mark } else { self.mark + self.mark % 2 }
    }
}

/// Returns the word with a TAT and a mark.
#[inline]
const fn word(tat: u64, mark: u8) -> u64 {
    // A TAT of 0 would mean a key that was never seen. The pace returns 1 instead, which is no multiple of 32.
    let tat = if tat == 1 { SPREAD as u64 } else { tat };
    tat + mark as u64
}

impl Blocked {
    /// Creates the algorithm with this quota and these blocks.
    ///
    /// # Panics
    /// Panics if a block is zero, shorter than the first one, more than 16,384 times as long as the first one, or too long
    /// for a word with this quota (months to years). [`Blocked::try_new`] returns the error instead.
    #[must_use]
    #[track_caller]
    pub const fn new(quota: Quota, block: Block) -> Self {
        or_panic(Self::checked(&quota, block))
    }

    /// Creates the algorithm, like [`Blocked::new`].
    ///
    /// # Errors
    /// Returns an error if the blocks do not fit. The error states the maximum.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Block, Blocked, Quota};
    ///
    /// let block = Block::of(Duration::from_secs(1)).at_most(Duration::from_secs(86_400));
    /// let error = Blocked::try_new(Quota::per_minute(5), block).unwrap_err();
    /// assert!(error.to_string().contains("16384s"));
    /// ```
    pub fn try_new(quota: Quota, block: Block) -> Result<Self, QuotaError> {
        Ok(Self::checked(&quota, block)?)
    }

    pub(super) const fn checked(quota: &Quota, block: Block) -> Result<Self, Reason> {
        let Block { first_ns, most_ns } = block;
        if first_ns == 0 {
            return Err(Reason::ShortBlock { got_ns: 0, min_ns: 1 });
        }
        if most_ns < first_ns {
            return Err(Reason::ShortBlock { got_ns: most_ns, min_ns: first_ns });
        }
        let Some(levels) = block.levels() else {
            return Err(Reason::LongBlock { got_ns: most_ns, max_ns: block.grown() });
        };
        let denominator = quota.limit() / gcd(quota.limit(), quota.period_ns());
        #[expect(clippy::cast_possible_truncation, reason = "at most 4")]
        let exact = if denominator <= MAX_SCALE as u64 { denominator as u32 } else { MAX_SCALE };
        let mut scale = exact;
        let mut max_ns = 0;
        while scale > 0 {
            if let Some(pace) = Pace::spread(quota, scale, SPREAD) {
                max_ns = Self::longest(&pace);
                if most_ns <= max_ns {
                    return Ok(Self { pace, block, levels });
                }
            }
            scale -= 1;
        }
        Err(Reason::LongBlock { got_ns: most_ns, max_ns })
    }

    /// Returns the longest block that a word can hold.
    const fn longest(pace: &Pace<false>) -> u64 {
        #[expect(clippy::cast_possible_truncation, reason = "2^61")]
        let range = Pace::<false>::MAX_WRAPPING_CAPACITY as u64;
        (range - pace.one_free()) / pace.span(1)
    }

    /// Returns the quota of the word's ticks.
    pub(crate) fn quota(&self) -> Quota {
        self.pace.quota()
    }

    /// Returns the lengths of the blocks.
    #[must_use]
    pub const fn blocks(&self) -> Block {
        self.block
    }

    /// Returns the parts of a word, as they count at a time.
    #[inline]
    const fn parts(&self, head: u64, now_ns: u64) -> Parts {
        let (spread, now) = (SPREAD as u64, self.pace.ticks(now_ns));
        let tat = head - head % spread;
        let ahead = self.pace.ahead(tat, now);
        #[expect(clippy::cast_possible_truncation, reason = "less than 32")]
        let mark = (head % spread) as u8;
        if ahead == 0 || ahead > self.pace.furthest() {
            let is_quiet = mark == 0 || now.wrapping_sub(tat) >= self.quiet(mark);
            return Parts { tat: 0, mark: if is_quiet { 0 } else { mark }, is_blocked: false };
        }
        Parts { tat, mark, is_blocked: mark % 2 == 1 && ahead > self.pace.one_free() }
    }

    /// Returns how long a key without a debt keeps this mark, which is not 0: as long as its last block was.
    const fn quiet(&self, mark: u8) -> u64 {
        self.pace.span(self.block.at_level(mark.div_ceil(2) as u32))
    }

    /// Returns a step of the pace as a step of this algorithm.
    #[inline]
    const fn marked(head: u64, parts: Parts, step: Step) -> Step {
        match step {
            Step::Deny(denial) => Step::Deny(denial.with_mark(parts.mark)),
            // Without a charge.
            Step::Admit { decision, next, .. } if next == parts.tat => {
                Step::admit(decision.with_mark(parts.mark), head)
            }
            Step::Admit { decision, next, .. } => {
                let mark = parts.after_charge();
                Step::admit(decision.with_mark(mark), word(next, mark))
            }
            help @ Step::Help(_) => help,
        }
    }

    /// Returns how far ahead the word is of now if a block of this length starts now.
    const fn ahead_in_block(&self, block_ns: u64) -> u64 {
        self.pace.one_free().saturating_add(self.pace.span(block_ns))
    }
}

impl Stepper for Blocked {
    type Tail = ();

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let parts = self.parts(head, now_ns);
        Self::marked(head, parts, self.pace.step(parts.tat, read, now_ns, cost))
    }

    const BLOCKS: bool = true;

    fn block(&self, _head: u64, step: Step) -> Step {
        let Step::Deny(denial) = step else { return step };
        if denial.outcome() != Outcome::Denied || denial.is_block() {
            return step;
        }
        let &Facts::Pace { ahead, mark, .. } = denial.facts() else { return step };
        let level = mark.div_ceil(2).saturating_add(1).min(self.levels);
        // A debt beyond the burst is not forgiven.
        let ahead = ahead.max(self.ahead_in_block(self.block.at_level(level.into())));
        let Some(tat) = self.pace.tat(self.pace.ticks(denial.at_ns()), ahead) else { return step };
        let decision = self.pace.decide(Outcome::Denied, denial.at_ns(), denial.cost(), ahead);
        let mark = 2 * level - 1;
        Step::admit(decision.with_mark(mark), word(tat, mark))
    }

    fn block_for(&self, head: u64, now_ns: u64, block_ns: u64) -> Option<Step> {
        let (parts, now) = (self.parts(head, now_ns), self.pace.ticks(now_ns));
        let level = parts.mark.div_ceil(2).max(1);
        // A longer block stays, and so does a debt beyond the burst.
        let ahead = self.ahead_in_block(block_ns.clamp(1, self.block.most_ns));
        let ahead = ahead.max(self.pace.ahead(parts.tat, now));
        let (tat, mark) = (self.pace.tat(now, ahead)?, 2 * level - 1);
        let decision = self.pace.decide(Outcome::Allowed, now_ns, 1, ahead);
        Some(Step::admit(decision.with_mark(mark), word(tat, mark)))
    }

    fn resume(&self, seeded: Step, BlockRest { level, until_ns }: BlockRest) -> Step {
        let Step::Admit { decision, next, .. } = seeded else { return seeded };
        let (level, at_ns) = (level.min(self.levels), decision.at_ns());
        let next = match until_ns.saturating_sub(at_ns) {
            _ if level == 0 => next,
            0 => word(next, 2 * level),
            rest_ns => {
                let now = self.pace.ticks(at_ns);
                // Shorter blocks cut the rest, but not below the wait that the debt has without a block.
                let most = self.ahead_in_block(self.block.most_ns).max(self.pace.ahead(next, now));
                match self.pace.tat(now, self.ahead_in_block(rest_ns).min(most)) {
                    Some(tat) => word(tat, 2 * level - 1),
                    None => next,
                }
            }
        };
        Step::admit(decision, next)
    }

    fn longest_block_ns(&self) -> u64 {
        self.block.most_ns
    }

    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        let parts = self.parts(head, now_ns);
        Self::marked(head, parts, self.pace.reserve(parts.tat, read, now_ns, cost, wait_ns))
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        let parts = self.parts(head, now_ns);
        Self::marked(head, parts, self.pace.force(parts.tat, read, now_ns, cost))
    }

    /// The units of a key in a block, whatever its debt was before: all are in use.
    fn owed(&self, decision: &Decision) -> u64 {
        if decision.block_ns() > 0 { self.pace.burst() } else { self.pace.owed(decision) }
    }

    const CAN_REFUND: bool = true;

    /// A key in a block gets nothing back: its debt is that of the block.
    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let parts = self.parts(head, refund.now_ns);
        if parts.is_blocked {
            return None;
        }
        let Refunded { next, units } = self.pace.refund(parts.tat, read, refund)?;
        Some(Refunded { next: word(next, parts.after_charge()), units })
    }

    #[inline]
    fn is_idle(&self, head: u64, _read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        let Parts { tat, mark, .. } = self.parts(head, now_ns);
        tat == 0 && mark == 0
    }

    fn reads(&self, other: &Self) -> bool {
        self == other
    }

    fn accepts(&self, head: u64, _read: impl Fn(usize) -> u64) -> bool {
        head % u64::from(SPREAD) <= 2 * u64::from(self.levels)
    }
}

impl Algorithm for Blocked {
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        let other = Self::checked(quota, self.block)?;
        if other == *self {
            return Ok(other);
        }
        let same = "quota: a block would end at another time";
        Err(Reason::Layout { algorithm: "GCRA with blocks", same }.into())
    }

    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError> {
        Ok(Self::checked(quota, self.block)?)
    }
}

impl IntoCompact for Blocked {
    type CompactState = BlockedWord;

    fn compact(&self, tiers: &[Quota], overdraft: u64) -> Result<BlockedWord, QuotaError> {
        if self.levels > 1 {
            let instead = "blocks of one length (Block::of without at_most), or a keyed store";
            return Err(Reason::NoCompactForm { algorithm: "GCRA with blocks", instead }.into());
        }
        for quota in tiers {
            self.requota(quota)?;
        }
        if overdraft > 0 {
            let what = "with blocks, the overdraft";
            return Err(Reason::Word { algorithm: "the compact store", what, got: overdraft, max: 0 }.into());
        }
        BlockedWord::new(self.pace.rate(), self.block.most_ns)
    }

    fn tier(&self, own: &BlockedWord, quota: &Quota) -> Result<BlockedWord, QuotaError> {
        self.requota(quota).map(|_| *own)
    }
}
