//! The units that one member counted: a region, or a process of a region.

/// The number of windows that are remembered. A sliding window reads two, and a sender's clock may be one window ahead.
pub(crate) const WINDOWS: usize = 3;

/// The totals of the newest window that a member reported, and of the windows before.
///
/// [`merge`](Self::merge) is commutative, associative and idempotent. So reports may be repeated, and may arrive in any
/// order. These are the properties of a state-based replicated counter: Shapiro, Preguiça, Baquero and Zawirski,
/// "Conflict-free Replicated Data Types" (2011).
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Totals {
    /// The index of the newest window.
    newest: u64,
    /// The totals of the newest window, and of the windows before it.
    units: [u64; WINDOWS],
}

impl Totals {
    pub(crate) const fn new(newest: u64, units: [u64; WINDOWS]) -> Self {
        Self { newest, units }
    }

    /// The index of the newest window that was reported.
    #[cfg(test)]
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the total of this window, or 0 if it is not remembered.
    pub(crate) fn of(&self, index: u64) -> u64 {
        let age = self.newest.checked_sub(index).and_then(|age| usize::try_from(age).ok());
        age.and_then(|age| self.units.get(age)).copied().unwrap_or(0)
    }

    /// Takes the larger total of each window. Windows that are too old are forgotten.
    pub(crate) fn merge(&mut self, other: &Self) {
        let newest = self.newest.max(other.newest);
        let mut age = 0;
        let units = [(); WINDOWS].map(|()| {
            let index = newest.checked_sub(age);
            age += 1;
            index.map_or(0, |index| self.of(index).max(other.of(index)))
        });
        *self = Self { newest, units };
    }

    /// Merges the total of one window. Returns the number of units by which that total grew.
    pub(crate) fn report(&mut self, index: u64, total: u64) -> u64 {
        let before = self.of(index);
        self.merge(&Self::new(index, [total, 0, 0]));
        self.of(index).saturating_sub(before)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn totals() -> impl Strategy<Value = Totals> {
        (0_u64..6, [0_u64..9, 0..9, 0..9]).prop_map(|(newest, units)| {
            let mut all = Totals::default();
            for (age, units) in (0..).zip(units) {
                if age <= newest {
                    all.report(newest - age, units);
                }
            }
            all
        })
    }

    fn merged(mut a: Totals, b: Totals) -> Totals {
        a.merge(&b);
        a
    }

    proptest! {
        #[test]
        fn merge_is_commutative_associative_and_idempotent(a in totals(), b in totals(), c in totals()) {
            prop_assert_eq!(merged(a, b), merged(b, a));
            prop_assert_eq!(merged(merged(a, b), c), merged(a, merged(b, c)));
            prop_assert_eq!(merged(a, a), a);
            prop_assert_eq!(merged(merged(a, b), b), merged(a, b));
        }

        #[test]
        fn reports_in_any_order_give_equal_totals(
            reports in prop::collection::vec((0_u64..6, 0_u64..9), 0..12),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut once = Totals::default();
            for (index, total) in &reports {
                once.report(*index, *total);
            }
            let mut repeated = Totals::default();
            let shuffled = again.iter().filter(|_| !reports.is_empty()).map(|at| *at.get(&reports));
            for (index, total) in shuffled.chain(reports.iter().rev().copied()) {
                repeated.report(index, total);
            }
            prop_assert_eq!(once, repeated);
        }
    }

    #[test]
    fn report_returns_the_growth() {
        let mut totals = Totals::default();
        assert_eq!(
            [(7, 5), (7, 8), (7, 3), (6, 2), (4, 9), (8, 1)].map(|(i, n)| totals.report(i, n)),
            [5, 3, 0, 2, 0, 1]
        );
        assert_eq!(
            (totals.newest(), totals.of(7), totals.of(6), totals.of(5), totals.of(9)),
            (8, 8, 2, 0, 0)
        );
    }
}
