//! The middleware: the layer around the tests' own services and in real servers.

mod addresses;
#[cfg(feature = "rules")]
mod alike;
mod awaited;
mod classes;
mod client;
mod head;
mod holds;
mod in_progress;
mod layer;
mod prefixes;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "rules")]
mod rules_holds;
mod servers;
