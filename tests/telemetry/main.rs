//! Telemetry: method calls and facades give the same counts, the number of labels is bounded, and keys appear only on
//! request.

mod denied;
mod events;
mod metrics;
