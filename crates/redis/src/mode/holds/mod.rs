//! The limiters whose units are held: taken now, and settled later.
//!
//! | part | contents |
//! |---|---|
//! | `remote` | the holds at the server: calls, and what its replies mean |
//! | `holding` | holds on the units of limits |
//! | `in_progress` | limits on the requests in progress |

mod holding;
mod in_progress;
mod remote;

pub use self::holding::{HoldingLimiter, SharedHold};
pub use self::in_progress::{InProgressLimiter, SharedPermit};
