//! A client that respects the limits of the services it calls: `cargo run --example outbound --features tokio`.
//!
//! Each host has its own queue. Calls go as fast as their host allows, in the order in which they were made. A call
//! that cannot go in time returns an error at once. The program prints the time of each call, and checks that no host
//! was called more often than it allows.

use std::sync::Arc;
use std::time::{Duration, Instant};
use tollgate::{Quota, RateLimiter, waiting::Jitter};

/// Twenty calls per second to each host, two at the same time. The overdraft lets the first caller in the queue
/// reserve its turn.
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
            (host, outcome == "sent")
        }));
    }
    let mut sent = std::collections::HashMap::new();
    for call in calls {
        let (host, went) = call.await?;
        *sent.entry(host).or_insert(0) += u32::from(went);
    }
    // For each host, two calls go at once and eighteen more within 900 ms. The program makes 24 calls to one host and
    // 12 to the other.
    println!("{sent:?}");
    assert!(sent["api.example.com"] <= 20 && sent["files.example.com"] <= 12);
    Ok(())
}
