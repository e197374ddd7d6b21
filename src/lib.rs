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
//! Users of [governor][from_governor], [pingora-limits][from_pingora_limits] and [tower_governor][from_tower_governor]
//! find each call translated in a guide.
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
//! The [glossary][design] defines the terms.
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
//! | that a client which exceeds its limit is denied for minutes, longer each time | [`Blocked`]; see [the guide][blocks] |
//!
//! A client can spend the whole burst at once: 1,000 units per hour with the default burst can admit 1,000 requests
//! within one second. To prevent that, set a lower burst, or add a second limit ([`check_all`]).
//!
//! In code, the default algorithm is GCRA. Rules from files (package `tollgate-rules`) default to fixed windows, as Envoy's
//! rate limit service does.
//!
//! # Choosing a store
//!
//! | Store | Constructors | What it keeps | When to use it |
//! |---|---|---|---|
//! | [`Compact`] | [`RateLimiter::new`], [`Builder::compact`] | eight bytes for each key that owes, in memory of fixed size; keys of any type | unless you need another store |
//! | [`Keyed`] | [`RateLimiter::keyed`], [`Builder::keyed`] | the keys themselves: 30 to 50 bytes for each active key of 8 bytes, from 100,000 keys on | to list keys; when two keys must never share a limit; for [`SlidingLog`], [`SubWindow`] and token buckets that refill in batches |
//! | [`Sketch`] | [`Builder::sketch`] | counters that keys share: memory is constant, and a few requests are denied early | for quotas such as 10,000 per day, with more busy keys than memory can hold; see [the guide][sketches] |
//! | [`Direct`] | [`RateLimiter::direct`] | one state | for one limit on all requests |
//! | [`LimitState`] | in your own struct | one word, 8 bytes; the algorithm and the time are given | for a limit of each connection or peer; without the standard library |
//! | [`Striped`](leases::Striped) | [`Builder::striped`] | one state that all cores can use at once; each core spends from a block of units that was charged in advance | for one limit on all requests, on many cores ([`Leases`](leases::Leases)) |
//! | [`AnyStore`](stores::AnyStore) | [`RateLimiter::any`] | one of the first four stores, chosen at run time like its algorithm | for limits from a file or a flag; see [the guide][configuration] |
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
//! See [the guide][overflow]. A keyed store has no fixed size: it grows, or it has a cap and a policy for new keys at
//! that cap ([`WhenFull`]).
//!
//! # Clocks
//!
//! | Clock | Use it for |
//! |---|---|
//! | [`DefaultClock`], the default | servers: reads the processor's time-stamp counter in about 10 ns where Linux itself uses it, otherwise the system's monotonic clock. [`DefaultClock::uses_counter`] shows which |
//! | [`StdClock`] | programs that must not use the counter: reads the system's monotonic clock on every machine |
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
//! [`check_all`] applies several limits to one request and charges all of them or none. [Its guide][decisions] also
//! covers reservations, refunds, costs that are known only afterwards, and quotas that change while the limiter is in
//! use. Threads and tokio tasks can wait for their turn, first come, first served; see [the guide][waiting].
//!
//! # Guarantees
//!
//! - Admitted units never exceed the algorithm's bound, for any key, any interval and any interleaving of threads. The
//!   docs of each algorithm state its bound. [`RateLimiter`] explains the effect of a thread that is delayed between
//!   its clock reading and its charge. The exceptions are:
//!   - A compact limiter counts time in ticks of at most 1/256 of a unit's time. For a burst and overdraft of
//!     together more than 2²⁵ units, or a rate above 2³¹ a second, a tick is at most a unit's time, so at most one unit too many is admitted.
//!   - A compact limiter that has no free slot follows its overflow policy ([`Overflow`]).
//!   - A striped limiter ([`Striped`](leases::Striped)) may admit more than the bound. In an interval of length t, it admits at most the
//!     bound for t plus the life of one lease (10 ms). Around the end of a window, this can be half a limit more.
//! - A denied request is not charged, and a denial does not write to memory that threads share. [`GUARANTEES.md`][guarantees]
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
//!   step. [`GUARANTEES.md`][guarantees] covers two special cases: a store that forgot a key, and a time that is far from all
//!   others.
//!
//! [`GUARANTEES.md`][guarantees] lists every guarantee with its evidence, and the properties that the crate does not promise.
//! [The design][design] explains how the crate works, and why.
//!
//! # Features
//!
//! The feature `std` is on by default. Without it (`default-features = false`) the crate is `no_std` with `alloc`. It
//! then contains every algorithm, the direct and compact stores, and [`check_all`]. The caller supplies the times and
//! the [seeds](Builder::seeds) of the hash. Everything else needs `std`. The target must have 64-bit atomics; see the
//! [design text][design]. The README lists the other features.
//!
//! # When to use another crate or tool
//!
//! | Alternative | Where it is better |
//! |---|---|
//! | [governor](https://docs.rs/governor) | many users over many years; your own stores and middleware as types; sinks; waits in any executor. It inserts a new key in less than half of the time |
//! | [pingora-limits](https://docs.rs/pingora-limits) | counters that you can decrement without a guard; a Pingora proxy already contains it |
//! | [ratelimit](https://docs.rs/ratelimit), [leaky-bucket](https://docs.rs/leaky-bucket) | one bucket without keys, in very little code; `leaky-bucket` has a fair queue for tokio |
//! | a semaphore, tower's `ConcurrencyLimit` | limits on *concurrent* requests, with waiting: they bound the work in progress, not a rate. For a limit on each key, see [`sketch::InFlight`] |
//! | a script in Redis, Envoy's rate limit service | a limit that programs in several languages share. Among your own Rust programs, use the package `tollgate-redis` |
//! | nginx, HAProxy, Envoy, a CDN | floods: they deny requests before the requests cost your server a connection and a handshake. Use this crate for limits on accounts and actions |
//! | a database | billing, such as paid calls per month ([the guide][calendars] has the limits): this crate's counts are lost when the process ends, unless you save them ([`RateLimiter::snapshot`]) |
//!
//! # Guides
//!
//! The guides are Markdown files in the folder `docs`, in the repository and in the published package. [The list of all
//! guides][guides] says what each of them is about.
//!
//! - **Begin:** [recipes], [tests without sleeping][testing], [before production][before_production], [troubleshooting].
//! - **Decide:** [several limits, refunds and tiers][decisions], [token budgets][token_budgets], [requests in
//!   progress][requests_in_progress], [different values][distinct_values], [headroom for important
//!   requests][priorities], [blocks], [calendars], [waiting], [bytes].
//! - **Choose a store:** [overflow], [sketches], [limits from a configuration][configuration].
//! - **Limit servers:** [middleware], [header fields][http], [actix-web and Pingora][actix_and_pingora], [rules from
//!   files][rules], [IP ranges and IPv6 prefixes][addresses], [spellings of a path][paths], [limits for several machines][redis].
//!   The module [`telemetry`] has figures for operators.
//! - **Run the program:** [a service for gateways][gateway], [help for one client][operators], [Python, Node, PHP and
//!   Go][redis_clients], [logs for replay][logs].
//! - **Move:** [from your own map][from_your_own_map], [eight servers][servers], [governor][from_governor], [pingora-limits][from_pingora_limits],
//!   [tower_governor][from_tower_governor].
//! - **Know why:** [the guarantees][guarantees], [the models of the concurrent parts][models], [the design and the
//!   glossary][design].
//!
//! The folder `examples/` contains whole programs: `quick_start`, `tiers`, `login`, `token_budget` and
//! `outbound`. The package `tollgate-rules` has `own_store`. The package `tollgate-tower` has servers: `axum`, `axum_layer`, `hyper`, `tonic` and `axum_redis`. In
//! `axum_redis`, two processes share a limit.
//!
//! [actix_and_pingora]: https://docs.rs/crate/tollgate/latest/source/docs/actix_and_pingora.md
//! [addresses]: https://docs.rs/crate/tollgate/latest/source/docs/addresses.md
//! [before_production]: https://docs.rs/crate/tollgate/latest/source/docs/before_production.md
//! [blocks]: https://docs.rs/crate/tollgate/latest/source/docs/blocks.md
//! [bytes]: https://docs.rs/crate/tollgate/latest/source/docs/bytes.md
//! [calendars]: https://docs.rs/crate/tollgate/latest/source/docs/calendars.md
//! [configuration]: https://docs.rs/crate/tollgate/latest/source/docs/configuration.md
//! [decisions]: https://docs.rs/crate/tollgate/latest/source/docs/decisions.md
//! [design]: https://docs.rs/crate/tollgate/latest/source/docs/design.md
//! [distinct_values]: https://docs.rs/crate/tollgate/latest/source/docs/distinct_values.md
//! [from_governor]: https://docs.rs/crate/tollgate/latest/source/docs/from_governor.md
//! [from_pingora_limits]: https://docs.rs/crate/tollgate/latest/source/docs/from_pingora_limits.md
//! [from_tower_governor]: https://docs.rs/crate/tollgate/latest/source/docs/from_tower_governor.md
//! [from_your_own_map]: https://docs.rs/crate/tollgate/latest/source/docs/from_your_own_map.md
//! [gateway]: https://docs.rs/crate/tollgate/latest/source/docs/gateway.md
//! [guarantees]: https://docs.rs/crate/tollgate/latest/source/GUARANTEES.md
//! [guides]: https://docs.rs/crate/tollgate/latest/source/docs/README.md
//! [http]: https://docs.rs/crate/tollgate/latest/source/docs/http.md
//! [logs]: https://docs.rs/crate/tollgate/latest/source/docs/logs.md
//! [middleware]: https://docs.rs/crate/tollgate/latest/source/docs/middleware.md
//! [models]: https://docs.rs/crate/tollgate/latest/source/docs/models.md
//! [operators]: https://docs.rs/crate/tollgate/latest/source/docs/operators.md
//! [overflow]: https://docs.rs/crate/tollgate/latest/source/docs/overflow.md
//! [paths]: https://docs.rs/crate/tollgate/latest/source/docs/paths.md
//! [priorities]: https://docs.rs/crate/tollgate/latest/source/docs/priorities.md
//! [recipes]: https://docs.rs/crate/tollgate/latest/source/docs/recipes.md
//! [redis]: https://docs.rs/crate/tollgate/latest/source/docs/redis.md
//! [redis_clients]: https://docs.rs/crate/tollgate/latest/source/docs/redis_clients.md
//! [requests_in_progress]: https://docs.rs/crate/tollgate/latest/source/docs/requests_in_progress.md
//! [rules]: https://docs.rs/crate/tollgate/latest/source/docs/rules.md
//! [servers]: https://docs.rs/crate/tollgate/latest/source/docs/servers.md
//! [sketches]: https://docs.rs/crate/tollgate/latest/source/docs/sketches.md
//! [testing]: https://docs.rs/crate/tollgate/latest/source/docs/testing.md
//! [token_budgets]: https://docs.rs/crate/tollgate/latest/source/docs/token_budgets.md
//! [troubleshooting]: https://docs.rs/crate/tollgate/latest/source/docs/troubleshooting.md
//! [waiting]: https://docs.rs/crate/tollgate/latest/source/docs/waiting.md

#![cfg_attr(not(any(feature = "std", test)), no_std)]
// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Builds with `std` check the items that only `std` parts use, and the links to them.
#![cfg_attr(
    not(feature = "std"),
    allow(dead_code, unreachable_pub, unused_imports, unused_macros, rustdoc::broken_intra_doc_links)
)]
// The models of other packages use a build of this one without its own models.
#![cfg_attr(all(tollgate_loom, not(test)), allow(dead_code, unused_imports, unused_macros))]
// Public functions must document their errors and panics. Test helpers need not.
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

extern crate alloc;

mod algorithm;
mod base;
#[cfg(feature = "calendar")]
pub mod calendar;
#[cfg(feature = "std")]
#[doc(hidden)]
pub mod internals;
mod limiter;
#[cfg(feature = "std")]
mod shared;
pub mod sketch;
mod store;
#[cfg(feature = "std")]
pub mod telemetry;

pub use algorithm::{
    Algorithm, Block, Blocked, Calendar, CalendarWindow, CompactAlgorithm, FirstFill, FixedWindow, Gcra,
    LeakyBucketMeter, LeakyBucketQueue, Limit, LimitKind, MinimumSpacing, SlidingLog, SlidingWindow,
    SubWindow, TokenBucket, WindowAlgorithm,
};
pub use base::address::address_prefix;
pub use base::clock::{Clock, IntoClock, ManualClock, Timestamp};
#[cfg(feature = "std")]
pub use base::clock::{CoarseClock, DefaultClock, StdClock};
pub use base::decision::{Decision, Denied, Outcome};
pub use base::quota::{Quota, QuotaError};
pub use limiter::joint::check_all;
#[cfg(feature = "tokio")]
pub use limiter::wait::TokioClock;
#[cfg(feature = "std")]
pub use limiter::{AnyLimiter, Distinct};
pub use limiter::{At, Builder, Class, RateLimiter};
#[cfg(feature = "std")]
pub use shared::{DecidedBy, SharedDecision};
#[cfg(tollgate_simulation)]
#[doc(hidden)]
pub use store::small;
#[cfg(feature = "std")]
pub use store::{Adjustable, Carry, Keyed, Sketch, StoreConfig, StoreKind, WhenFull};
pub use store::{Capacity, Compact, Direct, LimitState, Overflow};

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
    pub use crate::limiter::{CheckKey, StateAt};
    #[cfg(feature = "std")]
    pub use crate::store::{AnyStore, Lookup, Rebuild, Saturation, SnapshotKey};
    pub use crate::store::{
        CapacityError, CheckWith, Gauges, HashedStore, ManyKeys, PresentStore, SnapshotError, States, Store,
        Tier,
    };
}

/// The examples of the guides that need only this crate, as tests. They have no hidden lines, because GitHub would show those. They
/// therefore run only when all the features that they use are enabled.
#[cfg(all(doctest, feature = "calendar", feature = "metrics"))]
mod pages {
    macro_rules! pages {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Configuration "../docs/configuration.md"
        Decisions "../docs/decisions.md"
        DistinctValues "../docs/distinct_values.md"
        FromPingoraLimits "../docs/from_pingora_limits.md"
        FromYourOwnMap "../docs/from_your_own_map.md"
        Overflow "../docs/overflow.md"
        Servers "../docs/servers.md"
        Sketches "../docs/sketches.md"
        Troubleshooting "../docs/troubleshooting.md"
        Waiting "../docs/waiting.md"
    }
}
