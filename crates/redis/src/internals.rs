//! What the tests and the simulations of this repository use of the limiters. It is not part of the public API, and
//! the published package does not have it.

pub use super::client::KeyPlaces;
use super::client::LimiterBuilder;
pub use super::mode::lease::{BlockRequest, Granted, LeaseBook, LeaseCheck, LeaseSettings, Receipt, Waiting};
pub use super::mode::write_back::{Basis, BookSettings, Post, WriteBackBook, over_at_most};

/// Replaces the client of a builder. The new client carries the calls of the limiter that is built.
pub fn with_client<A, B>(builder: LimiterBuilder<A>, client: B) -> LimiterBuilder<B> {
    let LimiterBuilder { client: _, prefix, settings, options } = builder;
    LimiterBuilder { client, prefix, settings, options }
}

/// The servers that hold the keys of a limiter.
pub fn places_of<T>(builder: &LimiterBuilder<T>) -> KeyPlaces {
    builder.settings().places
}
