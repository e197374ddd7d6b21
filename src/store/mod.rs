//! The stores: each one maps keys to states.

#[cfg(feature = "std")]
pub(crate) mod any;
mod beyond;
mod capacity;
pub(crate) mod compact;
mod config;
mod direct;
#[cfg(feature = "std")]
pub mod holding;
#[cfg(feature = "std")]
pub(crate) mod keyed;
#[cfg(feature = "std")]
mod kind;
mod limit_state;
#[cfg(feature = "std")]
pub mod migrate;
pub mod op;
mod present;
#[cfg(feature = "std")]
pub(crate) mod sketch;
pub mod snapshot;
pub(crate) mod state;
mod state_ref;

#[cfg(feature = "std")]
pub use self::any::AnyStore;
pub use self::capacity::{Capacity, CapacityError};
#[cfg(tollgate_simulation)]
pub use self::compact::small;
pub use self::compact::{Compact, Gauges, Overflow, Tier};
#[cfg(feature = "std")]
pub use self::config::StoreConfig;
pub(crate) use self::config::StoreOptions;
pub use self::direct::Direct;
#[cfg(feature = "std")]
pub use self::holding::{HoldId, Holding};
#[cfg(feature = "std")]
pub use self::keyed::{Keyed, Lookup, WhenFull};
#[cfg(feature = "std")]
pub use self::kind::StoreKind;
pub use self::limit_state::LimitState;
#[cfg(feature = "std")]
pub use self::migrate::{Adjustable, Carry};
pub use self::op::HashedStore;
pub(crate) use self::op::Operation;
pub use self::op::{ManyKeys, Rebuild, Store};
pub use self::present::{CheckWith, PresentStore, States};
#[cfg(feature = "std")]
pub use self::sketch::{Saturation, Sketch};
pub use self::snapshot::SnapshotError;
#[cfg(feature = "std")]
pub use self::snapshot::SnapshotKey;
pub(crate) use self::state_ref::StateRef;
