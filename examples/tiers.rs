//! Tiers on one limiter: the same state, another quota by call. `cargo run --example tiers`.

use tollgate::{Algorithm, Clock, Gcra, ManualClock, Quota, QuotaError, RateLimiter, Timestamp, WhenFull};

#[derive(Clone, Copy, Debug)]
enum Tier {
    Free,
    Premium,
}

fn main() -> Result<(), QuotaError> {
    // A manual clock, so that this prints the same every time; leave it out in a server.
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let limiter = RateLimiter::builder(Gcra::new("10/min".parse()?))
        .clock(clock.clone())
        .max_keys(100_000, WhenFull::Forget)
        .keyed::<String>();
    // Made once, and kept.
    let premium = limiter.algorithm().requota(&Quota::per_minute(60))?;

    let check = |account: &str, tier: Tier, cost: u64| match tier {
        Tier::Free => limiter.check_n(account, cost),
        Tier::Premium => limiter.check_with(account, &premium, cost, clock.now()),
    };
    for (account, tier, cost) in [
        ("ada", Tier::Free, 8),
        ("ada", Tier::Free, 8),
        ("bob", Tier::Premium, 50),
        ("bob", Tier::Premium, 61),
    ] {
        let decision = check(account, tier, cost);
        println!("{account} ({tier:?}) asks for {cost}: {decision:?}");
    }
    limiter.for_each(|account, decision| println!("{account}: as new in {:?}", decision.reset_after()));
    Ok(())
}
