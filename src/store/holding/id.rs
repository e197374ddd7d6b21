//! The identity of a hold.

use core::fmt;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use crate::base::clock::Timestamp;

/// The identity of a hold: the end of its life, and 128 random bits.
///
/// A caller that knows the identity and the key can settle the hold, so that another thread, task or program can do it.
/// An identity cannot be guessed.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate::holds::HoldId;
/// use tollgate::{Quota, RateLimiter};
///
/// let tokens = RateLimiter::new(Quota::per_hour(1_000)).with_holds(100)?;
/// let hold = tokens.hold("alice", 400, Duration::from_secs(60)).expect("1,000 are left");
/// let sent = hold.detach().to_bytes(); // to the process that knows the cost
/// tokens.commit("alice", HoldId::from_bytes(sent), 150);
/// assert_eq!(tokens.peek("alice").remaining(), 850);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
// The order is the order of the ends.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId {
    end_ns: u64,
    random: u128,
}

impl HoldId {
    /// The identity that is before, or equal to, all others in the order of the ends.
    pub(super) const FIRST: Self = Self::new(0, 0);
    /// The identity that is after, or equal to, all others.
    pub(super) const LAST: Self = Self::new(u64::MAX, u128::MAX);

    /// Creates the name of a hold from the end of its life, in nanoseconds since the clock's origin, and a number that no other hold
    /// of the limiter has.
    #[doc(hidden)]
    pub const fn new(end_ns: u64, random: u128) -> Self {
        Self { end_ns, random }
    }

    /// Creates an identity that no other hold has, and that cannot be guessed.
    #[doc(hidden)]
    pub fn unique(end_ns: u64) -> Self {
        // Each thread has a secret from the system, with which `std` computes a `SipHash` of the number. Both have no
        // destructor, so that a thread can take holds while it ends.
        thread_local! {
            static SECRET: RandomState = RandomState::new();
            static NEXT: Cell<u64> = const { Cell::new(0) };
        }
        let number = NEXT.replace(NEXT.get().wrapping_add(1));
        let half = |half: u8| SECRET.with(|secret| u128::from(secret.hash_one((number, half))));
        Self::new(end_ns, half(0) << 64 | half(1))
    }

    /// Returns the end of the hold's life, in nanoseconds since the clock's origin.
    #[doc(hidden)]
    pub const fn end_ns(self) -> u64 {
        self.end_ns
    }

    /// Returns the number that no other hold of the limiter has.
    #[doc(hidden)]
    pub const fn random(self) -> u128 {
        self.random
    }

    /// Returns the end of the hold's life, by the limiter's clock.
    #[must_use]
    pub const fn end(self) -> Timestamp {
        Timestamp::from_nanos(self.end_ns)
    }

    /// Returns the identity as bytes: the end in nanoseconds, then the random bits, both in big-endian order.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.end_ns.to_be_bytes());
        bytes[8..].copy_from_slice(&self.random.to_be_bytes());
        bytes
    }

    /// Returns the identity that [`HoldId::to_bytes`] returned as bytes. Bytes from elsewhere make an identity that no
    /// hold has.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 24]) -> Self {
        let part = |range: core::ops::Range<usize>| {
            bytes[range].iter().fold(0_u128, |part, &byte| part << 8 | u128::from(byte))
        };
        // Eight bytes fit.
        Self { end_ns: u64::try_from(part(0..8)).unwrap_or(u64::MAX), random: part(8..24) }
    }
}

/// Shows only the end: a caller that knows the other bits can settle the hold.
impl fmt::Debug for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldId").field("end", &self.end()).finish_non_exhaustive()
    }
}
