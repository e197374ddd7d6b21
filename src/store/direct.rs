//! The direct store: one key, one padded word.

use std::fmt;

use crossbeam_utils::CachePadded;

use super::state::{Dead, State};
use crate::algorithm::{Algorithm, Gcra};
use crate::decision::Decision;

/// One limit for everything: no keys. The store of [`RateLimiter::direct`](crate::RateLimiter::direct).
pub struct Direct<A: Algorithm = Gcra> {
    algorithm: A,
    // Padded: every allowed check writes this line, and whatever shares it would be slowed.
    state: CachePadded<State<A::Tail>>,
}

impl<A: Algorithm> Direct<A> {
    pub(crate) fn new(algorithm: A) -> Self {
        let state = CachePadded::new(State::fresh(algorithm.tail_len()));
        Self { algorithm, state }
    }

    pub(crate) fn algorithm(&self) -> &A {
        &self.algorithm
    }

    #[inline(always)]
    pub(crate) fn charge(&self, algorithm: &A, now_ns: u64, cost: u64) -> Decision {
        match self.state.charge(algorithm, now_ns, cost) {
            Ok(decision) => decision,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }

    pub(crate) fn peek(&self, now_ns: u64, cost: u64) -> Decision {
        match self.state.peek(&self.algorithm, now_ns, cost) {
            Ok(decision) => decision,
            Err(Dead) => unreachable!("nothing kills the state of a direct store"),
        }
    }
}

impl<A: Algorithm> fmt::Debug for Direct<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
