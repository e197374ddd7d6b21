//! The interface between an algorithm and a store: a pure function from words, a time and a cost to an effect.
//!
//! A limit's state is one *head* word and, for some algorithms, a few *tail* words. Every admission and every refund is
//! one compare-and-swap (CAS) of the head, from exactly the value on which the decision was based. Tail words only
//! grow: a thread *raises* a tail word, which is an atomic maximum.
//!
//! ```text
//! load the head, and the tail words that it refers to
//! step returns:
//!   Deny    -> done; nothing is written
//!   Admit   -> 1. raise one tail word    the new head needs this word, so it must be visible before the head
//!              2. CAS the head           success: the decision takes effect; failure: start again
//!              3. fill tail words        the words that the new head refers to; any thread may write them
//!   Help    -> write the tail words of an earlier admission, then start again
//! ```
//!
//! Why the races are right:
//!
//! 1. Only the CAS of the head decides. If another thread changed the head first, the CAS fails, and nothing is
//!    charged.
//! 2. The tail word that was raised before a failed CAS stays raised. Each algorithm explains why this can only deny
//!    more, or has no effect.
//! 3. A thread that stops between the CAS and the fill blocks no other thread. The next thread sees that words are
//!    missing (`Help`) and writes them itself.
//!
//! Two values of the head belong to the store: 0 means a key that was never seen, and [`DEAD`] means a node that is
//! being unlinked. Algorithms never produce them.

use core::fmt::Debug;

use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::AtomicU64;
use alloc::boxed::Box;

/// The head of a node that is being unlinked. No thread can charge this node.
pub(crate) const DEAD: u64 = u64::MAX;

/// The effect of a step.
#[derive(Copy, Clone, Debug)]
pub enum Step {
    /// The request is not admitted: nothing is written.
    Deny(Decision),
    /// The request is admitted, if the head can be exchanged for `next`. After [`Stepper::block`] and [`Stepper::begin`], the
    /// decision can also be a denial: the exchange then starts a block, or begins a key.
    Admit {
        /// The decision.
        decision: Decision,
        /// The new head. It equals the old head if the cost is zero.
        next: u64,
        /// The tail word to raise before the exchange.
        raise: Option<Raise>,
        /// The tail words to raise after the exchange.
        fill: Option<Fill>,
    },
    /// Some tail words of an earlier admission are not written yet. The caller writes them and starts again.
    Help(Fill),
}

impl Step {
    /// Creates an admission that needs only the head.
    pub(crate) const fn admit(decision: Decision, next: u64) -> Self {
        Self::Admit { decision, next, raise: None, fill: None }
    }
}

/// One tail word and the value to which it must be raised.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Raise {
    /// The index of the tail word.
    pub index: usize,
    /// The word is at least this value afterwards.
    pub value: u64,
}

/// A run of tail words to raise. The algorithm computes their values ([`Stepper::filled`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The first position.
    pub from: u64,
    /// The number of positions.
    pub count: u64,
    /// The time to write, in nanoseconds.
    pub time_ns: u64,
}

/// The arguments of a refund.
#[derive(Copy, Clone, Debug)]
pub struct Refund<'a> {
    /// The charge. `None` takes back the units that were charged last, whichever calls charged them.
    pub charge: Option<&'a Decision>,
    /// The most units to refund.
    pub units: u64,
    /// The time of the refund, in nanoseconds.
    pub now_ns: u64,
}

/// The result of a refund.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Refunded {
    /// The new head.
    pub next: u64,
    /// The units by which the key's debt decreases. The last one may have been paid in part.
    pub units: u64,
}

/// What is left of the blocks of a key, for a state under another quota.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct BlockRest {
    /// How many blocks followed each other; 0 if there was none.
    pub level: u8,
    /// The end of the last block, in nanoseconds.
    pub until_ns: u64,
}

impl BlockRest {
    /// What is left at the time of a decision on the key.
    #[allow(dead_code, reason = "only quota changes need it")]
    pub(crate) const fn of(decision: &Decision) -> Self {
        let until_ns = decision.at_ns().saturating_add(decision.block_ns());
        Self { level: decision.mark().div_ceil(2), until_ns }
    }
}

/// An algorithm that is an engine with a quota. Public in a private module.
pub trait Wrapper {
    /// The engine's type.
    type Engine: Stepper;

    /// Returns the engine.
    fn engine(&self) -> &Self::Engine;
}

impl<W: Wrapper> Stepper for W {
    type Tail = <W::Engine as Stepper>::Tail;

    fn tail_len(&self) -> usize {
        self.engine().tail_len()
    }

    #[inline]
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.engine().step(head, read, now_ns, cost)
    }

    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step {
        self.engine().force(head, read, now_ns, cost)
    }

    fn seed(&self, now_ns: u64, units: u64) -> Step {
        self.engine().seed(now_ns, units)
    }

    fn owed(&self, decision: &Decision) -> u64 {
        self.engine().owed(decision)
    }

    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        self.engine().reserve(head, read, now_ns, cost, wait_ns)
    }

    const CAN_REFUND: bool = W::Engine::CAN_REFUND;

    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        self.engine().refund(head, read, refund)
    }

    #[inline]
    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool {
        self.engine().is_idle(head, read, now_ns)
    }

    #[inline]
    fn until_idle(&self, head: u64, read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        self.engine().until_idle(head, read, now_ns)
    }

    fn reads(&self, other: &Self) -> bool {
        self.engine().reads(other.engine())
    }

    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        self.engine().filled(fill, raise);
    }

    fn accepts(&self, head: u64, read: impl Fn(usize) -> u64) -> bool {
        self.engine().accepts(head, read)
    }
}

/// The tail: the words after the head.
pub trait Tail: Send + Sync + 'static {
    /// Creates at least `len` words of zero; a type of fixed length may have more.
    fn zeroed(len: usize) -> Self;
    /// Returns the words.
    fn words(&self) -> &[AtomicU64];
}

impl Tail for () {
    fn zeroed(_len: usize) -> Self {}

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        &[]
    }
}

impl<const N: usize> Tail for [AtomicU64; N] {
    fn zeroed(_len: usize) -> Self {
        core::array::from_fn(|_| AtomicU64::new(0))
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

impl Tail for Box<[AtomicU64]> {
    fn zeroed(len: usize) -> Self {
        (0..len).map(|_| AtomicU64::new(0)).collect()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        self
    }
}

/// A tail of the same number of words for every quota.
#[diagnostic::on_unimplemented(
    message = "this algorithm needs memory for its units, so its state has no fixed size",
    note = "use `RateLimiter::direct`, or an algorithm whose state is a few words, such as `Gcra`"
)]
pub trait FixedTail: Tail {}

impl FixedTail for () {}

impl<const N: usize> FixedTail for [AtomicU64; N] {}

/// A rate-limiting algorithm with its quota. Sealed.
///
/// Values are small, immutable and cheap to clone. A limiter holds one value and applies it to every key's state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "make an algorithm from a `Quota` first, such as `Gcra::new(quota)`; only `RateLimiter::new` takes the quota itself"
)]
pub trait Algorithm: Stepper + Clone + Debug + Send + Sync + 'static {
    /// Returns the same algorithm with another quota, which can read the state that this value wrote. Use it for
    /// per-call quotas ([`RateLimiter::check_with`](crate::RateLimiter::check_with)).
    ///
    /// # Errors
    /// Returns an error if the two quotas cannot share a state. Window algorithms need the same period; the sliding log
    /// needs a limit no larger than its own.
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError>;

    /// Returns the same kind of algorithm with another quota, for a new state.
    ///
    /// # Errors
    /// Returns an error if the algorithm has no room for the quota. The error states the maximum.
    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError>;

    /// Returns `other`, or an algorithm with its quota, if that reads and writes the states of this one.
    #[doc(hidden)]
    fn reading(&self, other: &Self) -> Option<Self> {
        self.reads(other).then(|| other.clone())
    }
}

/// The operations of an algorithm. Public in a private module: users name [`Algorithm`], which is sealed.
pub trait Stepper {
    /// The type of the tail words; `()` if there is only the head.
    type Tail: Tail;

    /// Returns the number of tail words of a key.
    fn tail_len(&self) -> usize {
        0
    }

    /// Decides `cost` units at `now_ns`. This function is pure: `read` returns tail words, and nothing is written.
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step;

    /// Charges `cost` units at `now_ns` without a check for room; never denies. Units that the word cannot hold are not
    /// charged: the decision's cost is the number that was charged.
    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step;

    /// Charges `units` at `now_ns` to a key that was never seen: its debt from another state.
    fn seed(&self, now_ns: u64, units: u64) -> Step {
        self.force(0, |_| 0, now_ns, units)
    }

    /// Returns the units that a key owes after a decision of this algorithm, or of one that [reads](Stepper::reads) the
    /// same states, rounded up, including debts beyond the burst.
    fn owed(&self, decision: &Decision) -> u64 {
        decision.owed()
    }

    /// Decides `cost` units whose turn comes within `wait_ns`, and charges them now. The default is the same as `step`.
    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        let _ = wait_ns;
        self.step(head, read, now_ns, cost)
    }

    /// Whether a denial can start a block.
    const BLOCKS: bool = false;

    /// Returns the step of a check that may block its key: `step`, or the block that its denial starts. A peek does not
    /// call this, so a peek writes nothing.
    #[inline(always)]
    fn block(&self, head: u64, step: Step) -> Step {
        let _ = head;
        step
    }

    /// Whether a new key has other units than a key that is idle.
    const HAS_FIRST_FILL: bool = false;

    /// Returns the step of a request that may charge its key, after [`block`](Stepper::block): `step`, or the state that a new
    /// key has after a denial. A peek does not call this.
    #[inline(always)]
    fn begin(&self, head: u64, step: Step) -> Step {
        let _ = head;
        step
    }

    /// Returns the step that seeds a key, with the rest of its blocks under another quota.
    fn resume(&self, seeded: Step, block: BlockRest) -> Step {
        let _ = block;
        seeded
    }

    /// Returns the step that blocks a key for `block_ns` from now on, and at least as long as it is blocked already. `None`
    /// if the algorithm has no blocks.
    fn block_for(&self, head: u64, now_ns: u64, block_ns: u64) -> Option<Step> {
        let _ = (head, now_ns, block_ns);
        None
    }

    /// Returns the length of the longest block, in nanoseconds.
    fn longest_block_ns(&self) -> u64 {
        0
    }

    /// Whether a charge can be refunded after later charges; in a queue only the last charge can.
    const CAN_REFUND: bool = false;

    /// Refunds the unpaid part of a charge, or the last units that the key owes. Returns `None` if there are none.
    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let _ = (head, read, refund);
        None
    }

    /// Returns whether this state means the same as an absent key, at `now_ns` and at every later time.
    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool;

    /// Returns the time until the state is idle, to compare it with other states of this algorithm: 0 if and only if it is
    /// idle at `now_ns`. The unit of the time is the algorithm's own, so that no state is converted to nanoseconds. It is below
    /// `u64::MAX`.
    fn until_idle(&self, head: u64, read: impl Fn(usize) -> u64 + Copy, now_ns: u64) -> u64 {
        if self.is_idle(head, read, now_ns) {
            return 0;
        }
        match self.step(head, read, now_ns, 0) {
            Step::Deny(decision) | Step::Admit { decision, .. } => decision.reset_ns().clamp(1, u64::MAX - 1),
            // Its words are not written yet, so it was charged just now.
            Step::Help(_) => u64::MAX - 1,
        }
    }

    /// Returns whether `other` reads and writes words in the same way, so that both can use one state.
    fn reads(&self, other: &Self) -> bool;

    /// Calls `raise` with each tail word of `fill` and its value.
    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        let _ = (fill, raise);
    }

    /// Returns whether words from outside of the process are a state, with all its tail words written. The algorithm can
    /// read every such state.
    fn accepts(&self, head: u64, read: impl Fn(usize) -> u64) -> bool {
        let _ = (head, read);
        true
    }
}
