//! Write-back: what is decided here and told later.
//!
//! Properties, over random orders of checks, posts, lost answers, calls that arrive twice, and time:
//! - what is admitted in a window is within the mode's bound;
//! - in the end all that was admitted is in the shared state, but for what is counted as dropped;
//! - nothing is charged twice, whatever is sent again.

mod common;
#[path = "redis_write_back/limiter.rs"]
mod limiter;
#[path = "redis_write_back/orders.rs"]
mod orders;
#[path = "redis_write_back/server.rs"]
mod server;
