//! A limiter at a time that the caller gives.

use tollgate::Timestamp;

/// A limiter at a given time. Created by [`AtomicLimiter::at`](crate::AtomicLimiter::at) and
/// [`LeaseLimiter::at`](crate::LeaseLimiter::at).
///
/// Each method decides as the limiter's method with the same name does, but at this time instead of the clock's time.

#[derive(Debug)]
pub struct LimiterAt<'l, L> {
    pub(super) limiter: &'l L,
    pub(super) now: Timestamp,
}

impl<L> Clone for LimiterAt<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for LimiterAt<'_, L> {}
