//! The state of one key, and the loop that applies the steps of an algorithm to it.
//!
//! The state is one *head* word and, for some algorithms, *tail* words with data that the head refers to. A charge takes
//! effect at the exchange of the head:
//!
//! 1. Load the head, and the tail words that the algorithm needs. The algorithm decides from them.
//! 2. If the algorithm asks for it, *raise* one tail word: set it to the maximum of its value and a new one.
//! 3. Exchange the head. If the head has changed, start again at step 1.
//! 4. If the algorithm asks for it, *fill* tail words. If the thread is preempted here, the next thread that needs the
//!    words fills them first ([`Step::Help`]).
//!
//! # Orderings
//! This argument holds for all algorithms.
//!
//! - The Release of the exchange publishes the raise of step 2. A thread that loads the new head (Acquire) sees the tail
//!   word that it needs.
//! - Tail loads are Acquire. A thread may raise a word after it has seen a newer head. A reader that loads this word
//!   then also sees the newer head. So a reader that has used newer words detects it when it loads the head again.
//! - Fills are Release and in order. A thread that sees the newest word of a run of fills sees the whole run.

#[cfg(all(test, tollgate_loom))]
mod models;
mod saved;

use core::convert::Infallible;
use core::marker::PhantomData;

use crate::algorithm::step::{
    Algorithm, BlockRest, DEAD, Fill, Raise, Refund, Refunded, Step, Stepper, Tail,
};
use crate::base::clock::saturating_nanos;
use crate::base::decision::Decision;
use crate::base::sync::{AtomicU64, Ordering};
use crate::store::op::{Debts, Exchange, Operation};

/// The head and tail words of one key. `X` says who uses the state beside the caller: other callers and a store that can
/// mark it dead ([`Dead`]), only other callers ([`Infallible`]), or no one else ([`Exclusive`]).
// `repr(C)`: the layout does not depend on `X`, see `KeyState::exclusive`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct KeyState<T, X = Dead> {
    head: AtomicU64,
    tail: T,
    access: PhantomData<X>,
}

/// The key's node is being unlinked. The caller must look the key up again.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dead;

/// Whether a call marked a state dead.
#[must_use]
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kill {
    /// This call marked the state dead. Only one call can do this.
    Done,
    /// The state is in use, or another call was first.
    NotDone,
}

/// No other caller uses the state for the time of a borrow. There is no value of this type: such a state is never dead.
#[derive(Copy, Clone, Debug)]
pub enum Exclusive {}

/// Who uses a state beside the caller: whether it can be dead, and how its head is exchanged. Public in a private module.
pub trait Access: Sized {
    /// Returns the error for a dead state, if this head is marked dead.
    #[inline(always)]
    fn dead(_head: u64) -> Option<Self> {
        None
    }

    /// Exchanges the head if it is still `head`. Otherwise returns the newer head.
    #[doc(hidden)]
    #[inline(always)]
    fn exchange(word: &AtomicU64, head: u64, next: u64) -> Result<u64, u64> {
        // Ordering: AcqRel on success: publishes the raise, and orders the fills after the exchange. Acquire on failure:
        // the returned head replaces the head that was loaded.
        word.compare_exchange(head, next, Ordering::AcqRel, Ordering::Acquire)
    }
}

impl Access for Dead {
    #[inline(always)]
    fn dead(head: u64) -> Option<Self> {
        (head == DEAD).then_some(Self)
    }
}

/// For a store that never marks a state dead.
impl Access for Infallible {}

impl Access for Exclusive {
    #[inline(always)]
    fn exchange(word: &AtomicU64, head: u64, next: u64) -> Result<u64, u64> {
        // Ordering: Relaxed. The caller has the only reference to the state, and what passes the state to another thread
        // orders the store before that thread's loads.
        word.store(next, Ordering::Relaxed);
        Ok(head)
    }
}

/// Access to a state that cannot be dead: there is no error. Public in a private module.
pub trait Lasting: Access {
    #[doc(hidden)]
    fn never(self) -> !;
}

impl Lasting for Infallible {
    fn never(self) -> ! {
        match self {}
    }
}

impl Lasting for Exclusive {
    fn never(self) -> ! {
        match self {}
    }
}

/// Returns what a state that cannot be dead has decided.
#[inline(always)]
pub(crate) fn lasting<R, X: Lasting>(result: Result<R, X>) -> R {
    result.unwrap_or_else(|never| never.never())
}

/// An action on the state of one key.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Action {
    Apply(Operation),
    /// Charges all of the cost, even if there is no room, and continues the blocks, if the key was never seen. Otherwise
    /// charges nothing.
    Seed(BlockRest),
    /// Blocks the key for this number of nanoseconds, if the algorithm has blocks. Otherwise changes nothing.
    Block(u64),
}

/// A request for the state of one key.
#[derive(Debug)]
pub(crate) struct Request<'a, A> {
    pub(crate) algorithm: &'a A,
    pub(crate) action: Action,
    pub(crate) now_ns: u64,
    pub(crate) cost: u64,
}

impl<A: Algorithm> Request<'_, A> {
    /// Returns the step that the algorithm takes for this request. A pure function.
    #[inline]
    pub(crate) fn step(&self, head: u64, read: impl Fn(usize) -> u64 + Copy) -> Step {
        let &Self { algorithm, action, now_ns, cost } = self;
        let step = |cost| algorithm.step(head, read, now_ns, cost);
        let step = match action {
            Action::Seed(block) if head == 0 => algorithm.resume(algorithm.seed(now_ns, cost), block),
            Action::Seed(_) => step(0),
            Action::Block(block_ns) => algorithm.block_for(head, now_ns, block_ns).unwrap_or_else(|| step(0)),
            Action::Apply(Operation::Check) => return self.check(head, read),
            Action::Apply(Operation::Force) => algorithm.force(head, read, now_ns, cost),
            Action::Apply(Operation::Reserve { wait_ns }) => {
                algorithm.reserve(head, read, now_ns, cost, wait_ns)
            }
            Action::Apply(Operation::Take) => match step(cost) {
                Step::Deny(decision) => algorithm.block(head, step(decision.remaining().max(1))),
                other => other,
            },
            Action::Apply(Operation::CheckOversized) => {
                let asked = step(cost);
                match asked {
                    Step::Deny(never) if never.is_never() && never.keeps_debts() => {}
                    decided => return decided,
                }
                let forced = |head, read: &dyn Fn(usize) -> u64| algorithm.force(head, read, now_ns, cost);
                match (forced(0, &|_| 0), asked) {
                    (Step::Admit { decision, .. }, Step::Deny(never)) if decision.cost() == cost => {
                        match step(never.limit()) {
                            Step::Admit { .. } => forced(head, &read),
                            Step::Deny(busy) => Step::Deny(busy.for_cost(cost)),
                            help @ Step::Help(_) => help,
                        }
                    }
                    // The word has no room for the debt.
                    _ => asked,
                }
            }
            Action::Apply(Operation::CheckKeeping { headroom }) => {
                match step(cost.saturating_add(headroom)) {
                    Step::Admit { .. } => step(cost),
                    denied => denied,
                }
            }
            Action::Apply(Operation::TakeKeeping { headroom }) => match step(cost.saturating_add(headroom)) {
                Step::Admit { .. } => step(cost),
                Step::Deny(decision) if decision.remaining() > headroom => {
                    step(decision.remaining() - headroom)
                }
                denied => denied,
            },
        };
        algorithm.begin(head, step)
    }

    /// The step of a check.
    #[inline(always)]
    fn check(&self, head: u64, read: impl Fn(usize) -> u64 + Copy) -> Step {
        let &Self { algorithm, now_ns, cost, .. } = self;
        algorithm.begin(head, algorithm.block(head, algorithm.step(head, read, now_ns, cost)))
    }
}

#[cfg(feature = "std")]
impl<A: Algorithm> Request<'_, A> {
    /// The admission of a key that was never seen.
    // A check has a branch of its own, so that the compiler writes the words of its decision to their place. Otherwise it stores
    // them one by one and copies them with wider loads, which wait for the stores: 4 % of a new key at the cap.
    #[inline]
    pub(crate) fn fresh(&self) -> Admission {
        match self.action {
            Action::Apply(Operation::Check) => Admission::fresh(self.check(0, |_| 0)),
            _ => self.fresh_rarely(),
        }
    }

    #[cold]
    #[inline(never)]
    fn fresh_rarely(&self) -> Admission {
        Admission::fresh(self.step(0, |_| 0))
    }
}

/// The decision of [`Operation::Check`] for a key that was never seen, without a charge.
#[cfg(feature = "std")]
pub(crate) fn peek_fresh<A: Algorithm>(algorithm: &A, now_ns: u64, cost: u64) -> Decision {
    let action = Action::Apply(Operation::Check);
    let fresh = |cost| Request { algorithm, action, now_ns, cost }.fresh().decision;
    let decision = fresh(cost);
    if decision.is_allowed() { decision.with_figures_of(fresh(0)) } else { decision }
}

/// An admission: the decision, the head from which it was made, and the words to write.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Admission {
    pub(crate) decision: Decision,
    head: u64,
    pub(super) next: u64,
    raise: Option<Raise>,
    fill: Option<Fill>,
}

impl<A: Algorithm> Debts for A {
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64 {
        match self.seed(at_ns, units) {
            Step::Deny(decision) | Step::Admit { decision, .. } => saturating_nanos(decision.reset_after()),
            Step::Help(_) => 0,
        }
    }

    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64 {
        let state = KeyState::<A::Tail, Infallible>::fresh(self.tail_len());
        let seed = Request {
            algorithm: self,
            action: Action::Seed(BlockRest::default()),
            now_ns: at_ns,
            cost: units,
        };
        let Ok(_) = state.apply(&seed);
        let Ok(left) = state.peek(self, now_ns.max(at_ns), 0);
        Stepper::owed(self, &left)
    }

    fn longest_block_ns(&self) -> u64 {
        Stepper::longest_block_ns(self)
    }

    fn burst(&self) -> u64 {
        match self.step(0, |_| 0, 0, 0) {
            Step::Deny(decision) | Step::Admit { decision, .. } => decision.limit(),
            Step::Help(_) => 0,
        }
    }

    fn owed(&self, decision: &Decision) -> u64 {
        Stepper::owed(self, decision)
    }
}

impl Admission {
    /// The admission of a step for a key that was never seen.
    #[cfg(feature = "std")]
    #[inline(always)]
    fn fresh(step: Step) -> Self {
        match step {
            Step::Deny(decision) => Self::denied(decision),
            Step::Admit { decision, next, raise, fill } => Self { decision, head: 0, next, raise, fill },
            Step::Help(_) => unreachable!("a key that was never seen owes nothing"),
        }
    }

    /// An admission that writes nothing.
    pub(super) const fn denied(decision: Decision) -> Self {
        Self { decision, head: 0, next: 0, raise: None, fill: None }
    }
}

impl<T: Tail, X: Access> KeyState<T, X> {
    /// The state of a key that was never seen.
    pub(crate) fn fresh(tail_len: usize) -> Self {
        Self { head: AtomicU64::new(0), tail: T::zeroed(tail_len), access: PhantomData }
    }

    /// The state of a key that was never seen, after its admission. No other thread sees the state before.
    #[cfg(feature = "std")]
    pub(crate) fn admitted(algorithm: &impl Algorithm<Tail = T>, tail_len: usize, first: &Admission) -> Self {
        let mut state = Self::fresh(tail_len);
        state.head = AtomicU64::new(first.next);
        if let Some(raise) = first.raise {
            state.raise(raise);
        }
        if let Some(fill) = first.fill {
            state.fill(algorithm, fill);
        }
        state
    }

    /// The bytes of the tail, which may be an allocation of its own.
    pub(crate) fn tail_bytes(&self) -> usize {
        size_of_val(self.tail.words())
    }

    #[inline]
    fn read(&self, index: usize) -> u64 {
        // Ordering: Acquire, see the module docs.
        self.tail.words()[index].load(Ordering::Acquire)
    }

    #[inline]
    fn raise(&self, Raise { index, value }: Raise) {
        // Ordering: Release, see the module docs. The load half could be Relaxed.
        self.tail.words()[index].fetch_max(value, Ordering::AcqRel);
    }

    fn fill(&self, algorithm: &impl Algorithm<Tail = T>, fill: Fill) {
        algorithm.filled(fill, |raise| self.raise(raise));
    }

    /// Writes the fills that an earlier admission still owes, if the words that were read belong to `head`.
    ///
    /// Returns the current head.
    #[cold]
    fn help(&self, algorithm: &impl Algorithm<Tail = T>, head: u64, fill: Fill) -> u64 {
        if let Err(newer) = self.head_unchanged(head) {
            return newer;
        }
        self.fill(algorithm, fill);
        self.head.load(Ordering::Acquire)
    }

    /// Decides `cost` units at `now_ns` and charges them if they are admitted.
    ///
    /// Lock-free: the loop repeats only if another thread's charge took effect. A denial writes nothing, unless it starts
    /// a block.
    // Always inlined. A call out of line stores the words of the decision one by one, and the caller loads them with
    // wider loads. Such loads must wait for the stores: 22 ns instead of 17 ns.
    #[inline(always)]
    pub(crate) fn charge(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        now_ns: u64,
        cost: u64,
    ) -> Result<Decision, X> {
        let step = |head| algorithm.step(head, |index| self.read(index), now_ns, cost);
        self.charge_by(algorithm, |head| algorithm.begin(head, algorithm.block(head, step(head))))
    }

    /// Starts the block of a request that was denied. Charges nothing if it is admitted by now.
    #[cold]
    pub(crate) fn block(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        now_ns: u64,
        cost: u64,
    ) -> Result<Decision, X> {
        self.charge_by(algorithm, |head| match algorithm.step(head, |index| self.read(index), now_ns, cost) {
            Step::Admit { decision, .. } => Step::admit(decision.uncharged(), head),
            denied => algorithm.begin(head, algorithm.block(head, denied)),
        })
    }

    /// Decides a request and charges it.
    pub(crate) fn apply<A: Algorithm<Tail = T>>(&self, request: &Request<'_, A>) -> Result<Decision, X> {
        self.charge_by(request.algorithm, |head| request.step(head, |index| self.read(index)))
    }

    /// Takes back units that are still owed, and returns their number.
    ///
    /// A charge that another thread makes in the meantime stays.
    pub(crate) fn refund(&self, algorithm: &impl Algorithm<Tail = T>, refund: &Refund<'_>) -> Result<u64, X> {
        // Ordering: Acquire, see the module docs.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if let Some(death) = X::dead(head) {
                return Err(death);
            }
            let read = |index| self.read(index);
            let Some(Refunded { next, units }) = algorithm.refund(head, read, refund) else {
                return Ok(0);
            };
            // Ordering: as for a charge. If the exchange succeeds, the tail words that were read belong to this head, or
            // to a later head of the same value.
            match X::exchange(&self.head, head, next) {
                Ok(_) => return Ok(units),
                Err(newer) => head = newer,
            }
        }
    }

    /// Decides by `step`, and charges the admission.
    #[inline(always)]
    fn charge_by(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        step: impl Fn(u64) -> Step,
    ) -> Result<Decision, X> {
        self.decide(
            algorithm,
            step,
            |refusal| refusal,
            |admission| self.admit(algorithm, &admission).map(|()| admission.decision),
        )
    }

    /// Writes an admission if the head has not changed since the decision. Otherwise returns the newer head.
    #[inline(always)]
    fn admit(&self, algorithm: &impl Algorithm<Tail = T>, admission: &Admission) -> Result<(), u64> {
        let &Admission { head, next, raise, fill, .. } = admission;
        if next == head {
            return self.head_unchanged(head);
        }
        if let Some(raise) = raise {
            self.raise(raise);
        }
        X::exchange(&self.head, head, next)?;
        if let Some(fill) = fill {
            self.fill(algorithm, fill);
        }
        Ok(())
    }

    /// Decides like [`KeyState::charge`], and leaves the charge to [`KeyState::exchange`].
    #[inline(always)]
    pub(crate) fn prepare(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        now_ns: u64,
        cost: u64,
    ) -> Result<Admission, X> {
        self.decide(
            algorithm,
            |head| algorithm.step(head, |index| self.read(index), now_ns, cost),
            Admission::denied,
            |admission| self.head_unchanged(admission.head).map(|()| admission),
        )
    }

    /// Charges a prepared admission, if the head has not changed.
    #[inline(always)]
    pub(crate) fn exchange(&self, algorithm: &impl Algorithm<Tail = T>, admission: &Admission) -> Exchange {
        self.admit(algorithm, admission).into()
    }

    /// The exchange that charges a prepared admission, if nothing else has to be written: the word, its value, and the next
    /// one.
    #[cfg(feature = "std")]
    #[inline(always)]
    pub(crate) fn only_exchange(&self, admission: &Admission) -> Option<(&AtomicU64, [u64; 2])> {
        let &Admission { head, next, raise: None, fill: None, .. } = admission else { return None };
        (next != head).then_some((&self.head, [head, next]))
    }

    /// The decision of a prepared admission, with the figures before the charge.
    #[inline(always)]
    pub(crate) fn uncharged(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        admission: &Admission,
        now_ns: u64,
    ) -> Decision {
        let &Admission { decision, head, .. } = admission;
        if decision.is_denied() {
            return decision;
        }
        match algorithm.step(head, |index| self.read(index), now_ns, 0) {
            Step::Admit { decision: uncharged, .. } => decision.with_figures_of(uncharged),
            _ => decision,
        }
    }

    /// Returns the decision that [`KeyState::charge`] would make now, with the current figures and without a charge.
    ///
    /// Writes nothing, except the fills that another thread's admission still owes.
    pub(crate) fn peek(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        now_ns: u64,
        cost: u64,
    ) -> Result<Decision, X> {
        let step = |head, cost| algorithm.step(head, |index| self.read(index), now_ns, cost);
        self.decide(
            algorithm,
            |head| step(head, cost),
            |refusal| refusal,
            |admission| {
                // Without a cost, the figures are those without a charge.
                let decision = match cost {
                    0 => admission.decision,
                    _ => self.uncharged(algorithm, &admission, now_ns),
                };
                self.head_unchanged(admission.head).map(|()| decision)
            },
        )
    }

    /// Runs the algorithm, and passes each admission to `admit`. If `admit` fails, it returns the newer head.
    #[inline(always)]
    fn decide<R>(
        &self,
        algorithm: &impl Algorithm<Tail = T>,
        step: impl Fn(u64) -> Step,
        deny: impl Fn(Decision) -> R,
        admit: impl Fn(Admission) -> Result<R, u64>,
    ) -> Result<R, X> {
        // Ordering: Acquire, see the module docs.
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if let Some(death) = X::dead(head) {
                return Err(death);
            }
            let result = match step(head) {
                // The figures of a denial are uncharged, and include the retry time.
                Step::Deny(decision) => self.head_unchanged(head).map(|()| deny(decision)),
                Step::Admit { decision, next, raise, fill } => {
                    admit(Admission { decision, head, next, raise, fill })
                }
                Step::Help(fill) => Err(self.help(algorithm, head, fill)),
            };
            match result {
                Ok(result) => return Ok(result),
                Err(newer) => head = newer,
            }
        }
    }

    /// Whether the tail words that were read belong to `head`. Always true without tail words.
    #[inline]
    fn head_unchanged(&self, head: u64) -> Result<(), u64> {
        if self.tail.words().is_empty() {
            return Ok(());
        }
        match self.head.load(Ordering::Acquire) {
            same if same == head => Ok(()),
            newer => Err(newer),
        }
    }

    /// Makes the state that of a key that was never seen. Returns whether that is possible: tail words keep what they hold.
    pub(crate) fn forget(&self) -> bool {
        // Ordering: AcqRel, as for a charge.
        !self.is_used() || (self.tail.words().is_empty() && self.head.swap(0, Ordering::AcqRel) != DEAD)
    }

    /// Whether anything was ever charged.
    pub(crate) fn is_used(&self) -> bool {
        self.head.load(Ordering::Acquire) != 0
    }
}

impl<T> KeyState<T, Infallible> {
    /// Returns the state for a caller that has the only reference to it: its charges need no exchange.
    #[inline(always)]
    pub(crate) fn exclusive(&mut self) -> &KeyState<T, Exclusive> {
        let state: *const Self = self;
        // SAFETY:
        // 1. Both types have the same fields in the order of `repr(C)`; the third has no size. So they have one layout.
        // 2. The result borrows for as long as `self`, so the state lives, and there is no other reference to it.
        unsafe { &*state.cast() }
    }
}

impl<T: Tail> KeyState<T> {
    /// Marks the state dead if it means the same as an absent key at `now_ns`.
    pub(crate) fn kill_if_idle(&self, algorithm: &impl Algorithm<Tail = T>, now_ns: u64) -> Kill {
        let head = self.head.load(Ordering::Acquire);
        if head == DEAD || !algorithm.is_idle(head, |index| self.read(index), now_ns) {
            return Kill::NotDone;
        }
        // Ordering: as for a charge. If a charge came first, the exchange fails and the state stays alive.
        match self.head.compare_exchange(head, DEAD, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Kill::Done,
            Err(_) => Kill::NotDone,
        }
    }

    /// Returns the time until the state is idle, in the algorithm's own unit, or `None` if it is dead.
    #[inline]
    pub(crate) fn until_idle(&self, algorithm: &impl Algorithm<Tail = T>, now_ns: u64) -> Option<u64> {
        let head = self.head.load(Ordering::Acquire);
        (head != DEAD).then(|| algorithm.until_idle(head, |index| self.read(index), now_ns))
    }

    /// Marks the state dead, whatever it holds.
    pub(crate) fn kill(&self) -> Kill {
        match self.head.swap(DEAD, Ordering::AcqRel) {
            DEAD => Kill::NotDone,
            _ => Kill::Done,
        }
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.head.load(Ordering::Acquire) == DEAD
    }
}
