//! What a change of the quota does with the debts of the keys.

/// Converts the debt of a key under the old quota to a debt under the new one. See
/// [`RateLimiter::set_quota`](crate::RateLimiter::set_quota).
///
/// For example, a key has 40 of 100 units left. After the change it has:
///
/// | | with a new burst of 200 | with a new burst of 20 |
/// |---|---|---|
/// | as is | 40 | 20 |
/// | proportional | 80 | 8 |
/// | additive | 140 | 20 |
/// | reset | 200 | 20 |
/// | used | 140 | 0 |
///
/// A key that owes nothing has the whole new burst under each of these rules. A fraction of a unit is rounded up to the
/// larger debt. For window algorithms, the burst is the limit.
///
/// # Bursts that go down and up again
/// If the burst becomes smaller and then returns to its old value, each such cycle can forgive a part of the debt. For
/// example, the burst changes from 40 to 20 and back to 40:
///
/// | | forgiven in each cycle |
/// |---|---|
/// | as is | debts of up to 20 units; larger ones stay |
/// | proportional | nothing |
/// | additive | up to 20 units |
/// | used | up to 20 units, of debts above 20 |
///
/// So a client that knows when the quota changes is admitted up to 20 more units in each cycle. If the burst changes
/// often, use [`Carry::Proportional`], or change only the rate. A change of the rate alone forgives nothing.
///
/// # Examples
/// ```
/// use tollgate::{Carry, Gcra, ManualClock, Quota, RateLimiter};
///
/// let left = |carry| -> Result<u64, tollgate::QuotaError> {
///     let build = RateLimiter::builder(Gcra::new(Quota::per_hour(100))).clock(ManualClock::default());
///     let limiter = build.keyed::<String>().adjustable();
///     assert_eq!(limiter.check_n("alice", 60).remaining(), 40);
///     limiter.set_quota(&Quota::per_hour(200), carry)?;
///     Ok(limiter.peek("alice").remaining())
/// };
/// assert_eq!(left(Carry::AsIs)?, 40);
/// assert_eq!(left(Carry::Proportional)?, 80);
/// assert_eq!(left(Carry::Additive)?, 140);
/// assert_eq!(left(Carry::Reset)?, 200);
/// assert_eq!(left(Carry::Used)?, 140);
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Carry {
    /// The key keeps the number of units that it had left, limited to the new burst.
    AsIs,
    /// The key keeps the share of the burst that it had left.
    Proportional,
    /// The key keeps the number of units that it had left, plus the growth of the burst.
    Additive,
    /// No key owes anything.
    Reset,
    /// The key keeps the number of units that it has used, limited to the new burst.
    ///
    /// The rest of a larger debt is forgiven (see [above](Carry#bursts-that-go-down-and-up-again)).
    Used,
}

impl Carry {
    /// The units that a key owes of a burst of `new`, if it owed `owed` units of a burst of `old`.
    pub(super) fn owed(self, owed: u64, old: u64, new: u64) -> u64 {
        // The debt at which the number of units left stays the same.
        let moved = (u128::from(owed) + u128::from(new)).saturating_sub(u128::from(old));
        let carried = match self {
            _ if owed == 0 => 0,
            Self::AsIs => moved,
            Self::Proportional => (u128::from(owed) * u128::from(new)).div_ceil(u128::from(old.max(1))),
            Self::Additive if new >= old => u128::from(owed),
            Self::Additive => moved,
            Self::Reset => 0,
            Self::Used => u128::from(owed.min(new)),
        };
        u64::try_from(carried).unwrap_or(u64::MAX)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn carried_debts_beyond_the_burst_do_not_overflow() {
        for (carry, owed, new, left) in [
            (Carry::AsIs, 150, 200, -50),
            (Carry::Proportional, 150, 200, -100),
            (Carry::Additive, 150, 200, 50),
            (Carry::AsIs, 150, 20, -50),
        ] {
            assert_eq!(i128::from(new) - i128::from(carry.owed(owed, 100, new)), left, "{carry:?}");
        }
        assert_eq!(Carry::Proportional.owed(1, 3, 1), 1, "a fraction is rounded up, against the client");
        for carry in [Carry::AsIs, Carry::Proportional, Carry::Additive, Carry::Reset, Carry::Used] {
            assert_eq!(carry.owed(0, 100, 200), 0, "a key that owes nothing has the whole burst");
            let _ = carry.owed(u64::MAX, 0, u64::MAX);
        }
    }
}
