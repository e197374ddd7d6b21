//! Telemetry: method calls and facades give the same counts, labels are bounded, and keys appear only on request.

mod denied;
mod events;
mod freed;
mod metrics;
#[path = "../common/recorded.rs"]
mod recorded;
mod shares;
