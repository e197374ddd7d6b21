//! The limiters whose units are held: taken now, and settled later.
//!
//! | part | contents |
//! |---|---|
//! | `dispatch` | calls to the server, and what its replies mean |
//! | `holding` | holds on the units of limits |
//! | `in_progress` | limits on the requests in progress |

mod dispatch;
mod holding;
mod in_progress;

pub use self::holding::{BlockingHoldingLimiter, HoldingLimiter, SharedHold};
pub use self::in_progress::{BlockingInProgressLimiter, InProgressLimiter, SharedPermit};
