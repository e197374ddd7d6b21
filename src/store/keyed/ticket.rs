//! A check of one key that is decided but not yet charged.

use std::fmt;
use std::ptr::NonNull;

use super::nodes::KeyNode;
use crate::algorithm::Algorithm;
use crate::base::decision::{Decision, Outcome};
use crate::base::reclaim::Pinned;
use crate::store::op::{Exchange, Pins, Ticket, WordTicket};
use crate::store::state::{Admission, KeyState};

/// A check that is decided but not yet charged.
pub struct KeyedTicket<'s, K, A: Algorithm> {
    /// The node of the key, which the guard keeps alive; `None` if there was no node.
    pub(super) node: Option<NonNull<KeyNode<K, A::Tail>>>,
    pub(super) admission: Admission,
    pub(super) algorithm: &'s A,
    pub(super) now_ns: u64,
    pub(super) guard: Pinned,
}

impl<K, A: Algorithm> KeyedTicket<'_, K, A> {
    #[inline(always)]
    fn state(&self) -> Option<&KeyState<A::Tail>> {
        // SAFETY: the node was found under the ticket's guard. The ticket still holds this guard, so the node is not
        // freed.
        self.node.map(|node| unsafe { &node.as_ref().state })
    }
}

impl<K, A: Algorithm> Ticket for KeyedTicket<'_, K, A> {
    #[inline(always)]
    fn outcome(&self) -> Outcome {
        self.admission.decision.outcome()
    }

    #[inline(always)]
    fn exchange(&self) -> Exchange {
        self.state().map_or(Exchange::Lost, |state| state.exchange(self.algorithm, &self.admission))
    }

    #[inline(always)]
    fn charged(&self) -> Decision {
        self.admission.decision
    }

    #[inline(always)]
    fn uncharged(&self) -> Decision {
        let uncharged =
            |state: &KeyState<A::Tail>| state.uncharged(self.algorithm, &self.admission, self.now_ns);
        self.state().map_or(self.admission.decision, uncharged)
    }

    #[inline(always)]
    fn into_word<'t>(self, pins: &'t Pins) -> Option<WordTicket<'t>>
    where
        Self: 't,
    {
        let (word, words) = self.state()?.only_exchange(&self.admission)?;
        // SAFETY: the node was found under the ticket's guard, in the store that lends the ticket its algorithm.
        Some(unsafe { WordTicket::of_node(NonNull::from(word), words, (self.guard, pins)) })
    }
}

impl<K, A: Algorithm> fmt::Debug for KeyedTicket<'_, K, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTicket").field("admission", &self.admission).finish_non_exhaustive()
    }
}
