//! Write-back: what is decided here and told later.
//!
//! Properties, over random orders of checks, posts, lost answers, calls that arrive twice, and time:
//! - what is admitted in a window is within the mode's bound;
//! - in the end all that was admitted is in the shared state, but for what is counted as dropped;
//! - nothing is charged twice, whatever is sent again.

mod limiter;
mod orders;
mod server;
