//! What a server adds around a limiter: header fields, the middleware for tower, and telemetry.

#[cfg(all(feature = "rules", feature = "tower"))]
#[path = "../common/alike.rs"]
mod alike;
mod http;
#[cfg(all(feature = "metrics", feature = "rules", feature = "tower", feature = "tracing"))]
mod telemetry;
#[cfg(feature = "tower")]
mod tower;
