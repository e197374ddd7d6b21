//! Write-back limiters, which decide in the process and report to the server later.
//!
//! Properties, over random orders of checks, posts, lost replies, calls that arrive twice, and time steps:
//! - The units admitted in a window stay within the mode's bound.
//! - In the end the server has charged every admitted unit, except those counted as dropped.
//! - No unit is charged twice, even if a post is sent again.

mod books;
mod limiter;
mod orders;
mod regions;
mod runtimes;
mod server;
mod steps;
