//! The calls to the shared state, its replies, and what the replies mean. Nothing here uses a connection. Only `script` reads a
//! clock: the period of a calendar goes into the call.
//!
//! | part | contents |
//! |---|---|
//! | `plan`, `exact` | a limit as integers that a script can count with, and the bounds of these integers |
//! | `key`, `name` | keys, and how this process looks them up |
//! | `tag`, `slot` | the Redis key that holds the state, and its slot in a Cluster |
//! | `call` | one call about one key, its reply, and the transport trait |
//! | `figures`, `answer`, `error` | what a reply means for a request, answers for users, and errors |
//! | `kinds` | the kinds of limits that scripts count, and the texts of the scripts |
//! | `script`, `model` | the calls of scripts on a server, and the same algorithms in Rust |

mod answer;
mod call;
mod error;
mod exact;
mod figures;
mod key;
pub(crate) mod kinds;
pub(crate) mod model;
mod name;
mod plan;
pub(crate) mod script;
pub mod slot;
mod tag;

pub use self::answer::{Answer, DecidedBy};
pub use self::call::{Call, LimitState, Place, Question, Reply, Transport};
pub use self::error::{Error, ErrorKind};
pub(crate) use self::exact::EXACT;
pub(crate) use self::figures::strictness;
pub use self::key::{Key, Number};
pub(crate) use self::model::{POSTS_KEPT_US, PostedTotal, kept_us};
pub(crate) use self::name::{Bytes, KeyRef, LookupKey, OwnedKey};
pub(crate) use self::plan::Arithmetic;
#[cfg(feature = "rules")]
pub(crate) use self::plan::check_limit;
pub use self::plan::{Part, Plan, Windows};
pub(crate) use self::tag::{head, tagged};
