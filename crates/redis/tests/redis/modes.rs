//! Limiters of all modes.

use std::sync::Arc;

use tollgate_redis::{
    AtomicLimiter, Client, Health, LeaseLimiter, LimiterBuilder, SharedDecision, WriteBackLimiter,
};

/// A limiter of any mode.
pub(crate) enum AnyMode {
    Atomic(AtomicLimiter),
    Leases(LeaseLimiter),
    WriteBack(WriteBackLimiter),
}

impl AnyMode {
    /// Builds one limiter of each mode. `builder` receives the name of the mode.
    pub(crate) fn all(builder: impl Fn(&str) -> LimiterBuilder<Client>) -> [Self; 3] {
        [
            Self::Atomic(builder("atomic").atomic().unwrap()),
            Self::Leases(builder("leases").leases().build().unwrap()),
            Self::WriteBack(builder("write-back").write_back().build().unwrap()),
        ]
    }

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Atomic(_) => "atomic",
            Self::Leases(_) => "leases",
            Self::WriteBack(_) => "write-back",
        }
    }

    pub(crate) async fn check(&self, key: &str) -> SharedDecision {
        match self {
            Self::Atomic(limiter) => limiter.check(key).await,
            Self::Leases(limiter) => limiter.check_async(key).await,
            Self::WriteBack(limiter) => limiter.check_async(key).await,
        }
    }

    pub(crate) fn health(&self) -> Health {
        match self {
            Self::Atomic(limiter) => limiter.health(),
            Self::Leases(limiter) => limiter.health(),
            Self::WriteBack(limiter) => limiter.health(),
        }
    }

    pub(crate) fn health_by_server(&self) -> Vec<(Arc<str>, Health)> {
        match self {
            Self::Atomic(limiter) => limiter.health_by_server(),
            Self::Leases(limiter) => limiter.health_by_server(),
            Self::WriteBack(limiter) => limiter.health_by_server(),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Atomic(_) => {}
            Self::Leases(limiter) => limiter.close().await,
            Self::WriteBack(limiter) => drop(limiter.close().await),
        }
    }
}
