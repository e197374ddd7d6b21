//! The gRPC services: Envoy's, and on request Kuadrant's and reflection.
//!
//! A gateway asks once for each of its requests, and tonic's router and codec would take most of the time of an answer.
//! So a call that is one message in one frame has a short way ([`read`]). All other calls take tonic's way.

mod answer;
mod endpoint;
mod listen;
mod read;
mod write;

#[cfg(feature = "otlp")]
pub use self::answer::Decision;
pub use self::endpoint::endpoints;
pub use self::listen::*;
pub use self::read::{BODY, time_to_answer};

/// The bytes before a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
