//! The verbs that concern a whole store, for a store alone and for the present store of an adjustable limiter.

use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
#[cfg(feature = "std")]
use crate::store::op::Inherit;
use crate::store::op::Store;

/// A store, or the store that is in force in an [adjustable](crate::RateLimiter::adjustable) one. Sealed.
///
/// Methods of a limiter that concern all of its keys are written once for this trait, so an adjustable limiter has them
/// too.
pub trait PresentStore {
    /// The store.
    type Store;

    /// Returns a property of the store that is in force, without the keys that it has not taken over yet.
    #[doc(hidden)]
    fn present<T>(&self, property: impl FnOnce(&Self::Store) -> T) -> T;

    /// Returns a property of the store that is in force, when it has all keys that owe at a time.
    #[doc(hidden)]
    fn with_all_keys<T>(
        &self,
        when: impl FnOnce() -> CheckTime,
        property: impl FnOnce(&Self::Store) -> T,
    ) -> T {
        let _ = when;
        self.present(property)
    }

    /// Changes the store that is in force. An adjustable store drops the states of old quotas before.
    #[doc(hidden)]
    fn change(&self, change: impl FnOnce(&Self::Store)) {
        self.present(change);
    }

    /// Whether the key has a state, also in a store that was in force before.
    #[cfg(feature = "std")]
    #[doc(hidden)]
    fn has_key<Q: ?Sized>(&self, key: &Q, when: impl FnOnce() -> CheckTime) -> bool
    where
        Self::Store: Inherit<Q>,
    {
        let _ = when;
        self.present(|store| store.holds(key))
    }
}

/// A store whose states take memory and can all be dropped. Sealed.
pub trait States {
    /// Forgets all states.
    #[doc(hidden)]
    fn clear(&self);

    /// The number of bytes of all states.
    #[doc(hidden)]
    fn state_bytes(&self) -> usize;
}

/// A store that can decide a single call under another quota. Sealed.
pub trait CheckWith<Q: ?Sized>: Store<Q> {
    /// The quota of a call: an algorithm, or the [`Tier`](crate::stores::Tier) of a compact store.
    type Quota;

    /// [`Operation::Check`](super::Operation::Check) under this quota. If the store cannot read its words by it, the store's
    /// own quota decides.
    #[doc(hidden)]
    fn check_with(&self, key: Self::Prepared<'_>, quota: &Self::Quota, at: CheckTime, cost: u64) -> Decision;

    /// Returns the same quota in a form by which this store can read its words, if there is one. A store may have been
    /// replaced by one with other words after the caller made its quota.
    #[doc(hidden)]
    fn readable_quota(&self, quota: &Self::Quota) -> Option<Self::Quota>;
}

/// Returns `wanted`, the algorithm for one call, if it can read the store's words. Otherwise returns the store's own.
#[inline]
pub(super) fn readable<'a, A: Algorithm>(own: &'a A, wanted: &'a A) -> &'a A {
    let reads = own.reads(wanted);
    debug_assert!(
        reads,
        "make the algorithm for a single call with `requota` from the limiter's own algorithm"
    );
    if reads { wanted } else { own }
}
