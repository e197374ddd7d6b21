//! The middleware: the layer around the tests' own services and in real servers.

mod awaited;
mod client;
mod layer;
#[cfg(feature = "rules")]
mod rules;
mod servers;
