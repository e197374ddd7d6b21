//! Enforces one limit across many machines through Redis or Valkey.
//!
//! [The guide](https://docs.rs/crate/tollgate/latest/source/docs/redis.md)
//! describes how to choose a mode, what Redis stores, and what a loss of that data
//! means.
//!
//! ```
//! use tollgate::Quota;
//! use tollgate_redis::{InProcess, Limit, OnFailure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = InProcess::default(); // or Client::open("redis://127.0.0.1:6379/")?
//! let per_client = Limit::gcra(Quota::per_second(100).burst(200));
//!
//! // The server decides every request.
//! let dear = client.limiter("payments", Limit::fixed_window(Quota::per_day(10_000))).atomic()?;
//! assert!(dear.check("acme").await.is_allowed());
//!
//! // The limiter fetches units in blocks and spends them here: never above the limit, mostly without a round trip.
//! let usual = client.limiter("api", per_client).on_failure(OnFailure::Local { processes: 4 }).leases().build()?;
//! assert!(usual.check_async("203.0.113.7").await.is_allowed());
//! let _at_once = usual.check("203.0.113.7"); // never waits: denied until units arrive
//!
//! // Decides here and posts to the server each second: may exceed the limit, by a stated bound.
//! let busy = client.limiter("search", per_client).write_back().build()?;
//! assert!(busy.check("203.0.113.7").is_allowed());
//! # usual.close().await;
//! # busy.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Modules
//!
//! Imports go downward only. Each module uses only the modules below it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `rules` | the counters and the texts of rules (feature `rules`) |
//! | `internals` | what tests and simulations use of the modules below (`cfg(tollgate_simulation)`) |
//! | `mode` | the limiters `atomic`, `lease` and `write_back`, and their shared parts |
//! | `guard` | decisions while the server does not answer: breaker, fallback, counts |
//! | `client` | connections, user settings, and a server in this process |
//!
//! Below them is the package [`tollgate-protocol`](https://docs.rs/tollgate-protocol): limits, keys, calls and replies, also about holds
//! and regions; the scripts, and their model in Rust.

#![cfg_attr(not(tollgate_simulation), allow(unreachable_pub, reason = "`internals` exports these items"))]
#![cfg_attr(tollgate_loom, allow(dead_code, unreachable_pub, reason = "models use the protocols only"))]
// The published docs show which feature each item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

#[cfg(not(tollgate_loom))]
mod client;
#[cfg(not(tollgate_loom))]
mod guard;
#[cfg(all(tollgate_simulation, not(tollgate_loom)))]
#[doc(hidden)]
pub mod internals;
#[cfg(not(tollgate_loom))]
mod mode;
#[cfg(all(feature = "rules", not(tollgate_loom)))]
mod rules;
#[cfg(not(tollgate_loom))]
pub mod telemetry;

#[cfg(not(tollgate_loom))]
pub use self::client::{
    Blocking, Breaker, BuildError, Client, CredentialsFile, InProcess, InProgressOptions, LimiterBuilder,
    OnFailure, Shard, ShardError, Shards,
};
#[cfg(not(tollgate_loom))]
pub use self::guard::{BreakerState, Health};
#[cfg(not(tollgate_loom))]
pub use self::mode::{
    AtomicLimiter, HoldingLimiter, InProgressLimiter, LeaseBuilder, LeaseLimiter, LeaseStats, LimiterAt,
    RegionHealth, SharedHold, WriteBackBuilder, WriteBackLimiter, WriteBackStats,
};
#[cfg(all(feature = "rules", not(tollgate_loom)))]
pub use self::rules::{PushedRules, RedisRules, check_config, health_by_server};
#[cfg(not(tollgate_loom))]
#[doc(no_inline)]
pub use ::redis::{BasicAuth, StreamingCredentialsProvider};
#[cfg(not(tollgate_loom))]
#[doc(no_inline)]
pub use tollgate::Limit;
// These types are part of this package's own functions.
#[cfg(not(tollgate_loom))]
#[doc(inline)]
pub use tollgate::{DecidedBy, SharedDecision};
#[cfg(not(tollgate_loom))]
#[doc(inline)]
pub use tollgate_protocol::{Error, ErrorKind, Key, Number, RegionPolicy};

/// The parts that models check. The clients and limiters around them would take minutes to build with the shim of models.
#[cfg(tollgate_loom)]
mod guard {
    mod breaker;
}
#[cfg(tollgate_loom)]
mod mode {
    #[path = "write_back/allowance.rs"]
    mod write_back;
}

/// The examples of the README, and of the guides that use this package, as tests. They have no hidden lines, because GitHub
/// would show those. They therefore run only when all the features that they use are enabled, and only in a checkout: the
/// package has no guides.
#[cfg(all(doctest, feature = "metrics", feature = "rules"))]
mod pages {
    macro_rules! pages {
        ($($name:ident $file:literal)*) => { $(#[doc = include_str!($file)] struct $name;)* };
    }
    pages! {
        Readme "../README.md"
        Blocks "../../../docs/blocks.md"
        Redis "../../../docs/redis.md"
    }
}
