//! What an algorithm is to a store: a pure function from words, a time and a cost to an effect.
//!
//! A limit's state is one *head* word and, for some algorithms, a few *tail* words. Every admission is one
//! compare-and-swap of the head from exactly the value that the decision was made from, and so is every charge that is
//! taken back. Tail words only ever grow (they are written by atomic maximum), and are written around that exchange:
//!
//! ```text
//! load head (and the tail words it speaks of)
//! step: refuse            -> done, nothing written
//!       admit             -> 1. raise one tail word     what the new head will need is there before it
//!                            2. CAS head                the decision takes effect here, or all begins again
//!                            3. fill tail words         what the new head says is owed; anyone may help
//!       help              -> fill what an earlier admission owes, begin again
//! ```
//!
//! Two values of the head are the store's: 0 is a key that was never seen, [`DEAD`] a node being unlinked.
//! Algorithms never produce them.

use core::fmt::Debug;

use crate::base::decision::Decision;
use crate::base::quota::{Quota, QuotaError};
use crate::base::sync::AtomicU64;
use alloc::boxed::Box;

/// The head of a node that is being unlinked; no charge can land on it.
pub(crate) const DEAD: u64 = u64::MAX;

/// What a step decided, and what makes it so.
#[derive(Copy, Clone, Debug)]
pub enum Step {
    /// Refused: nothing is written.
    Refuse(Decision),
    /// Admitted, if the head can be exchanged for `next`.
    Admit {
        /// The answer.
        decision: Decision,
        /// The new head. Equal to the old one if the cost is zero.
        next: u64,
        /// Written before the exchange.
        raise: Option<Raise>,
        /// Written after the exchange.
        fill: Option<Fill>,
    },
    /// An earlier admission's tail words are not all written yet.
    Help(Fill),
}

impl Step {
    /// Admitted by the head alone.
    pub(crate) const fn admit(decision: Decision, next: u64) -> Self {
        Self::Admit { decision, next, raise: None, fill: None }
    }
}

/// One tail word, to be raised to at least a value.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Raise {
    /// Which.
    pub index: usize,
    /// To what.
    pub value: u64,
}

/// A run of tail words, to be raised; the algorithm knows to what ([`Stepper::filled`]).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Fill {
    /// The first position.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// The time to write, in nanoseconds.
    pub time_ns: u64,
}

/// What is asked of a refund.
#[derive(Copy, Clone, Debug)]
pub struct Refund<'a> {
    /// The charge.
    pub charge: &'a Decision,
    /// At most so many units of it.
    pub units: u64,
    /// The time as of which it is taken back, in nanoseconds.
    pub now_ns: u64,
}

/// A charge that is taken back.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Refunded {
    /// The new head.
    pub next: u64,
    /// Units that the key owes less, of which the last may have been paid in part.
    pub units: u64,
}

/// An algorithm that is an engine under a quota. Public in a private module.
pub trait Wrapper {
    /// What steps for it.
    type Engine: Stepper;

    /// Its engine.
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

    fn reads(&self, other: &Self) -> bool {
        self.engine().reads(other.engine())
    }

    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        self.engine().filled(fill, raise);
    }
}

/// The words behind the head.
pub trait Tail: Send + Sync + 'static {
    /// `len` words of zero. Types of fixed length may have more.
    fn zeroed(len: usize) -> Self;
    /// The words.
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

/// An algorithm: a quota, and how it is kept. Sealed.
///
/// Values are small, immutable and cheap to clone; limiters hold one and apply it to every key's state.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an algorithm",
    note = "of a `Quota` make one first: `Gcra::new(quota)`, for a rate and a burst; `RateLimiter::new` alone takes the quota itself"
)]
pub trait Algorithm: Stepper + Clone + Debug + Send + Sync + 'static {
    /// The same algorithm with another quota, able to read the state that this one wrote; for quotas by call
    /// ([`RateLimiter::check_with`](crate::RateLimiter::check_with)).
    ///
    /// # Errors
    /// If the state could not be read under both: window algorithms need the same period, the sliding log a
    /// limit no larger than its own.
    fn requota(&self, quota: &Quota) -> Result<Self, QuotaError>;

    /// The same kind of algorithm with another quota, for states of its own.
    ///
    /// # Errors
    /// If the algorithm has no room for the quota; the error says what would fit.
    fn with_quota(&self, quota: &Quota) -> Result<Self, QuotaError>;
}

/// The mechanics of an algorithm. Public in a private module: users name [`Algorithm`], which is sealed.
pub trait Stepper {
    /// The words behind the head; `()` if the head is all.
    type Tail: Tail;

    /// How many tail words a key has.
    fn tail_len(&self) -> usize {
        0
    }

    /// Decides `cost` units at `now_ns`. Pure: `read` gives tail words, and nothing is written.
    fn step(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step;

    /// Charges `cost` units at `now_ns` whether or not there is room; never refuses. What the word cannot hold is not
    /// charged: the decision's cost says how much was.
    fn force(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64) -> Step;

    /// Charges `units` at `now_ns` to a key that was never seen, as what it owes from elsewhere.
    fn seed(&self, now_ns: u64, units: u64) -> Step {
        self.force(0, |_| 0, now_ns, units)
    }

    /// The units that a key owes by an answer of this algorithm, a part of one as a whole, debts included.
    fn owed(&self, decision: &Decision) -> u64 {
        decision.owed()
    }

    /// Decides `cost` units that may go within `wait_ns` from now, charged now. As a step, if it does not foresee.
    fn reserve(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64, cost: u64, wait_ns: u64) -> Step {
        let _ = wait_ns;
        self.step(head, read, now_ns, cost)
    }

    /// Whether a charge can be taken back whatever was charged since; in a queue only the last one can.
    const CAN_REFUND: bool = false;

    /// Takes back what is still owed of a charge. `None` if nothing is.
    fn refund(&self, head: u64, read: impl Fn(usize) -> u64, refund: &Refund<'_>) -> Option<Refunded> {
        let _ = (head, read, refund);
        None
    }

    /// Whether at `now_ns` this state means what an absent key means, now and at any later time.
    fn is_idle(&self, head: u64, read: impl Fn(usize) -> u64, now_ns: u64) -> bool;

    /// Whether `other` reads and writes words as this one does, so that both may be used on one state.
    fn reads(&self, other: &Self) -> bool;

    /// Calls `raise` with each tail word of `fill` and its value.
    fn filled(&self, fill: Fill, raise: impl FnMut(Raise)) {
        let _ = (fill, raise);
    }
}
