//! The state of one limit without its algorithm.

use core::convert::Infallible;
use core::fmt;

use super::state::{Exclusive, KeyState};
use super::state_ref::StateRef;
use crate::algorithm::step::FixedTail;
use crate::algorithm::{Algorithm, Gcra};

/// The state of one limit, for a field of your own struct: 8 bytes for most algorithms.
///
/// A server with a limit for each connection or each peer keeps the states in what it already has for the connection,
/// and one algorithm for all of them. Each call gets the algorithm and the time. A [`RateLimiter`](crate::RateLimiter)
/// without keys is such a state with its own algorithm, a clock and a line of waiters.
///
/// [`LimitState::at`] takes `&self`, for states that threads share. [`LimitState::at_mut`] takes `&mut self`, for states
/// that have one owner: its charges need no atomic exchange. Both make the same decisions, and have all verbs of a direct
/// limiter that neither wait nor charge several limits together.
///
/// The size is 8 bytes with [`Gcra`], [`LeakyBucketMeter`](crate::LeakyBucketMeter),
/// [`LeakyBucketQueue`](crate::LeakyBucketQueue), [`MinimumSpacing`](crate::MinimumSpacing),
/// [`Blocked`](crate::Blocked) and [`CalendarWindow`](crate::CalendarWindow), and 24 bytes with
/// [`FixedWindow`](crate::FixedWindow), [`SlidingWindow`](crate::SlidingWindow) and
/// [`TokenBucket`](crate::TokenBucket). [`SlidingLog`](crate::SlidingLog) and [`SubWindow`](crate::SubWindow) need
/// memory for each unit or part of a window, so they need a limiter. A state never allocates, and works without the
/// standard library.
///
/// Use one algorithm for a state, or several that [`Algorithm::requota`] made from one. Another algorithm takes the word
/// for one of its own, so it may admit too much or deny for too long. It never panics.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::{Gcra, LimitState, Quota, Timestamp};
///
/// struct Limits {
///     streams: Gcra,
///     bytes: Gcra,
/// }
///
/// #[derive(Default)]
/// struct Connection {
///     streams: LimitState,
///     bytes: LimitState,
/// }
/// assert_eq!(size_of::<Connection>(), 16);
///
/// let limits = Limits {
///     streams: Gcra::new(Quota::per_second(2)),
///     bytes: Gcra::new(Quota::per_second(1_000_000)),
/// };
/// let mut connection = Connection::default();
/// let now = Timestamp::from_secs(100); // a server reads its clock once for each packet or event
///
/// assert!(connection.streams.at(&limits.streams, now).check().is_allowed());
/// assert!(connection.streams.at_mut(&limits.streams, now).check().is_allowed());
/// assert!(connection.streams.at(&limits.streams, now).check().is_denied());
///
/// // Bytes that have arrived already are charged without a check. The debt says how long not to read.
/// let charge = connection.bytes.at_mut(&limits.bytes, now).charge_unchecked(1_500_000);
/// assert_eq!(charge.delay(), Duration::from_millis(500));
/// ```
pub struct LimitState<A: Algorithm<Tail: FixedTail> = Gcra> {
    state: KeyState<A::Tail, Infallible>,
}

impl<A: Algorithm<Tail: FixedTail>> LimitState<A> {
    /// Creates the state of a limit that was never charged.
    #[must_use]
    pub fn new() -> Self {
        Self { state: KeyState::fresh(0) }
    }

    #[inline(always)]
    pub(crate) const fn shared<'s>(&'s self, algorithm: &'s A) -> StateRef<'s, A> {
        StateRef::new(algorithm, &self.state)
    }

    #[inline(always)]
    pub(crate) fn exclusive<'s>(&'s mut self, algorithm: &'s A) -> StateRef<'s, A, Exclusive> {
        StateRef::new(algorithm, self.state.exclusive())
    }
}

impl<A: Algorithm<Tail: FixedTail>> Default for LimitState<A> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Algorithm<Tail: FixedTail>> fmt::Debug for LimitState<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitState").finish_non_exhaustive()
    }
}
