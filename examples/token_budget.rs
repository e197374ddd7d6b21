//! A language model's budget: requests and tokens of each client are limited together, and tokens are settled when the answer is
//! there.
//!
//! `cargo run --release --example token_budget`

use std::time::Duration;

use tollgate::{Gcra, ManualClock, MinimumSpacing, Quota, RateLimiter, check_all};

/// What a request may use at most, and what it will have used.
struct Request {
    client: &'static str,
    most: u64,
    used: u64,
}

fn main() -> Result<(), tollgate::QuotaError> {
    // A clock that this example moves; leave it out in a server.
    let clock = ManualClock::default();
    let tokens = RateLimiter::builder(Gcra::new(Quota::per_minute(10_000)))
        .overdraft(10_000) // an answer that is longer than expected is a debt
        .clock(clock.clone())
        .compact()?;
    let requests =
        RateLimiter::builder(MinimumSpacing::new(Duration::from_secs(2))).clock(clock.clone()).compact()?;

    let day = [
        Request { client: "alice", most: 4_000, used: 900 },
        Request { client: "alice", most: 4_000, used: 4_200 },
        Request { client: "bob", most: 12_000, used: 0 },
        Request { client: "alice", most: 4_000, used: 12_000 },
        Request { client: "alice", most: 4_000, used: 4_000 },
        Request { client: "bob", most: 8_000, used: 100 },
    ];
    for Request { client, most, used } in day {
        clock.advance(Duration::from_secs(3));
        let decision = check_all((tokens.on(client).cost(most), requests.on(client)));
        if let Some(limit) = decision.refused_by() {
            let limit = ["tokens", "requests"][limit];
            match decision.retry_after() {
                Some(wait) => println!("{client}: no room in {limit}, try again in {wait:.1?}"),
                None => println!("{client}: {most} tokens are more than {limit} ever admits at once"),
            }
            continue;
        }
        // The model works for a second; then it is known what it took.
        clock.advance(Duration::from_secs(1));
        let now = tokens.settle(client, &decision.each()[0], used);
        println!("{client}: used {used} of {most}, {} tokens are left", now.remaining());
    }
    Ok(())
}
