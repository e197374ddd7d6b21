//! What the tests and the simulations of this repository use of the shared state. It is not part of the public API, and
//! the published package does not have it.

use tollgate::holds::HoldId;

pub use super::client::KeyPlaces;
use super::client::LimiterBuilder;
pub use super::mode::lease::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt, Waiting};
pub use super::mode::write_back::{Basis, BookSettings, Post, WriteBackBook, over_at_most};
pub use super::protocol::script::{self, By};
pub use super::protocol::slot;
pub use super::protocol::{
    Call, LimitState, LinkAges, LinkReport, MOST_HELD, MOST_HOLDS, Place, Plan, PlannedLimit, Portion,
    Question, RegionScope, RegionTerms, RegionUse, Reply, Scope, Transport, Windows, identity_of, quantum,
};
use super::protocol::{Error, ErrorKind};
pub use super::region::{Claim, RegionLink, RegionLinks, RegionState, pause};

/// Creates an error, for a transport that fails.
pub fn error(kind: ErrorKind, what: &str) -> Error {
    Error::new(kind, what)
}

/// The identity of a hold that ends at this time.
pub const fn hold_until(end_us: u64, identity: u128) -> HoldId {
    HoldId::new(end_us * 1_000, identity)
}

/// Replaces the client of a builder. The new client carries the calls of the limiter that is built.
pub fn with_client<A, B>(builder: LimiterBuilder<A>, client: B) -> LimiterBuilder<B> {
    let LimiterBuilder { client: _, prefix, settings, options } = builder;
    LimiterBuilder { client, prefix, settings, options }
}

/// The servers that hold the keys of a limiter.
pub fn places_of<T>(builder: &LimiterBuilder<T>) -> KeyPlaces {
    builder.settings().places
}
