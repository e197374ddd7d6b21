//! A client that keeps to the limits of the services it calls: `cargo run --example outbound --features tokio`.
//!
//! Each host has a line of its own. Calls go as fast as their host allows, in the order in which they were made; those that
//! could not go in time say so at once.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::{Jitter, Quota, RateLimiter};

/// Twenty calls a second to each host, two at once. The overdraft lets the first in line reserve its turn.
fn limiter() -> Result<RateLimiter, tollgate::QuotaError> {
    let quota = Quota::per_second(20).burst(2);
    RateLimiter::builder(tollgate::Gcra::new(quota)).overdraft(8).compact()
}

#[expect(clippy::disallowed_methods, reason = "shows when calls go, by a clock that is not the limiter's")]
fn start() -> Instant {
    Instant::now()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Arc::new(limiter()?);
    let start = start();
    let mut calls = Vec::new();
    for call in 1..=36 {
        let limiter = Arc::clone(&limiter);
        calls.push(tokio::spawn(async move {
            let host = if call % 3 == 0 { "files.example.com" } else { "api.example.com" };
            let ready = limiter.until_ready(host).within(Duration::from_millis(900));
            let outcome = match ready.jitter(Jitter::up_to(Duration::from_millis(10))).await {
                Ok(_) => "sent".to_owned(),
                Err(error) => error.to_string(),
            };
            println!("{:>4} ms  {host:<18} call {call:>2}: {outcome}", start.elapsed().as_millis());
        }));
    }
    for call in calls {
        call.await?;
    }
    Ok(())
}
