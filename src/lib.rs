//! A rate limiter to link into servers: in-process, lock-free, without a background thread.
//!
//! ```
//! use tollgate::{Quota, RateLimiter};
//!
//! let limiter = RateLimiter::new(Quota::per_second(100).burst(200)); // any number of keys
//! let decision = limiter.check("203.0.113.7");
//! if decision.is_denied() {
//!     // 429, Retry-After: decision.retry_after()
//! }
//! # assert!(decision.is_allowed());
//! ```
//!
//! A [`Quota`] is `limit` units per `period` with a `burst`, written `Quota::per_minute(60).burst(10)` or parsed from
//! `"60/min burst 10"`. A limiter is a *store*, where the states of keys live, with an *algorithm* in it, and a *clock*. A
//! [`Decision`] says whether the request may go, what remains, when to come back, and when all is as new. Denied requests are not
//! charged.
//!
//! From another crate: [`guide::from_governor`], [`guide::from_pingora_limits`], `guide::from_tower_governor`.
//!
//! # Choosing an algorithm
//!
//! | you want | take |
//! |---|---|
//! | a rate and a burst, smooth | [`Gcra`], the default; [`TokenBucket`] and [`LeakyBucketMeter`] decide the same |
//! | tokens that come in batches, at the end of a period or on the hour | [`TokenBucket::interval`], [`TokenBucket::aligned`] |
//! | to be told *when* to go, and go at an even rate | [`LeakyBucketQueue`] |
//! | never more than N in any period, exactly | [`SlidingLog`], 8 bytes for each unit of the limit and key |
//! | the same, for large limits | [`SubWindow::strict`] |
//! | about N in any period, in two counts | [`SlidingWindow`] |
//! | N for each calendar minute, hour or day | [`FixedWindow`]: up to twice N around a boundary |
//! | a pause between two | [`MinimumSpacing`] |
//!
//! A bucket can be emptied at once: 1,000 an hour with its burst lets 1,000 through in a second. Give a lower burst, or a second
//! limit beside it ([`check_all`]).
//!
//! In code the default is GCRA. Rules from files (feature `rules`) default to fixed windows, as Envoy's service does.
//!
//! # Choosing a store
//!
//! | store | made by | keeps | take it |
//! |---|---|---|---|
//! | [`Compact`] | [`RateLimiter::new`], [`Builder::compact`] | eight bytes for each key that owes, in memory that is fixed when it is made; keys of any type | unless you need one of the others |
//! | [`Keyed`] | [`RateLimiter::keyed`], [`Builder::keyed`] | the keys themselves, about 35 bytes for each active one of 8 bytes | to list keys; where no two may ever share a limit; for [`SlidingLog`], [`SubWindow`] and buckets that are refilled in batches |
//! | [`Sketch`] | [`Builder::sketch`] | counts that keys share: constant memory, and a few are denied early | for "10,000 a day" over more busy keys than there is memory for; [`guide::sketches`] |
//! | [`Direct`] | [`RateLimiter::direct`] | one state | for one limit on everything |
//! | [`Striped`] | [`Builder::striped`] | one state that all cores can hit at once, each from a block that was charged beforehand | for one limit on everything, on many cores ([`Leases`]) |
//!
//! Only a keyed store allocates on a check, at the first sight of a key. Nothing is swept, and no thread runs.
//!
//! # Sizing
//!
//! A compact store needs a slot for each key that *owes*, not for each that there is. An admitted unit keeps its key busy for one
//! interval of the quota, so the busy keys are
//!
//! > units admitted a second, of all keys × seconds for one unit
//!
//! whatever the number of keys, and each wants about 12 bytes. What is denied needs no room.
//!
//! ```
//! use tollgate::{Capacity, Gcra, Quota, RateLimiter};
//!
//! // 50,000 admitted a second at 100 a minute each, which is one in 0.6 s: 30,000 keys owe at once.
//! let quota = Quota::per_minute(100);
//! let capacity = Capacity::for_traffic(50_000, &quota);
//! assert_eq!(capacity.busy_keys(), Some(30_000));
//!
//! let limiter = RateLimiter::builder(Gcra::new(quota)).capacity(capacity).compact()?;
//! assert!((360_000..380_000).contains(&limiter.state_bytes())); // of ten thousand clients, or ten million
//!
//! // The default, 4 MiB, is room for eleven times as many.
//! assert!(RateLimiter::new(quota).state_bytes() > 11 * limiter.state_bytes());
//! # Ok::<(), tollgate::QuotaError>(())
//! ```
//!
//! [`Capacity`] can be said in memory or slots, too; [`RateLimiter::load`] and [`RateLimiter::gauges`] say how it stands; and
//! `tollgate replay --store compact --memory 1MiB access.log` tries a size on your own traffic.
//!
//! # When it is full
//!
//! A key that finds no slot puts out the one that owes least. With [`Overflow::Spill`], the default, that one's debt goes on counting in a
//! sketch: nobody is admitted too much, and a few are denied early. [`Overflow::Forget`] lets debts go where refusing wrongly is worse.
//! [`Overflow::Inherit`] has newcomers take them over, where keys are not free to make. See [`guide::overflow`]. A keyed store grows, or
//! has a cap and says what happens there ([`WhenFull`]).
//!
//! # Clocks
//!
//! | clock | for |
//! |---|---|
//! | [`QuantaClock`], the default | servers: the processor's time-stamp counter, about 10 ns |
//! | [`StdClock`] | machines whose counters differ between cores, stop or are set (some virtual machines, machines that sleep): the system's monotonic clock |
//! | [`CoarseClock`] | event loops: one load, as fresh as the last turn of yours |
//! | [`ManualClock`] | tests, simulations, replays |
//! | `TokioClock` (feature `tokio`) | tests in tokio's paused time |
//! | your own [`Clock`] | one method; or say the time of each call ([`RateLimiter::check_at`]) |
//!
//! A [`Timestamp`] is nanoseconds since the clock's origin. The real clocks read the wall clock once, when they are made, and count on
//! from there: so windows begin with the calendar's minutes and days (UTC), and no later step of the wall clock moves anything. If it
//! is set by an hour while the server runs, windows stay where they were. While a machine sleeps, most systems' monotonic clocks stand:
//! nothing refills in that time, and windows are late by it until the limiter is made anew.
//!
//! # More than one check
//!
//! Several limits on one request, all charged or none ([`check_all`]), turns in the future, refunds, costs that are known afterwards,
//! quotas that change while in use: see [`guide::decisions`]. Waiting for a turn, first come, first served, in threads and in tokio's
//! tasks: see [`guide::waiting`].
//!
//! # Guarantees
//!
//! - What is admitted never exceeds the algorithm's bound (stated at its type), for any key and interval and under any
//!   interleaving; see [`RateLimiter`] for what late threads mean. A compact limiter counts time in ticks, at most a 256th of
//!   a unit's time, and says what it does when it is short of room ([`Overflow`]). A striped one ([`Striped`]) may be ahead by what the
//!   algorithm admits in the life of one lease (10 ms), and around the end of a window by half a limit.
//! - A denied request is not charged, and a denial writes no memory that threads share (but for a count of those that only
//!   want of room denied, and in a sketch's races).
//! - Every call is lock-free, but for those that wait and those that change a quota. No check is denied because of contention (but for a sketch's, rarely: see [`Sketch`]).
//! - A compact or direct limiter never allocates on a check; a keyed one at the first sight of a key only (and once for each
//!   thread).
//! - Once a limiter is made, no argument overflows, panics or divides by zero; a quota that cannot be held is an error of
//!   `try_…`, and a panic of `new`.
//! - If the times of a limiter's callers differ by at most d, an interval of length t admits at most the algorithm's bound for t + d. A time
//!   that steps back only denies more, by less than the step. Where a store may have forgotten a key, or a time is far from all
//!   others, [`guide::guarantees`] says how far this goes.
//!
//! [`guide::guarantees`] has all of them, one by one, each with what it is backed by, and what is not promised; [`design`] says how it is
//! made, and why.
//!
//! # Features
//!
//! `std`, the default, brings clocks that ask the machine, random seeds, and all that is not named here. Without it (`default-features =
//! false`) the crate is `no_std` with `alloc`, and what remains decides by times and [seeds](Builder::seeds) of the caller's: every
//! algorithm, the direct and the compact store, [`check_all`]. That needs atomics of 64 bits; see the
//! [design text](design#without-the-standard-library).
//!
//! # When to use something else
//!
//! | | where it is better |
//! |---|---|
//! | [governor](https://docs.rs/governor) | years of use by many; a store or middleware of your own as a type; sinks; waits in any executor. Its first sight of a key is several times as fast |
//! | [pingora-limits](https://docs.rs/pingora-limits) | counts that go down again, by other ways than a guard; it is there already in a Pingora proxy |
//! | [ratelimit](https://docs.rs/ratelimit), [leaky-bucket](https://docs.rs/leaky-bucket) | one bucket, no keys, next to no code; the second a fair queue for tokio |
//! | a semaphore, tower's `ConcurrencyLimit` | *how many at once*, and to wait for it: load is bounded by the work under way, not by a rate. For each key at once: [`sketch::InFlight`] |
//! | a script in Redis, Envoy's rate limit service | programs in other languages share the limit. Among your own Rust programs: feature `redis` |
//! | nginx, HAProxy, Envoy, a CDN | requests are refused before they cost this process a connection and a handshake. Floods belong there; who may do what belongs here |
//! | a database | a month's paid calls: what is counted here is lost with the process ([`RateLimiter::snapshot`] aside) |
//!
//! # Guides
//!
//! | | |
//! |---|---|
//! | [`guide::decisions`] | several limits, costs known afterwards, tiers, quotas that change |
//! | [`guide::waiting`] | waiting for a turn, in threads and tasks |
//! | [`guide::overflow`], [`guide::sketches`] | what bounded memory costs, and how large it should be |
//! | `guide::middleware`, `guide::http` | feature `tower`: in front of a server; feature `http`: what clients are told |
//! | `guide::rules` | feature `rules`: limits in files that reload |
//! | `guide::redis` | feature `redis`: one limit for many machines, and when Redis is away |
//! | [`telemetry`] | what operators see |
//! | [`guide::from_governor`], [`guide::from_pingora_limits`], `guide::from_tower_governor` | moving here, call by call |
//! | [`guide::guarantees`], [`design`] | what is promised, and what backs it; how it is made, and why |
//!
//! In `examples/` are whole programs: `quick_start`, `tiers`, `login`, `token_budget`, `outbound`, `axum`, `axum_layer`, `hyper`, `tonic`,
//! and `axum_redis`, two processes that share a limit.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// Published docs say which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// What only the parts with std use, and what links to them, is checked where those are built.
#![cfg_attr(
    not(feature = "std"),
    allow(dead_code, unreachable_pub, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]
// The core has methods that only an edge calls.
#![cfg_attr(
    all(feature = "std", not(all(feature = "redis", feature = "rules", feature = "tower"))),
    allow(dead_code, unused_imports)
)]
// What every public function owes its reader; of tests' helpers it would be too much.
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

extern crate alloc;

mod algorithm;
mod base;
mod edge;
mod limiter;
pub mod sketch;
mod store;

/// Guides: what to choose, and why.
pub mod guide {
    pub mod decisions {
        #![doc = include_str!("guide/decisions.md")]
    }
    // Its examples call governor: benches/guides tests them.
    #[cfg(not(doctest))]
    pub mod from_governor {
        #![doc = include_str!("guide/from_governor.md")]
    }
    pub mod from_pingora_limits {
        #![doc = include_str!("guide/from_pingora_limits.md")]
    }
    #[cfg(all(feature = "tower", not(doctest)))]
    pub mod from_tower_governor {
        #![doc = include_str!("guide/from_tower_governor.md")]
    }
    pub mod guarantees {
        #![doc = include_str!("../GUARANTEES.md")]
    }
    #[cfg(feature = "http")]
    pub mod http {
        #![doc = include_str!("guide/http.md")]
    }
    #[cfg(feature = "tower")]
    pub mod middleware {
        #![doc = include_str!("guide/middleware.md")]
    }
    pub mod models {
        #![doc = include_str!("guide/models.md")]
    }
    pub mod overflow {
        #![doc = include_str!("guide/overflow.md")]
    }
    #[cfg(feature = "redis")]
    pub mod redis {
        #![doc = include_str!("guide/redis.md")]
        #![doc = include_str!("guide/redis_simulation.svg")]
    }
    #[cfg(feature = "rules")]
    pub mod rules {
        #![doc = include_str!("guide/rules.md")]
    }
    pub mod sketches {
        #![doc = include_str!("guide/sketches.md")]
        #![doc = include_str!("guide/sketch_accuracy.svg")]
    }
    pub mod waiting {
        #![doc = include_str!("guide/waiting.md")]
        #![cfg_attr(feature = "tokio", doc = include_str!("guide/waiting_async.md"))]
    }
}

pub mod design {
    #![doc = include_str!("design.md")]
}

pub use algorithm::{
    Algorithm, CompactAlgorithm, FixedWindow, Gcra, LeakyBucketMeter, LeakyBucketQueue, MinimumSpacing,
    SlidingLog, SlidingWindow, SubWindow, TokenBucket, WindowAlgorithm,
};
pub use base::clock::{Clock, ManualClock, Timestamp};
#[cfg(feature = "std")]
pub use base::clock::{CoarseClock, QuantaClock, StdClock};
pub use base::decision::{Decision, Denied, Outcome};
pub use base::quota::{Quota, QuotaError};
#[cfg(feature = "http")]
pub use edge::http;
#[cfg(feature = "redis")]
pub use edge::redis;
#[cfg(feature = "rules")]
pub use edge::rules;
#[cfg(feature = "std")]
pub use edge::telemetry;
#[cfg(feature = "tower")]
pub use edge::tower;
pub use limiter::joint::{
    BoundLimit, JointDecision, Limits, check_all, check_all_at, peek_all, peek_all_at, refund_all,
    refund_all_at,
};
#[cfg(feature = "std")]
pub use limiter::striped::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource, Leases, Striped};
#[cfg(feature = "std")]
pub use limiter::wait::{Jitter, NotReady, Wait};
#[cfg(feature = "tokio")]
pub use limiter::wait::{TokioClock, UntilReady};
pub use limiter::{Builder, RateLimiter};
#[cfg(feature = "std")]
pub use store::{Adjustable, Carry, Keyed, Lookup, Saturation, Sketch, WhenFull};
pub use store::{
    Capacity, CapacityError, Compact, Direct, Gauges, HashedStore, Overflow, SnapshotError, Tier,
};

/// The README's examples, as tests: whole programs without hidden lines, which GitHub would show, and so only with the features that they use.
#[cfg(all(doctest, feature = "redis", feature = "tower", feature = "watch"))]
#[doc = include_str!("../README.md")]
struct Readme;
