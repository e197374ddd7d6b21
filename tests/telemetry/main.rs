//! Telemetry: method calls and facades give the same counts, labels are bounded, and keys appear only on request.

mod denied;
mod events;
#[path = "../common/listener.rs"]
mod listener;
mod metrics;
#[path = "../common/recorded.rs"]
mod recorded;
mod shares;
