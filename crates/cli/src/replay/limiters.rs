//! The limiters of a replay, over any store, at the trace's own times.

use std::time::Duration;

use tollgate::joint::AllOf;
use tollgate::stores::AnyStore;
use tollgate::{
    Adjustable, Algorithm, Compact, CompactAlgorithm, Keyed, ManualClock, RateLimiter, Sketch, Timestamp,
    WindowAlgorithm,
};

use crate::input::Record;

pub type Hasher = ahash::RandomState;

pub type KeyedLimiter<A> = RateLimiter<Keyed<u32, A, Hasher>, ManualClock>;

/// The denial of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Denial {
    /// The index of the limiter that denied it; if several denied it, the one with the longest wait.
    pub by: usize,
    /// The wait; `None` if the request can never be admitted.
    pub wait: Option<Duration>,
}

/// A limiter of numbered keys, over any store.
pub trait NumberLimiter: Sized {
    /// Admits a request and charges it to every limiter, or denies it and charges none.
    fn decide(limiters: &[Self], record: &Record) -> Result<(), Denial>;

    /// Returns the bytes of the states.
    fn bytes(&self) -> usize;
}

macro_rules! number_limiter {
    ([$($of:tt)*] $store:ty) => {
        impl<$($of)*> NumberLimiter for RateLimiter<$store, ManualClock> {
            fn decide(limiters: &[Self], &Record { at, cost, ref key }: &Record) -> Result<(), Denial> {
                let now = Timestamp::from_nanos(at);
                // A single limit is checked directly, which is faster; several limits are checked together.
                let (by, wait) = if let [limiter] = limiters {
                    let decision = limiter.at(now).check_n(key, cost);
                    (decision.is_denied().then_some(0), decision.retry_after())
                } else {
                    let limits: Vec<_> = limiters.iter().map(|limiter| limiter.on(key).cost(cost)).collect();
                    let decision = AllOf::new(&limits[..]).at(now).check();
                    (decision.denied_by(), decision.retry_after())
                };
                by.map_or(Ok(()), |by| Err(Denial { by, wait }))
            }

            fn bytes(&self) -> usize {
                self.state_bytes()
            }
        }
    };
}

number_limiter!([A: Algorithm] Keyed<u32, A, Hasher>);
number_limiter!([A: CompactAlgorithm] Compact<A, Hasher>);
number_limiter!([A: WindowAlgorithm] Sketch<A, Hasher>);
number_limiter!([] Adjustable<AnyStore<u32, Hasher>>);

/// Keys are the program's own small numbers, which no client chooses. Fixed seeds make runs repeatable.
pub fn hasher() -> Hasher {
    Hasher::with_seeds(1, 2, 3, 4)
}

/// Keyed limiters. Every check is given its time, so the clock is never read; a manual clock is free to create.
pub fn keyed<A: Algorithm>(algorithms: Vec<A>) -> Vec<KeyedLimiter<A>> {
    let build =
        |algorithm| RateLimiter::builder(algorithm).clock(ManualClock::default()).hasher(hasher()).keyed();
    algorithms.into_iter().map(build).collect()
}
