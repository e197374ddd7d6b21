//! The middleware: the layer around the tests' own services and in real servers.

mod addresses;
#[cfg(feature = "rules")]
#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[cfg(feature = "rules")]
#[path = "../../../../tests/common/alike_rules.rs"]
mod alike_rules;
mod alloc;
mod awaited;
mod classes;
mod client;
#[path = "../../../../tests/common/counting.rs"]
mod counting;
mod head;
mod holds;
mod in_progress;
#[cfg(feature = "rules")]
mod kinds_alike;
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
mod setup;
