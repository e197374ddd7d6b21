//! What operators see: the same counts by call and by the facades, bounded labels, and no keys where none were asked for.

mod denied;
mod events;
mod metrics;
