//! One limit for many machines, by Redis or Valkey.
//!
//! | part | holds |
//! |---|---|
//! | `limit`, `key` | what is limited, and where its state is kept |
//! | `call` | what is asked of the shared state, and what it answers; all else is built on these few words |
//! | `settings`, `error`, `answer` | what users set, what can fail, what they are told |
//! | `guard`, `breaker`, `local`, `health` | what is done while the server does not answer, and what of it is counted |
//! | `table` | a bounded table of keys in this process, for the modes that hold units here |

mod answer;
mod breaker;
mod call;
mod error;
mod guard;
mod health;
mod key;
mod limit;
mod local;
mod settings;
mod table;

pub use self::answer::{Answer, DecidedBy};
pub use self::breaker::BreakerState;
pub use self::error::{Error, ErrorKind};
pub use self::health::Health;
pub use self::key::Key;
pub use self::limit::{Limit, LimitKind};
pub use self::settings::{Breaker, Builder, OnFailure};
