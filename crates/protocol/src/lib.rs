//! What processes and a Redis or Valkey server say to each other about limits that they share: the calls and their replies, the
//! scripts that answer on the server, and a model of the server in Rust. It has no connection.
//!
//! [`tollgate-redis`](https://docs.rs/tollgate-redis) has the limiters that programs use: its clients send these calls. Use this package
//! for a client or a transport of your own.
//!
//! A [`Call`] is one [`Question`] about one key. [`script::command`] writes it as a command for the server, and [`script::reply`] reads the
//! [`Reply`]. [`ServerModel`] gives the same reply in Rust.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tollgate::{Limit, Quota, Timestamp};
//! use tollgate_protocol::script::{self, By};
//! use tollgate_protocol::{Call, Place, Plan, Question, Scope, ServerModel, head, tagged};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = Arc::new(Plan::new(&[Limit::gcra(Quota::per_second(5))])?);
//! let tag = tagged(&head("tollgate", "api"), b"192.0.2.1");
//! assert_eq!(tag, b"tollgate:v1:{api|192.0.2.1}");
//!
//! let ask = Question::Check { cost: 2 };
//! let (now, place, scope) = (None, Place::default(), Scope::Limits);
//! let call = Call { tag, plan: Arc::clone(&plan), ask, now, place, scope };
//! let command = script::command(&call, By::Text); // to be sent with the crate `redis`
//! assert_eq!(command.args_iter().count(), 8, "EVAL, the script, 1, the key, the cost and 3 numbers");
//!
//! let reply = ServerModel::default().answer(&call, 1_700_000_000_000_000);
//! assert_eq!((reply.granted, plan.remaining(&reply)), (2, 3));
//! assert!(plan.decision(&reply, 2, Timestamp::from_secs(1_700_000_000)).is_allowed());
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | `plan`, `exact` | a limit as integers that a script can count with, and the bounds of these integers |
//! | `key` | keys of limiters |
//! | `tag`, [`slot`] | the Redis key that holds the state, and its slot in a Cluster |
//! | `call` | one call about one key, its reply, and the transport trait |
//! | `hold`, `terms` | what calls and replies say about units that are settled later, and about limits of several regions |
//! | `figures`, `error` | what a reply means for a request, and errors |
//! | `kinds` | the kinds of limits that scripts count, and the texts of the scripts |
//! | [`script`], `model` | the calls of scripts on a server, and the same algorithms in Rust |
//! | [`region`] | one limit for several regions: what their servers count, and the exchange of totals |
//! | `server` | the states of all keys of a server, in this process |
//!
//! Nothing here uses a connection. Only `script` reads a clock: the period of a calendar goes into the call.

// The models of the concurrent protocols use no part of this package.
#![cfg(not(tollgate_loom))]
#![warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]

mod call;
mod error;
mod exact;
mod figures;
mod hold;
mod key;
mod kinds;
mod model;
mod plan;
pub mod region;
pub mod script;
mod server;
pub mod slot;
mod tag;
mod terms;

pub use self::call::{Call, LimitStanding, Place, Question, Reply, Scope, Transport};
pub use self::error::{Error, ErrorKind};
pub use self::exact::EXACT;
pub use self::figures::strictness;
pub use self::hold::{MOST_HELD, MOST_HOLDS, identity_of};
pub use self::key::{Key, Number};
pub use self::kinds::Pace;
pub use self::model::{POSTS_KEPT_US, PostedTotal};
pub use self::plan::{Plan, PlannedLimit, Windows};
pub use self::server::{KeyStates, ServerModel};
pub use self::tag::{head, tagged};
pub use self::terms::{
    LinkAges, LinkReport, Portion, RegionPolicy, RegionScope, RegionTerms, RegionUse, quantum,
};

/// The example of the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmePage;
