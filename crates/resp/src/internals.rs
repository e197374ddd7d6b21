//! What the tests and the fuzz target of the endpoint use: a connection without its socket. It is not part of the public interface.

pub use crate::answer::{FULL, RespShared, Session, Step, TURN};
pub use crate::counts::RespCounts;
pub use crate::quotas::{ClientQuota, Quotas};
pub use crate::read::Limits;
pub use crate::transaction::{MOST_BYTES, MOST_COMMANDS};
pub use crate::users::{User, Users};
