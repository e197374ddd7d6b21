//! Holds, commits, releases and checks in any order, with any units and lives. A limiter with holds decides and charges as
//! one whose caller settles its charges by hand.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tollgate::{Gcra, ManualClock, Quota, RateLimiter, SlidingWindow};
use tollgate_testing::holds::{HoldOp, same_as_by_hand};

fuzz_target!(|input: (u16, u16, Vec<(bool, HoldOp)>)| {
    let (limit, burst, ops) = input;
    let quota = Quota::per_minute(u64::from(limit) + 1).burst(u64::from(burst) + 1);
    // A decision releases at most 64 holds.
    let ops: Vec<_> = ops.into_iter().take(64).map(|(key, op)| (u64::from(key), op)).collect();
    let gcra = || RateLimiter::builder(Gcra::new(quota)).clock(ManualClock::default());
    same_as_by_hand(&gcra().keyed::<u64>().with_holds(1_000).unwrap(), &gcra().keyed::<u64>(), &ops, 1_000);
    let compact = || gcra().compact().unwrap();
    same_as_by_hand(&compact().with_holds(1_000).unwrap(), &compact(), &ops, 1_000);
    let window = || {
        let build = RateLimiter::builder(SlidingWindow::new(quota)).clock(ManualClock::default());
        build.keyed::<u64>()
    };
    same_as_by_hand(&window().with_holds(1_000).unwrap(), &window(), &ops, 1_000);
});
