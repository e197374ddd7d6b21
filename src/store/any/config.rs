//! A store that is chosen at run time: its kind, its size and its options.

use std::fmt;

use super::StoreKind;
use crate::algorithm::CompactAlgorithm;
use crate::algorithm::compact::CompactState;
use crate::base::quota::QuotaError;
use crate::store::compact::{CompactLayout, CompactPlan};
use crate::store::keyed::KeyedLayout;
use crate::store::{Capacity, Overflow, WhenFull};

/// A kind of store, with its size and its options: what a file, a flag or a snapshot says about a store.
/// [`Builder::build`](crate::Builder::build) takes it. A rule of a file has one too.
///
/// # Examples
/// ```
/// use tollgate::{AnyLimiter, Quota, RateLimiter, StoreConfig, StoreKind, WhenFull};
///
/// let store = StoreConfig::new(StoreKind::Keyed).with_max_keys(2, WhenFull::Deny);
/// let limiter: AnyLimiter = RateLimiter::any(Quota::per_hour(1)).build(store)?;
/// assert_eq!(["a", "b", "c"].map(|key| limiter.check(key).is_allowed()), [true, true, false]);
///
/// let sketch = StoreConfig::from(StoreKind::Sketch).with_max_keys(2, WhenFull::Deny);
/// assert!(RateLimiter::any("fixed-window 1/h".parse::<tollgate::Limit>()?).build::<String>(sketch).is_err());
/// # Ok::<(), tollgate::QuotaError>(())
/// ```
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct StoreConfig {
    pub(crate) kind: StoreKind,
    pub(crate) capacity: Option<Capacity>,
    pub(crate) max_keys: Option<(usize, WhenFull)>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) overdraft: u64,
}

impl From<StoreKind> for StoreConfig {
    fn from(kind: StoreKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for StoreConfig {
    /// Writes the kind and the size, such as `keyed of 5 keys`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (self.capacity.and_then(|capacity| capacity.bytes()), self.max_keys) {
            (Some(bytes), _) => write!(f, " of {bytes} bytes"),
            (None, Some((most, _))) => write!(f, " of {most} keys"),
            (None, None) => Ok(()),
        }
    }
}

impl StoreConfig {
    /// A store of this kind, with the default size and options.
    #[must_use]
    pub const fn new(kind: StoreKind) -> Self {
        Self { kind, capacity: None, max_keys: None, overflow: None, overdraft: 0 }
    }

    /// Sets the size: see [`Builder::capacity`](crate::Builder::capacity).
    #[must_use]
    pub const fn with_capacity(mut self, capacity: Capacity) -> Self {
        self.capacity = Some(capacity);
        self
    }

    /// Sets the most keys of a keyed store: see [`Builder::max_keys`](crate::Builder::max_keys).
    ///
    /// # Panics
    /// Panics if `most` is 0. Such a store would deny every request, or limit no request.
    #[must_use]
    #[track_caller]
    pub const fn with_max_keys(mut self, most: usize, when_full: WhenFull) -> Self {
        assert!(most > 0, "max_keys is 0, but a keyed store must have room for one key");
        self.max_keys = Some((most, when_full));
        self
    }

    /// Sets what a compact store does when it is full: see [`Builder::overflow`](crate::Builder::overflow).
    #[must_use]
    pub const fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = Some(overflow);
        self
    }

    /// Sets by how many units a compact store lets a key exceed its limit: see [`Builder::overdraft`](crate::Builder::overdraft).
    #[must_use]
    pub const fn with_overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Returns the kind.
    #[must_use]
    pub const fn kind(&self) -> StoreKind {
        self.kind
    }

    /// Returns the size, if it is set.
    #[must_use]
    pub const fn capacity(&self) -> Option<Capacity> {
        self.capacity
    }

    /// Returns the most keys, and what happens to other keys, if that is set.
    #[must_use]
    pub const fn max_keys(&self) -> Option<(usize, WhenFull)> {
        self.max_keys
    }

    /// Returns what a compact store does when it is full, if that is set.
    #[must_use]
    pub const fn overflow(&self) -> Option<Overflow> {
        self.overflow
    }

    pub(super) fn compact<A: CompactAlgorithm>(&self, algorithm: A) -> Result<CompactPlan<A>, QuotaError> {
        let &Self { overflow, overdraft, .. } = self;
        let mut capacity = self.capacity.unwrap_or_default();
        // The same number of slots as a store that spills, so that debts carry over slot by slot.
        if !<A::CompactState as CompactState>::DOMINATES && overflow.is_none() {
            capacity = capacity.without_sketch();
        }
        CompactPlan::new(algorithm, CompactLayout { capacity, overflow, tiers: Vec::new(), overdraft })
    }

    pub(super) fn keyed(&self) -> KeyedLayout {
        KeyedLayout { capacity: self.capacity.map_or(0, |capacity| capacity.keys()), cap: self.max_keys }
    }

    /// Returns the two numbers of a store in a snapshot. `None` for a store that no file of rules sets. No store is 0.
    pub fn saved(&self) -> Option<[u64; 2]> {
        // Without `..`, so that the compiler asks for each new option.
        let Self { kind, capacity, max_keys, overflow: None, overdraft: 0 } = *self else { return None };
        let (number, size) = match (kind, capacity, max_keys) {
            (StoreKind::Compact, Some(memory), None) => (1, memory.bytes()?),
            (StoreKind::Keyed, None, None) => (2, 0),
            (StoreKind::Keyed, None, Some((most, WhenFull::Forget))) => (3, most),
            (StoreKind::Sketch, Some(memory), None) => (4, memory.bytes()?),
            _ => return None,
        };
        Some([number, size as u64])
    }

    /// Returns the store with these numbers. `None` for numbers of no store.
    pub fn of_saved([number, size]: [u64; 2]) -> Option<Self> {
        let size = usize::try_from(size).ok()?;
        Some(match (number, size) {
            (1, bytes) => Self::new(StoreKind::Compact).with_capacity(Capacity::memory(bytes)),
            (2, _) => Self::new(StoreKind::Keyed),
            (3, most @ 1..) => Self::new(StoreKind::Keyed).with_max_keys(most, WhenFull::Forget),
            (4, bytes) => Self::new(StoreKind::Sketch).with_capacity(Capacity::memory(bytes)),
            _ => return None,
        })
    }
}
