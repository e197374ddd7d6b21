//! Limits each client, and prints the values for a 429 response: `cargo run --example quick_start`.
//!
//! The program makes five requests for one client and one for another. Of the five, three are admitted, and two are
//! denied with a time to retry.

use tollgate::{Quota, RateLimiter};

fn main() {
    // Two requests per second for each client, and three at once after a quiet period.
    let limiter = RateLimiter::new(Quota::per_second(2).burst(3));

    let mut admitted = 0;
    for request in 1..=5 {
        let decision = limiter.check("203.0.113.7");
        admitted += u32::from(decision.is_allowed());
        match decision.retry_after() {
            _ if decision.is_allowed() => println!("request {request}: go, {} remain", decision.remaining()),
            Some(wait) => {
                println!(
                    "request {request}: 429, retry after {wait:?}, full quota in {:?}",
                    decision.reset_after()
                );
            }
            None => println!("request {request}: this can never be admitted"),
        }
    }
    let other = limiter.check("198.51.100.9");
    println!("another client: {}", if other.is_allowed() { "go" } else { "429" });
    assert!(admitted >= 3 && other.is_allowed());
}
