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
//! A limiter is a *store*, where the states of keys live, with an *algorithm* in it, and a *clock*:
//!
//! - [`RateLimiter::new`] keeps eight bytes for each key that owes, in memory that is fixed when it is made ([`Compact`]): any
//!   type of key, any number of keys, nothing allocated, nothing swept. See [`guide::overflow`] for what happens when
//!   it is full.
//! - [`RateLimiter::keyed`] keeps the keys themselves, and a state for each ([`Keyed`]): no two keys ever share one, keys can
//!   be listed, and every algorithm fits.
//! - [`Builder::sketch`] counts windows in a [`Sketch`]: constant memory for any number of busy keys, of which a few may be
//!   denied early. See [`guide::sketches`].
//! - [`RateLimiter::direct`] has one state for everything ([`Direct`]), and [`Builder::striped`] one that all cores can hit at once:
//!   each spends from a block that was charged beforehand ([`Leases`]). [`RateLimiter::builder`] sets clock, hasher, size and
//!   policies.
//! - A [`Quota`] is `limit` units per `period` with a `burst`, written `Quota::per_minute(60).burst(10)` or parsed from
//!   `"60/min burst 10"`.
//! - A [`Decision`] says whether the request may go, what remains, when to come back, and when all is as new.
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
//! # More than one check
//!
//! Several limits on one request ([`check_all`]), turns in the future, refunds, costs that are known afterwards, quotas that
//! change while in use: see [`guide::decisions`]. Waiting for a turn, first come, first served, in threads and in tokio's tasks:
//! see [`guide::waiting`].
//!
//! # In front of a server
//!
//! Rules from files that reload (`guide::rules`), middleware for tower (`guide::middleware`), what clients are told
//! (`guide::http`), what operators see ([`telemetry`]): each a feature of its own.
//!
//! # Guarantees
//!
//! - What is admitted never exceeds the algorithm's bound (stated at its type), for any key and interval and under any
//!   interleaving; see [`RateLimiter`] for what late threads mean. A compact limiter counts time in ticks, at most a 256th of
//!   a unit's time, and says what it does when it is short of room ([`Overflow`]).
//! - A denied request is not charged, and a denial writes no memory that threads share (but for a count of those that only
//!   want of room denied, in a sketch's races, and once for each bucket of a keyed table that grew).
//! - Every call is lock-free, but for those that wait and those that change a quota. No check is denied because of contention (but for a sketch's, rarely: see [`Sketch`]).
//! - A compact or direct limiter never allocates on a check; a keyed one at the first sight of a key only (and once for each
//!   thread).
//! - No argument overflows, panics or divides by zero. Time that steps back only denies more, by less than the step, for
//!   keys that are held.
//!
//! [`guide::guarantees`] has all of them, one by one, each with what it is backed by, and what is not promised.
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
//! For one limit across many machines, a shared store such as Redis. For counting rather than limiting, a
//! [`sketch`].
//! For limiting *how many at once*, a semaphore.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// Published docs say which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// What only the parts with std use, and what links to them, is checked where those are built.
#![cfg_attr(
    not(feature = "std"),
    allow(dead_code, unreachable_pub, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]

extern crate alloc;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

mod algorithm;
mod clock;
mod decision;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "std")]
mod lease;
mod limiter;
mod memory;
mod policy;
mod quota;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(all(test, tollgate_loom, not(feature = "redis")))]
#[path = "redis/modelled.rs"]
mod redis;
#[cfg(feature = "rules")]
pub mod rules;
pub mod sketch;
mod store;
mod sync;
#[cfg(feature = "std")]
pub mod telemetry;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "std")]
mod wait;
mod word;

/// Guides: what to choose, and why.
pub mod guide {
    pub mod decisions {
        #![doc = include_str!("guide/decisions.md")]
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
    pub mod overflow {
        #![doc = include_str!("guide/overflow.md")]
    }
    pub mod pingora {
        #![doc = include_str!("guide/pingora.md")]
    }
    #[cfg(feature = "redis")]
    pub mod redis {
        #![doc = include_str!("guide/redis.md")]
    }
    #[cfg(feature = "redis")]
    pub mod redis_failure {
        #![doc = include_str!("guide/redis_failure.md")]
    }
    #[cfg(feature = "redis")]
    pub mod redis_lease {
        #![doc = include_str!("guide/redis_lease.md")]
    }
    #[cfg(feature = "redis")]
    pub mod redis_simulation {
        #![doc = include_str!("guide/redis_simulation.md")]
        #![doc = include_str!("guide/redis_simulation.svg")]
    }
    #[cfg(feature = "redis")]
    pub mod redis_write_back {
        #![doc = include_str!("guide/redis_write_back.md")]
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
pub use clock::{Clock, ManualClock, Timestamp};
#[cfg(feature = "std")]
pub use clock::{CoarseClock, QuantaClock, StdClock};
pub use decision::{Decision, Denied, Outcome};
#[cfg(feature = "std")]
pub use lease::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource, Leases, Striped};
pub use limiter::{Builder, RateLimiter};
pub use policy::{
    JointDecision, Limits, On, check_all, check_all_at, peek_all, peek_all_at, refund_all, refund_all_at,
};
pub use quota::{Quota, QuotaError};
#[cfg(feature = "std")]
pub use store::{Adjustable, Carry, Keyed, Lookup, Saturation, Sketch, WhenFull};
pub use store::{
    Capacity, CapacityError, Compact, Direct, Gauges, HashedStore, Overflow, SnapshotError, Tier,
};
#[cfg(feature = "std")]
pub use wait::{Jitter, NotReady, Wait};
#[cfg(feature = "tokio")]
pub use wait::{TokioClock, UntilReady};

/// The README's examples, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
