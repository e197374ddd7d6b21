//! Everything between a server and the limiter. Only the modules in here use Redis, metrics and tracing.

#[cfg(feature = "calendar")]
pub mod calendar;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(all(test, tollgate_loom, not(feature = "redis")))]
#[path = "redis/modelled.rs"]
mod redis;
#[cfg(feature = "rules")]
pub mod rules;
#[cfg(feature = "std")]
pub(crate) mod shared;
#[cfg(feature = "std")]
pub mod telemetry;
