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
