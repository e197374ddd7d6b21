//! What limiters ask the shared state, what it answers, and what the answer means. Nothing here knows of a connection or a clock.
//!
//! | part | holds |
//! |---|---|
//! | `limit`, `plan` | what is limited, and a limit as the integers that a script can count with |
//! | `key`, `name` | what a limiter is asked about, and how this process looks it up |
//! | `tag`, `slot` | the key under which the state is kept, and where a Cluster keeps it |
//! | `call` | one question about one key, its reply, and the trait of what carries it |
//! | `figures`, `answer`, `error` | what a reply means for a request, what users are told, and what can fail |
//! | `script`, `model` | what answers: the Lua script on a server, and the same in Rust |

mod answer;
mod call;
mod error;
mod figures;
mod key;
mod limit;
pub(crate) mod model;
mod name;
mod plan;
pub(crate) mod script;
pub(crate) mod slot;
mod tag;

pub use self::answer::{Answer, DecidedBy};
pub(crate) use self::call::{Call, LimitState, Question, Reply, Transport};
pub use self::error::{Error, ErrorKind};
pub(crate) use self::figures::strictness;
pub use self::key::{Key, Number};
pub use self::limit::{Limit, LimitKind};
pub(crate) use self::model::{POSTS_KEPT_US, kept_us};
pub(crate) use self::name::{Bytes, KeyRef, LookupKey, OwnedKey};
pub(crate) use self::plan::{Arithmetic, Part, Plan, Windows};
pub(crate) use self::tag::{head, tagged};
