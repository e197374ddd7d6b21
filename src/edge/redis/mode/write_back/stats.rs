//! What is counted.

use std::time::Duration;

/// What a write-back limiter has counted since it was made, and what it has not posted.
///
/// # Consistency
/// Counts are read one after another, key by key, so those of requests that are being decided may be there in part.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct WriteBackStats {
    /// Keys that are held.
    pub keys: u64,
    /// Units that were let through and are not known to be in the shared state. Of several limits, the most.
    pub pending: u64,
    /// How long the oldest of them has waited; `None` if there are none.
    pub oldest_pending: Option<Duration>,
    /// Posts that were sent, those included that were sent again.
    pub posts: u64,
    /// Posts and questions that were not answered.
    pub failures: u64,
    /// Units that were in the shared state beyond the limit when posted: what all processes let through too much, of which this is
    /// this process's part.
    pub overshoot: u64,
    /// Units that will never be posted: their window was over, or by GCRA they have been paid by time since. Some of them may be in the
    /// shared state, if an answer was lost.
    pub evicted_pending: u64,
}
