//! What stores have in common that know a key by its hash only.

use core::hash::Hash;

use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;

/// A store that keeps no keys, but finds them by a 64-bit hash: [`Compact`](crate::Compact) and
/// [`Sketch`](crate::Sketch). Sealed.
pub trait HashedStore: ByHash {}

impl<S: ByHash> HashedStore for S {}

/// How a [`HashedStore`] decides. Public in a private module.
pub trait ByHash {
    /// The hash of a key.
    fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64;

    /// Decides and charges at a time that is asked for once the key's memory is.
    fn charge(&self, hash: u64, time: impl FnOnce() -> CheckTime, cost: u64) -> Decision;

    /// Decides without charging.
    fn peek(&self, hash: u64, time: CheckTime, cost: u64) -> Decision;

    /// Decides each of `requests`, a hash and a cost, in order and at one time, and hands the decisions over.
    fn charge_each(
        &self,
        requests: impl Iterator<Item = (u64, u64)>,
        time: CheckTime,
        decided: impl FnMut(Decision),
    );

    /// Forgets everything.
    fn clear(&self);

    /// The bytes of all states.
    fn state_bytes(&self) -> usize;
}
