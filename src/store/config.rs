//! The size and the options of a store, which a builder sets, and a store that is chosen at run time.

#[cfg(feature = "std")]
use {
    super::compact::{CompactLayout, CompactPlan},
    super::keyed::{KeyedLayout, WhenFull},
    crate::algorithm::{CompactAlgorithm, compact::CompactState},
    crate::base::quota::QuotaError,
    crate::store::StoreKind,
    std::fmt,
};

use super::{Capacity, Overflow};

/// The size and the options of a store. What is not set has the default of the store.
// Its methods take it apart without `..`, so that the compiler asks for each new option.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct StoreOptions {
    pub(crate) capacity: Option<Capacity>,
    #[cfg(feature = "std")]
    pub(crate) max_keys: Option<(usize, WhenFull)>,
    pub(crate) overflow: Option<Overflow>,
    pub(crate) overdraft: u64,
}

impl StoreOptions {
    /// Returns the name of each option, and whether it is set.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, bool)> + use<> {
        let Self {
            capacity,
            #[cfg(feature = "std")]
            max_keys,
            overflow,
            overdraft,
        } = self;
        let names = [
            ("capacity", capacity.is_some()),
            ("overflow", overflow.is_some()),
            ("overdraft", *overdraft > 0),
            #[cfg(feature = "std")]
            ("max_keys", max_keys.is_some()),
        ];
        names.into_iter()
    }
}

#[cfg(feature = "std")]
impl StoreOptions {
    /// Returns these options, and those of `other` that are not set here.
    pub(crate) fn or(self, other: Self) -> Self {
        let Self { capacity, max_keys, overflow, overdraft } = self;
        Self {
            capacity: capacity.or(other.capacity),
            max_keys: max_keys.or(other.max_keys),
            overflow: overflow.or(other.overflow),
            overdraft: overdraft.max(other.overdraft),
        }
    }

    /// Returns the options of a keyed store.
    pub(crate) fn keyed(&self) -> KeyedLayout {
        KeyedLayout { capacity: self.capacity.map_or(0, |capacity| capacity.keys()), cap: self.max_keys }
    }
}

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
#[cfg(feature = "std")]
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct StoreConfig {
    pub(crate) kind: StoreKind,
    pub(crate) options: StoreOptions,
}

#[cfg(feature = "std")]
impl From<StoreKind> for StoreConfig {
    fn from(kind: StoreKind) -> Self {
        Self::new(kind)
    }
}

#[cfg(feature = "std")]
impl fmt::Display for StoreConfig {
    /// Writes the kind and the size, such as `keyed of 5 keys`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match (self.options.capacity.and_then(|capacity| capacity.bytes()), self.options.max_keys) {
            (Some(bytes), _) => write!(f, " of {bytes} bytes"),
            (None, Some((most, _))) => write!(f, " of {most} keys"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(feature = "std")]
impl StoreConfig {
    /// A store of this kind, with the default size and options.
    #[must_use]
    pub const fn new(kind: StoreKind) -> Self {
        let options = StoreOptions { capacity: None, max_keys: None, overflow: None, overdraft: 0 };
        Self { kind, options }
    }

    /// Sets the size: see [`Builder::capacity`](crate::Builder::capacity).
    #[must_use]
    pub const fn with_capacity(mut self, capacity: Capacity) -> Self {
        self.options.capacity = Some(capacity);
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
        self.options.max_keys = Some((most, when_full));
        self
    }

    /// Sets what a compact store does when it is full: see [`Builder::overflow`](crate::Builder::overflow).
    #[must_use]
    pub const fn with_overflow(mut self, overflow: Overflow) -> Self {
        self.options.overflow = Some(overflow);
        self
    }

    /// Sets by how many units a compact store lets a key exceed its limit: see [`Builder::overdraft`](crate::Builder::overdraft).
    #[must_use]
    pub const fn with_overdraft(mut self, units: u64) -> Self {
        self.options.overdraft = units;
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
        self.options.capacity
    }

    /// Returns the most keys, and what happens to other keys, if that is set.
    #[must_use]
    pub const fn max_keys(&self) -> Option<(usize, WhenFull)> {
        self.options.max_keys
    }

    /// Returns what a compact store does when it is full, if that is set.
    #[must_use]
    pub const fn overflow(&self) -> Option<Overflow> {
        self.options.overflow
    }

    /// Returns the names and the values of the options that have a number: the memory in bytes, and the most keys.
    #[must_use]
    pub fn numbers(&self) -> [(&'static str, Option<u64>); 2] {
        // The other options belong to builders only.
        let StoreOptions { capacity, max_keys, overflow: _, overdraft: _ } = self.options;
        [
            ("memory_bytes", capacity.and_then(|capacity| capacity.bytes()).map(|bytes| bytes as u64)),
            ("max_keys", max_keys.map(|(most, _)| most as u64)),
        ]
    }

    pub(super) fn compact<A: CompactAlgorithm>(&self, algorithm: A) -> Result<CompactPlan<A>, QuotaError> {
        let StoreOptions { overflow, overdraft, .. } = self.options;
        let mut capacity = self.options.capacity.unwrap_or_default();
        // The same number of slots as a store that spills, so that debts carry over slot by slot.
        if !<A::CompactState as CompactState>::DOMINATES && overflow.is_none() {
            capacity = capacity.without_sketch();
        }
        CompactPlan::new(algorithm, CompactLayout { capacity, overflow, tiers: Vec::new(), overdraft })
    }

    /// Returns the two numbers of a store in a snapshot. `None` for a store that no file of rules sets. No store is 0.
    #[doc(hidden)]
    pub fn saved(&self) -> Option<[u64; 2]> {
        let StoreOptions { capacity, max_keys, overflow: None, overdraft: 0 } = self.options else {
            return None;
        };
        let (number, size) = match (self.kind, capacity, max_keys) {
            (StoreKind::Compact, Some(memory), None) => (1, memory.bytes()?),
            (StoreKind::Keyed, None, None) => (2, 0),
            (StoreKind::Keyed, None, Some((most, WhenFull::Forget))) => (3, most),
            (StoreKind::Sketch, Some(memory), None) => (4, memory.bytes()?),
            _ => return None,
        };
        Some([number, size as u64])
    }

    /// Returns the store with these numbers. `None` for numbers of no store.
    #[doc(hidden)]
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
