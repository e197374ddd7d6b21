//! Where words live.

#[cfg(feature = "std")]
pub(crate) mod adjustable;
mod by_hash;
pub(crate) mod compact;
mod direct;
#[cfg(feature = "std")]
pub(crate) mod keyed;
#[cfg(feature = "std")]
pub(crate) mod sketch;
pub(crate) mod state;
pub(crate) mod verb;

#[cfg(feature = "std")]
pub use self::adjustable::{Adjustable, Carry};
pub(crate) use self::by_hash::ByHash;
pub use self::by_hash::HashedStore;
pub use self::compact::{Capacity, CapacityError, Compact, Gauges, Overflow, SnapshotError, Tier};
pub use self::direct::Direct;
#[cfg(feature = "std")]
pub use self::keyed::{Keyed, Lookup, WhenFull};
#[cfg(feature = "std")]
pub use self::sketch::{Saturation, Sketch};
pub(crate) use self::verb::{ManyKeys, Rebuild, Store, Verb};
