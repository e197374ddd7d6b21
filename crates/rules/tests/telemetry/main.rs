//! What operators see of rules: the metrics and events of loads, and of each rule.

mod events;
mod freed;
#[path = "../../../../tests/common/listener.rs"]
mod listener;
mod metrics;
#[path = "../../../../tests/common/recorded.rs"]
mod recorded;
