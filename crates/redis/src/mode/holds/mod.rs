//! The limiters whose units are held: taken now, and settled later.
//!
//! | part | contents |
//! |---|---|
//! | `remote` | a limiter with holds: its calls to the server, and what the replies mean |
//! | `holding` | its public methods, and holds on the units of limits |
//! | `in_progress` | limits on the requests in progress |

mod holding;
mod in_progress;
mod remote;

pub use self::holding::SharedHold;
pub use self::in_progress::InProgressLimiter;
pub use self::remote::HoldingLimiter;
