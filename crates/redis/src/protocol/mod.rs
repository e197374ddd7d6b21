//! The calls to the shared state, its replies, and what the replies mean. Nothing here uses a connection. Only `script` reads a
//! clock: the period of a calendar goes into the call.
//!
//! | part | contents |
//! |---|---|
//! | `plan`, `exact` | a limit as integers that a script can count with, and the bounds of these integers |
//! | `key`, `name` | keys, and how this process looks them up |
//! | `tag`, `slot` | the Redis key that holds the state, and its slot in a Cluster |
//! | `call` | one call about one key, its reply, and the transport trait |
//! | `hold`, `region` | what calls and replies say about units that are settled later, and about limits of several regions |
//! | `figures`, `error` | what a reply means for a request, and errors |
//! | `kinds` | the kinds of limits that scripts count, and the texts of the scripts |
//! | `script`, `model` | the calls of scripts on a server, and the same algorithms in Rust |

mod call;
mod error;
mod exact;
mod figures;
#[allow(missing_docs, reason = "the docs of each type name its fields")]
mod hold;
mod key;
pub(crate) mod kinds;
pub(crate) mod model;
mod name;
mod plan;
#[allow(missing_docs, reason = "the docs of each type name its fields")]
mod region;
pub mod script;
pub mod slot;
mod tag;

pub use self::call::{Call, LimitState, Place, Question, Reply, Scope, Transport};
pub use self::error::{Error, ErrorKind};
pub(crate) use self::exact::EXACT;
pub(crate) use self::figures::strictness;
#[cfg(tollgate_simulation)]
pub use self::hold::MOST_HOLDS;
pub use self::hold::{MOST_HELD, identity_of};
pub use self::key::{Key, Number};
pub(crate) use self::model::{POSTS_KEPT_US, PostedTotal, kept_us};
pub(crate) use self::name::{Bytes, KeyRef, LookupKey, OwnedKey};
pub(crate) use self::plan::Arithmetic;
pub use self::plan::{Plan, PlannedLimit, Windows};
#[cfg(tollgate_simulation)]
pub use self::region::quantum;
pub use self::region::{LinkAges, LinkReport, Portion, RegionPolicy, RegionScope, RegionTerms, RegionUse};
pub(crate) use self::tag::{head, tagged};
pub use tollgate::{DecidedBy, SharedDecision};
