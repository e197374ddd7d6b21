//! The middleware: the layer around the tests' own services and in real servers.

mod addresses;
#[cfg(feature = "rules")]
mod alike;
mod alloc;
mod awaited;
#[cfg(feature = "rules")]
#[path = "../../../../tests/common/alike.rs"]
mod cases;
mod classes;
mod client;
#[path = "../../../../tests/common/counting.rs"]
mod counting;
mod head;
mod holds;
mod in_progress;
mod layer;
mod meters;
mod prefixes;
#[path = "../../../../tests/common/recorded.rs"]
mod recorded;
#[cfg(all(feature = "redis", feature = "rules"))]
mod redis;
#[cfg(feature = "rules")]
mod rules;
#[cfg(feature = "rules")]
mod rules_holds;
mod servers;
