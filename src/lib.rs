//! An in-process rate limiter for servers. It is lock-free, and limiters start no background threads.
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
//! A [`Quota`] is `limit` units per `period`, with a `burst`. A *unit* is whatever the quota counts: requests, bytes,
//! tokens. Write a quota as `Quota::per_minute(60).burst(10)`, or parse it from `"60/min burst 10"`.
//!
//! A limiter has three parts: a *store*, an *algorithm* and a *clock*. The store holds the state of each key. The
//! algorithm decides. The clock supplies the time.
//!
//! A [`Decision`] contains the answer: whether the request is admitted, how many units remain, when to retry, and when
//! the full burst is available again. A denied request is not charged.
//!
//! To move from another crate, read [`guide::from_governor`], [`guide::from_pingora_limits`] or
//! [`guide::from_tower_governor`].
//!
//! # Terms
//!
//! - **Cost**: the units that a request needs. The limiter charges the cost when it admits the request.
//! - **Key**: the client, account or route that a limit applies to. Each key has its own quota.
//! - **Burst**: the most units that a key can spend at once.
//! - **Debt**: the charged units that have not refilled yet. A key *owes* its debt. The debt shrinks at the rate of the
//!   quota. An *idle* key owes nothing.
//! - **Slot**: a place in a table that holds the state of one key. A *bucket* of the table is a small group of slots.
//! - **Evict**: to give the slot of one key to another key.
//! - **Spill**: to move the debt of an evicted key into a *sketch*, an array of counters that keys share. The debt
//!   still counts there.
//! - **Window**: a span of time in which an algorithm counts units, such as a calendar minute.
//! - **Stripe** and **lease**: a stripe is one core's own supply of units. A lease charges these units in advance, and
//!   they expire.
//!
//! The [glossary](design#glossary) defines all terms.
//!
//! # Choosing an algorithm
//!
//! | You want | Use |
//! |---|---|
//! | a smooth rate with a burst | [`Gcra`], the default; [`TokenBucket`] and [`LeakyBucketMeter`] make the same decisions |
//! | tokens that arrive in batches, at the end of a period or on the hour | [`TokenBucket::interval`], [`TokenBucket::aligned`] |
//! | even spacing: the decision contains the time to wait before the request goes | [`LeakyBucketQueue`] |
//! | at most N units in any period, exactly | [`SlidingLog`], 8 bytes for each unit of the limit, for each key |
//! | at most N units in any period, for large limits | [`SubWindow::strict`] |
//! | about N units in any period, with two counters | [`SlidingWindow`] |
//! | N units for each calendar minute, hour or day | [`FixedWindow`]: up to twice N around a boundary |
//! | N units for each day, week, month or year of a time zone | [`CalendarWindow`] |
//! | a minimum time between two requests | [`MinimumSpacing`] |
//! | that a client which exceeds its limit is denied for minutes, longer each time | [`Blocked`]; see [`guide::blocks`] |
//!
//! A client can spend the whole burst at once: 1,000 units per hour with the default burst can admit 1,000 requests
//! within one second. To prevent that, set a lower burst, or add a second limit ([`check_all`]).
//!
//! In code, the default algorithm is GCRA. Rules from files (feature `rules`) default to fixed windows, as Envoy's
//! rate limit service does.
//!
//! # Choosing a store
//!
//! | Store | Constructors | What it keeps | When to use it |
//! |---|---|---|---|
//! | [`Compact`] | [`RateLimiter::new`], [`Builder::compact`] | eight bytes for each key that owes, in memory of fixed size; keys of any type | unless you need another store |
//! | [`Keyed`] | [`RateLimiter::keyed`], [`Builder::keyed`] | the keys themselves: about 35 bytes for each active key of 8 bytes | to list keys; when two keys must never share a limit; for [`SlidingLog`], [`SubWindow`] and token buckets that refill in batches |
//! | [`Sketch`] | [`Builder::sketch`] | counters that keys share: memory is constant, and a few requests are denied early | for quotas such as 10,000 per day, with more busy keys than memory can hold; see [`guide::sketches`] |
//! | [`Direct`] | [`RateLimiter::direct`] | one state | for one limit on all requests |
//! | [`Striped`](leases::Striped) | [`Builder::striped`] | one state that all cores can use at once; each core spends from a block of units that was charged in advance | for one limit on all requests, on many cores ([`Leases`](leases::Leases)) |
//! | [`AnyStore`](stores::AnyStore) | [`RateLimiter::any`] | one of the first four stores, chosen at run time like its algorithm | for limits from a file or a flag; see [`guide::configuration`] |
//!
//! Only a keyed store allocates during a check, and only for a key that it does not hold yet. No store needs a sweep
//! or a background thread.
//!
//! # Sizing
//!
//! A compact store needs one slot for each key that *owes*, not for each key that exists. After one admitted unit, its
//! key owes for one interval of the quota. The number of keys that owe is therefore
//!
//! > admitted units per second, over all keys × seconds per unit
//!
//! This number does not depend on how many keys exist. Plan about 12 bytes for each key that owes. Denied requests
//! need no memory.
//!
//! ```
//! use tollgate::{Capacity, Gcra, Quota, RateLimiter};
//!
//! // 50,000 admitted units per second, and 0.6 seconds per unit: 30,000 keys owe at once.
//! let quota = Quota::per_minute(100);
//! let capacity = Capacity::for_traffic(50_000, &quota);
//! assert_eq!(capacity.busy_keys(), Some(30_000));
//!
//! let limiter = RateLimiter::builder(Gcra::new(quota)).capacity(capacity).compact()?;
//! assert!((360_000..380_000).contains(&limiter.state_bytes())); // for ten thousand clients, or ten million
//!
//! // The default, 4 MiB, has room for eleven times as many keys.
//! assert!(RateLimiter::new(quota).state_bytes() > 11 * limiter.state_bytes());
//! # Ok::<(), tollgate::QuotaError>(())
//! ```
//!
//! You can also set a [`Capacity`] in bytes or in slots. [`RateLimiter::fill`] and [`RateLimiter::gauges`] report how
//! full the table is. To test a size on your own traffic, run `tollgate replay --store compact --memory 1MiB
//! access.log`.
//!
//! # When the table is full
//!
//! When a new key finds no free slot in its bucket, the limiter evicts the key with the smallest debt. The overflow
//! policy decides what happens to that debt:
//!
//! - [`Overflow::Spill`], the default, adds the debt to a sketch, where it still counts. No key is admitted more than
//!   its quota, and a few requests are denied early.
//! - [`Overflow::Forget`] drops the debt. Use it where a false denial is worse than over-admission.
//! - [`Overflow::Inherit`] moves the debt to the new key. Use it where clients cannot create keys for free.
//!
//! See [`guide::overflow`]. A keyed store has no fixed size: it grows, or it has a cap and a policy for new keys at
//! that cap ([`WhenFull`]).
//!
//! # Clocks
//!
//! | Clock | Use it for |
//! |---|---|
//! | [`QuantaClock`], the default | servers: reads the processor's time-stamp counter, in about 10 ns |
//! | [`StdClock`] | machines whose counters differ between cores, or can stop or jump (some virtual machines, and machines that suspend): reads the system's monotonic clock |
//! | [`CoarseClock`] | event loops: one load; its time is as recent as your loop's last update |
//! | [`ManualClock`] | tests, simulations, replays |
//! | `TokioClock` (feature `tokio`) | tests in tokio's paused time |
//! | your own [`Clock`] | other time sources: implement one method, or give the time of each call ([`RateLimiter::at`]) |
//!
//! A [`Timestamp`] counts nanoseconds since the clock's origin. A process reads the wall clock once, when it creates
//! its first real clock. All its real clocks continue from that reading. Windows therefore begin with the calendar's
//! minutes and days, in UTC.
//!
//! Later steps of the wall clock change nothing. If the wall clock is changed by one hour while the server runs,
//! windows stay where they were. On most systems the monotonic clock stops while the machine is suspended. Nothing
//! refills in that time, and windows stay late by that much until the process restarts.
//!
//! # Other operations
//!
//! [`check_all`] applies several limits to one request and charges all of them or none. [`guide::decisions`] also
//! covers reservations, refunds, costs that are known only afterwards, and quotas that change while the limiter is in
//! use. Threads and tokio tasks can wait for their turn, first come, first served; see [`guide::waiting`].
//!
//! # Guarantees
//!
//! - Admitted units never exceed the algorithm's bound, for any key, any interval and any interleaving of threads. The
//!   docs of each algorithm state its bound. [`RateLimiter`] explains the effect of a thread that is delayed between
//!   its clock reading and its charge. The exceptions are:
//!   - A compact limiter counts time in ticks of at most 1/256 of a unit's time.
//!   - A compact limiter that has no free slot follows its overflow policy ([`Overflow`]).
//!   - A striped limiter ([`Striped`](leases::Striped)) may admit more than the bound. In an interval of length t, it admits at most the
//!     bound for t plus the life of one lease (10 ms). Around the end of a window, this can be half a limit more.
//! - A denied request is not charged, and a denial does not write to memory that threads share. [`guide::guarantees`]
//!   lists the exceptions (G26). For example, a compact limiter counts the new keys that it denies because of the debt
//!   of another key. A [`Sketch`] may write in a race.
//! - Every call is lock-free, except calls that wait, calls that change a quota, and [holds]. Contention never causes a denial,
//!   with one rare exception in a [`Sketch`].
//! - A compact or direct limiter never allocates during a check. A keyed limiter allocates only for a key that it does
//!   not hold yet, and once for each thread.
//! - After a limiter is created, no cost and no time causes an overflow, a panic or a division by zero. For a quota that cannot be
//!   represented, the `try_…` constructors return an error, and `new` panics.
//! - Callers' clock readings can differ. If they differ by at most d, an interval of length t admits at most the
//!   algorithm's bound for t + d. After a clock steps back, the limiter can only deny more, for less time than the
//!   step. [`guide::guarantees`] covers two special cases: a store that forgot a key, and a time that is far from all
//!   others.
//!
//! [`guide::guarantees`] lists every guarantee with its evidence, and the properties that the crate does not promise.
//! [`design`] explains how the crate works, and why.
//!
//! # Features
//!
//! The feature `std` is on by default. Without it (`default-features = false`) the crate is `no_std` with `alloc`. It
//! then contains every algorithm, the direct and compact stores, and [`check_all`]. The caller supplies the times and
//! the [seeds](Builder::seeds) of the hash. Everything else needs `std`. The target must have 64-bit atomics; see the
//! [design text](design#without-the-standard-library). The README lists the other features.
//!
//! # When to use another crate or tool
//!
//! | Alternative | Where it is better |
//! |---|---|
//! | [governor](https://docs.rs/governor) | many users over many years; your own stores and middleware as types; sinks; waits in any executor. It inserts a new key in less than half of the time |
//! | [pingora-limits](https://docs.rs/pingora-limits) | counters that you can decrement without a guard; a Pingora proxy already contains it |
//! | [ratelimit](https://docs.rs/ratelimit), [leaky-bucket](https://docs.rs/leaky-bucket) | one bucket without keys, in very little code; `leaky-bucket` has a fair queue for tokio |
//! | a semaphore, tower's `ConcurrencyLimit` | limits on *concurrent* requests, with waiting: they bound the work in progress, not a rate. For a limit on each key, see [`sketch::InFlight`] |
//! | a script in Redis, Envoy's rate limit service | a limit that programs in several languages share. Among your own Rust programs, use the feature `redis` |
//! | nginx, HAProxy, Envoy, a CDN | floods: they deny requests before the requests cost your server a connection and a handshake. Use this crate for limits on accounts and actions |
//! | a database | billing, such as paid calls per month ([`guide::calendars`] has the limits): this crate's counts are lost when the process ends, unless you save them ([`RateLimiter::snapshot`]) |
//!
//! # Guides
//!
//! | Guide | Topics |
//! |---|---|
//! | [`guide::recipes`] | feature `tower`: skip internal networks, a custom JSON body, per-route limits, per-user limits from a token, plans from a database, uploads by bytes, metrics without rules |
//! | [`guide::actix_and_pingora`] | feature `http`: the same limits in actix-web and Pingora |
//! | [`guide::testing`] | test without sleeping: your own code, and axum handlers |
//! | [`guide::before_production`], [`guide::troubleshooting`] | a checklist; everything is denied, nothing is denied, wrong keys, clocks, memory |
//! | [`guide::blocks`] | block a client for a time after a denial, longer each time |
//! | [`guide::decisions`] | several limits, costs known afterwards, tiers, quotas that change |
//! | [`guide::token_budgets`], [`guide::requests_in_progress`] | units that are held until the cost is known; how many requests run at the same time |
//! | [`guide::distinct_values`] | how many different values a client uses: user names, devices |
//! | [`guide::priorities`] | headroom for important requests: several classes on one count |
//! | [`guide::configuration`] | limits as text, from a file of your own; algorithms and stores that are chosen at run time |
//! | [`guide::calendars`] | feature `calendar`: quotas by the month, year, week or day of a time zone |
//! | [`guide::waiting`] | waiting for a turn, in threads and tasks |
//! | [`guide::overflow`], [`guide::sketches`] | the effects of bounded memory, and how to choose its size |
//! | [`guide::middleware`], [`guide::http`] | feature `tower`: limits in front of a server; feature `http`: the headers and bodies that clients receive |
//! | [`guide::rules`] | feature `rules`: limits in files that reload |
//! | [`guide::addresses`] | feature `rules`: limits for IP ranges, and for several IPv6 prefixes of a client together |
//! | [`guide::gateway`] | feature `rules`: limits for Envoy and other gateways, which ask `tollgate serve` |
//! | [`guide::operators`] | feature `rules`: reset, grant, block and unblock single keys while the service runs |
//! | [`guide::redis_clients`] | feature `rules`: a limiter for programs in Python, Node, PHP, Go and other languages, by the protocol of Redis clients |
//! | [`guide::redis`] | feature `redis`: one limit for many machines, and the behaviour while Redis is unavailable |
//! | [`telemetry`] | figures for operators (in the pages of `cargo doc`) |
//! | [`guide::from_governor`], [`guide::from_pingora_limits`], [`guide::from_tower_governor`] | moving from another crate, call by call |
//! | [`guide::guarantees`], [`guide::models`] | each guarantee with its evidence; the models of the concurrent parts |
//! | [`design`] | how the crate works, and why; the glossary |
//!
//! The folder `examples/` contains whole programs: `quick_start`, `tiers`, `login`, `token_budget`, `outbound`,
//! `axum`, `axum_layer`, `hyper`, `tonic` and `axum_redis`. In `axum_redis`, two processes share a limit.

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Builds with `std` check the items that only `std` parts use, and the links to them.
#![cfg_attr(
    not(feature = "std"),
    allow(dead_code, unreachable_pub, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]
// Public functions must document their errors and panics. Test helpers need not.
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

extern crate alloc;

mod algorithm;
mod base;
mod edge;
mod limiter;
pub mod sketch;
mod store;

/// Guides: what to choose, and why.
///
/// `ci/pages.py` writes the same guides as Markdown files, in the folder `docs`.
// Every build has every module, so that links to a guide always work.
pub mod guide {
    // Its examples call actix-web and Pingora: benches/guides compiles the first.
    #[cfg(not(doctest))]
    pub mod actix_and_pingora {
        #![cfg_attr(feature = "http", doc = include_str!("guide/actix_and_pingora.md"))]
        #![cfg_attr(not(feature = "http"), doc = "This guide needs the feature `http`.")]
    }
    pub mod addresses {
        #![cfg_attr(feature = "rules", doc = include_str!("guide/addresses.md"))]
        #![cfg_attr(all(feature = "rules", feature = "tower"), doc = include_str!("guide/addresses_layer.md"))]
        #![cfg_attr(not(feature = "rules"), doc = "This guide needs the feature `rules`.")]
    }
    pub mod before_production {
        #![cfg_attr(feature = "std", doc = include_str!("guide/before_production.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod blocks {
        #![cfg_attr(feature = "std", doc = include_str!("guide/blocks.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod calendars {
        #![cfg_attr(feature = "calendar", doc = include_str!("guide/calendars.md"))]
        #![cfg_attr(all(feature = "calendar", feature = "rules"), doc = include_str!("guide/calendars_rules.md"))]
        #![cfg_attr(not(feature = "calendar"), doc = "This guide needs the feature `calendar`.")]
    }
    pub mod configuration {
        #![cfg_attr(feature = "std", doc = include_str!("guide/configuration.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod decisions {
        #![cfg_attr(feature = "std", doc = include_str!("guide/decisions.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod distinct_values {
        #![cfg_attr(feature = "std", doc = include_str!("guide/distinct_values.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    // Its examples call governor: benches/guides tests them.
    #[cfg(not(doctest))]
    pub mod from_governor {
        #![cfg_attr(feature = "std", doc = include_str!("guide/from_governor.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod from_pingora_limits {
        #![cfg_attr(feature = "std", doc = include_str!("guide/from_pingora_limits.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    #[cfg(not(doctest))]
    pub mod from_tower_governor {
        #![cfg_attr(feature = "tower", doc = include_str!("guide/from_tower_governor.md"))]
        #![cfg_attr(not(feature = "tower"), doc = "This guide needs the feature `tower`.")]
    }
    pub mod gateway {
        #![cfg_attr(feature = "rules", doc = include_str!("guide/gateway.md"))]
        #![cfg_attr(not(feature = "rules"), doc = "This guide needs the feature `rules`.")]
    }
    pub mod guarantees {
        // In Markdown, the first definition of a link counts. In rustdoc, these come before the page's own.
        #![doc = "[models]: crate::guide::models"]
        #![doc = "[rules]: crate::guide::rules#where-this-differs-from-envoys-service\n"]
        #![doc = include_str!("../GUARANTEES.md")]
    }
    pub mod http {
        #![cfg_attr(feature = "http", doc = include_str!("guide/http.md"))]
        #![cfg_attr(not(feature = "http"), doc = "This guide needs the feature `http`.")]
    }
    pub mod middleware {
        #![cfg_attr(feature = "tower", doc = include_str!("guide/middleware.md"))]
        #![cfg_attr(not(feature = "tower"), doc = "This guide needs the feature `tower`.")]
    }
    pub mod models {
        #![doc = include_str!("guide/models.md")]
    }
    pub mod operators {
        #![cfg_attr(feature = "rules", doc = include_str!("guide/operators.md"))]
        #![cfg_attr(not(feature = "rules"), doc = "This guide needs the feature `rules`.")]
    }
    pub mod overflow {
        #![cfg_attr(feature = "std", doc = include_str!("guide/overflow.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod priorities {
        #![cfg_attr(feature = "std", doc = include_str!("guide/priorities.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod recipes {
        #![cfg_attr(feature = "tower", doc = include_str!("guide/recipes.md"))]
        #![cfg_attr(all(feature = "tower", feature = "metrics"), doc = include_str!("guide/recipes_metrics.md"))]
        #![cfg_attr(not(feature = "tower"), doc = "This guide needs the feature `tower`.")]
    }
    // An empty line must be above a chart: the chart is then a block of its own.
    pub mod redis {
        #![cfg_attr(
            feature = "redis",
            doc = include_str!("guide/redis.md"),
            doc = "",
            doc = include_str!("guide/redis_regions.svg"),
            doc = include_str!("guide/redis_server.md"),
            doc = "",
            doc = include_str!("guide/redis_simulation.svg")
        )]
        #![cfg_attr(not(feature = "redis"), doc = "This guide needs the feature `redis`.")]
    }
    pub mod redis_clients {
        #![cfg_attr(feature = "rules", doc = include_str!("guide/redis_clients.md"))]
        #![cfg_attr(not(feature = "rules"), doc = "This guide needs the feature `rules`.")]
    }
    pub mod requests_in_progress {
        #![cfg_attr(feature = "std", doc = include_str!("guide/requests_in_progress.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod rules {
        #![cfg_attr(feature = "rules", doc = include_str!("guide/rules.md"))]
        #![cfg_attr(not(feature = "rules"), doc = "This guide needs the feature `rules`.")]
    }
    pub mod sketches {
        #![cfg_attr(
            feature = "std",
            doc = include_str!("guide/sketches.md"),
            doc = "",
            doc = include_str!("guide/sketch_accuracy.svg")
        )]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod testing {
        #![cfg_attr(feature = "std", doc = include_str!("guide/testing.md"))]
        #![cfg_attr(feature = "tower", doc = include_str!("guide/testing_axum.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod token_budgets {
        #![cfg_attr(feature = "std", doc = include_str!("guide/token_budgets.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod troubleshooting {
        #![cfg_attr(feature = "std", doc = include_str!("guide/troubleshooting.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
    pub mod waiting {
        #![cfg_attr(feature = "std", doc = include_str!("guide/waiting.md"))]
        #![cfg_attr(feature = "tokio", doc = include_str!("guide/waiting_async.md"))]
        #![cfg_attr(not(feature = "std"), doc = "This guide needs the feature `std`.")]
    }
}

pub mod design {
    #![doc = "[guarantees]: crate::guide::guarantees\n"]
    #![doc = include_str!("design.md")]
}

pub use algorithm::{
    Algorithm, Block, Blocked, Calendar, CalendarWindow, CompactAlgorithm, FixedWindow, Gcra,
    LeakyBucketMeter, LeakyBucketQueue, Limit, LimitKind, MinimumSpacing, SlidingLog, SlidingWindow,
    SubWindow, TokenBucket, WindowAlgorithm,
};
pub use base::clock::{Clock, IntoClock, ManualClock, Timestamp};
#[cfg(feature = "std")]
pub use base::clock::{CoarseClock, QuantaClock, StdClock};
pub use base::decision::{Decision, Denied, Outcome};
pub use base::quota::{Quota, QuotaError};
#[cfg(feature = "calendar")]
pub use edge::calendar;
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
pub use limiter::joint::check_all;
#[cfg(feature = "tokio")]
pub use limiter::wait::TokioClock;
#[cfg(feature = "std")]
pub use limiter::{AnyLimiter, Distinct};
pub use limiter::{At, Builder, Class, RateLimiter};
#[cfg(tollgate_simulation)]
#[doc(hidden)]
pub use store::small;
#[cfg(feature = "std")]
pub use store::{Adjustable, Carry, Keyed, Sketch, StoreKind, WhenFull};
pub use store::{Capacity, Compact, Direct, Overflow};

/// Several limits on one request: a call charges all of them, or none. [`check_all`] is the short form.
pub mod joint {
    pub use crate::limiter::joint::{AllOf, BoundLimit, JointDecision, Limits};
}

/// One limit that all cores use at the same time, by leases of its units.
#[cfg(feature = "std")]
pub mod leases {
    pub use crate::limiter::striped::{Lease, LeaseAlgorithm, LeaseRequest, LeaseSource, Leases, Striped};
}

/// Units that are taken now and settled later, and limits on requests in progress.
///
/// [`RateLimiter::with_holds`] makes a limiter whose units can be held.
#[cfg(feature = "std")]
pub mod holds {
    pub use crate::limiter::holds::Hold;
    pub use crate::limiter::in_progress::{InProgress, Permit};
    pub use crate::store::{HoldId, Holding};
}

/// Threads and tasks that wait for a turn. [`RateLimiter::wait`] and `RateLimiter::until_ready` create the waits.
#[cfg(feature = "std")]
pub mod waiting {
    #[cfg(feature = "tokio")]
    pub use crate::limiter::wait::UntilReady;
    pub use crate::limiter::wait::{Jitter, NotReady, Wait};
}

/// What belongs to stores: look-ups, snapshots, tiers, figures, and the bounds of code for any store.
pub mod stores {
    #[cfg(feature = "std")]
    pub use crate::store::{AnyStore, Lookup, Rebuild, Saturation, SnapshotKey};
    pub use crate::store::{CapacityError, Gauges, HashedStore, ManyKeys, SnapshotError, Store, Tier};
}

/// The README's examples, as tests. They are whole programs without hidden lines, because GitHub would show those.
/// They therefore run only when all the features that they use are enabled.
#[cfg(all(doctest, feature = "redis", feature = "tower", feature = "watch"))]
#[doc = include_str!("../README.md")]
struct Readme;
