//! What can be asked of a store for a key.

use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::quota::{Quota, QuotaError};

/// How a request is taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// All of the cost if there is room now, or nothing.
    Check,
    /// All of the cost if there is room now for that and so many units more, or nothing. A refusal is of both.
    #[cfg(feature = "rules")]
    Within {
        /// The units that stay free.
        spare: u64,
    },
    /// As much of the cost as leaves so many units free; denied if that is nothing.
    #[cfg(feature = "rules")]
    TakeWithin {
        /// The units that stay free.
        spare: u64,
    },
    /// All of the cost, room or not.
    Force,
    /// As much of the cost as there is room for; denied if that is nothing.
    Take,
    /// All of the cost, room or not, if the key was never seen; else nothing.
    Seed,
    /// All of the cost if there will be room within so many nanoseconds, charged now.
    Reserve {
        /// The longest wait.
        wait_ns: u64,
    },
}

/// A store that can be asked for keys of type `Q`. Public in a private module: sealed.
///
/// [`Direct`](crate::Direct) takes any key for the same.
pub trait Store<Q: ?Sized> {
    /// What is kept between the look and the charge.
    type Ticket<'s>
    where
        Self: 's;

    /// Where a key belongs.
    type Place: Copy;

    /// Finds out where a key belongs, and asks for its memory: it comes while the clock is read.
    fn approach(&self, key: &Q) -> Self::Place;

    /// Looks at what [`Operation::Check`] would decide, and charges nothing yet.
    fn prepare(&self, key: &Q, place: Self::Place, when: CheckTime, cost: u64) -> Self::Ticket<'_>;

    /// What that would be.
    fn outcome(ticket: &Self::Ticket<'_>) -> Outcome;

    /// Charges what was prepared, if nothing has changed since; false if it was not charged.
    fn exchange(&self, when: CheckTime, ticket: &Self::Ticket<'_>) -> bool;

    /// The answer once that was done.
    fn charged(&self, when: CheckTime, ticket: &Self::Ticket<'_>, cost: u64) -> Decision;

    /// The answer if it is not done: what would have been decided, with the figures as they stand.
    fn uncharged(&self, when: CheckTime, ticket: &Self::Ticket<'_>, cost: u64) -> Decision;

    /// Decides and charges.
    fn act(&self, key: &Q, verb: Operation, when: CheckTime, cost: u64) -> Decision;

    /// What [`Operation::Check`] would decide, uncharged.
    fn look(&self, key: &Q, when: CheckTime, cost: u64) -> Decision;

    /// Takes back what is still owed of up to `units` of a charge: how many units.
    fn give_back(&self, key: &Q, when: CheckTime, charge: &Decision, units: u64) -> u64;

    /// Whether charges can be taken back whatever was charged since.
    fn undoes(&self) -> bool;
}

/// A store from which, and into which, what keys owe can be carried over. Public in a private module: sealed.
pub trait Migrate: Sized {
    /// The time in which `units`, charged to a new key at `at_ns`, are paid, in nanoseconds.
    fn paid_in_ns(&self, at_ns: u64, units: u64) -> u64;

    /// What a new key owes at `now_ns` of `units` that were charged to it at `at_ns`.
    fn left(&self, at_ns: u64, units: u64, now_ns: u64) -> u64;

    /// The most that is ever admitted at once.
    fn burst(&self) -> u64;

    /// The units that a key owes by an answer of this store.
    fn owed(&self, decision: &Decision) -> u64;

    /// Whether no key owes more than the burst.
    fn is_known(&self) -> bool;

    /// Charges what `owed` says of each key's answer as of `at_ns`, and as of when, to the same key in another store, if that has
    /// none of it. False if keys cannot be listed, or there is no room for some.
    fn carry_all(
        &self,
        into: &Self,
        when: CheckTime,
        at_ns: u64,
        owed: &dyn Fn(&Decision) -> (u64, u64),
    ) -> bool;
}

/// A store whose quota can change while it is in use. Public in a private module: sealed.
pub trait Rebuild: Migrate {
    /// An empty store of the same kind and size with another quota.
    ///
    /// # Errors
    /// If it cannot hold the quota.
    fn rebuild(&self, quota: &Quota) -> Result<Self, QuotaError>;
}

/// A store that a key can be taken over into, by what it owes. Public in a private module: sealed.
pub trait Inherit<Q: ?Sized>: Store<Q> {
    /// Whether the key has a state here.
    fn holds(&self, key: &Q) -> bool;

    /// Whether the key was ever charged here, as far as can be told.
    fn knew(&self, key: &Q) -> bool;

    /// Charges `units` as of `at_ns` to a key that has no state here; else nothing. A refusal, if there is no room for the key.
    fn seed(&self, key: &Q, when: CheckTime, at_ns: u64, units: u64) -> Option<Decision>;
}

/// A store of many keys. Public in a private module: sealed.
pub trait ManyKeys {}

/// For stores of which a charge is more than one exchange: what is kept between the look and the charge is the answer, and the
/// charge is made anew.
macro_rules! answers_are_tickets {
    ($key:ty) => {
        type Ticket<'s>
            = Decision
        where
            Self: 's;

        type Place = ();

        fn approach(&self, _key: &$key) {}

        fn prepare(&self, key: &$key, (): (), when: CheckTime, cost: u64) -> Decision {
            Store::look(self, key, when, cost)
        }

        fn outcome(ticket: &Decision) -> crate::base::decision::Outcome {
            ticket.outcome()
        }

        fn exchange(&self, _when: CheckTime, _ticket: &Decision) -> bool {
            false
        }

        fn charged(&self, _when: CheckTime, ticket: &Decision, _cost: u64) -> Decision {
            *ticket
        }

        fn uncharged(&self, _when: CheckTime, ticket: &Decision, _cost: u64) -> Decision {
            *ticket
        }
    };
}

pub(crate) use answers_are_tickets;
