//! Counters of the write-back mode.

use std::time::Duration;

/// The counts of a write-back limiter since it was built, and the units that it has not posted.
///
/// # Consistency
/// The counts are read one after another, key by key. The counts of concurrent requests may be included in part.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct WriteBackStats {
    /// Keys held in this process.
    pub keys: u64,
    /// Units that were admitted and are not known to be in the shared state. With several limits, the largest number.
    pub pending: u64,
    /// The age of the oldest pending unit, or `None` if no units are pending.
    pub oldest_pending: Option<Duration>,
    /// Posts that were sent, including repeated posts.
    pub posts: u64,
    /// Posts and other calls that were not answered.
    pub failures: u64,
    /// Units that exceeded the limit in the shared state when they were posted. This is this process's part of the
    /// over-admission of all processes.
    pub overshoot: u64,
    /// Units that will never be posted, because their window is over. With GCRA, the reason is that time has paid for
    /// them. If an answer was lost, some of them may be in the shared state.
    pub evicted_pending: u64,
}
