//! Where words live.

pub(crate) mod adjustable;
mod by_hash;
#[cfg(feature = "rules")]
pub(crate) mod chosen;
pub(crate) mod compact;
mod direct;
pub(crate) mod keyed;
mod latest;
pub(crate) mod prefetch;
pub(crate) mod sketch;
pub(crate) mod state;
pub(crate) mod verb;

pub use self::adjustable::{Adjustable, Carry};
pub(crate) use self::by_hash::ByHash;
pub use self::by_hash::HashedStore;
pub use self::compact::{Capacity, CapacityError, Compact, Gauges, Overflow, SnapshotError, Tier};
pub use self::direct::Direct;
pub use self::keyed::{Keyed, Lookup, WhenFull};
pub(crate) use self::latest::{Clocked, Given, Latest, Time};
pub use self::sketch::{Saturation, Sketch};
pub(crate) use self::verb::{ManyKeys, Rebuild, Store, Verb, When};
