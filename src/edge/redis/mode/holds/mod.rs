//! The limiters whose units are held: taken now, and settled later.
//!
//! | part | contents |
//! |---|---|
//! | `dispatch` | calls to the server, and what its replies mean |
//! | `in_progress` | limits on the requests in progress |

mod dispatch;
mod in_progress;

pub use self::in_progress::{BlockingInProgressLimiter, InProgressLimiter, SharedPermit};
