//! The middleware: the layer, in front of services of the tests' own and in real servers.

mod awaited;
mod client;
mod layer;
#[cfg(feature = "rules")]
mod rules;
mod servers;
