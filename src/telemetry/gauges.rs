//! Reports how full a limiter is, under metric names.

use std::hash::{BuildHasher, Hash};

use crate::algorithm::{Algorithm, CompactAlgorithm, WindowAlgorithm};
use crate::base::clock::Clock;
use crate::limiter::RateLimiter;
use crate::store::{Adjustable, AnyStore, Compact, Gauges, Keyed, Saturation, Sketch};

/// One reading of a limiter.
#[derive(Copy, Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum Reading {
    /// A current value.
    Gauge(&'static str, f64),
    /// A count since the store was created. It is published as a gauge, because some reloads create a new store for a
    /// rule, and the count then restarts at zero.
    Counter(&'static str, u64),
}

impl Reading {
    /// Returns the metric's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Gauge(name, _) | Self::Counter(name, _) => name,
        }
    }
}

pub(super) const KEYS: &str = "tollgate_keys";
pub(super) const SLOTS: &str = "tollgate_slots";
pub(super) const EVICTIONS: &str = "tollgate_evictions";
pub(super) const DEBT_DENIALS: &str = "tollgate_debt_denials";
pub(super) const FALSE_POSITIVE: &str = "tollgate_sketch_false_positive_estimate";
pub(super) const ERROR: &str = "tollgate_sketch_estimated_error";
pub(super) const FALSE_DENIAL: &str = "tollgate_sketch_false_denial_estimate";

/// A limiter that reports how full it is.
///
/// # Examples
/// ```
/// use tollgate::telemetry::{Reading, Readings};
/// use tollgate::{Gcra, Quota, RateLimiter};
///
/// let limiter = RateLimiter::builder(Gcra::new(Quota::per_minute(10))).keyed::<u32>();
/// let _ = limiter.check(&7);
/// assert_eq!(limiter.readings(), [Reading::Gauge("tollgate_keys", 1.0)]);
/// ```
pub trait Readings {
    /// Returns the current readings.
    ///
    /// # Complexity
    /// O(slots) for compact limiters. Call it when metrics are scraped, not for each request.
    fn readings(&self) -> Vec<Reading>;
}

#[expect(clippy::cast_precision_loss, reason = "a gauge; exact below 2^53 keys")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Returns the readings of a store that supports some of these. `keys` is the number of stored keys.
pub fn readings_of(
    keys: Option<usize>,
    gauges: Option<Gauges>,
    saturation: Option<Saturation>,
) -> Vec<Reading> {
    let mut readings = Vec::from_iter(keys.map(|keys| Reading::Gauge(KEYS, count(keys))));
    if let Some(gauges) = gauges {
        readings.extend([
            Reading::Gauge(SLOTS, count(gauges.slots)),
            Reading::Counter(EVICTIONS, gauges.evicted),
            Reading::Counter(DEBT_DENIALS, gauges.denied_for_debt),
        ]);
    }
    if let Some(saturation) = saturation {
        readings.extend([
            Reading::Gauge(FALSE_POSITIVE, saturation.false_positive),
            Reading::Gauge(ERROR, saturation.overcounted),
            Reading::Gauge(FALSE_DENIAL, saturation.denied),
        ]);
    }
    readings
}

impl<A: CompactAlgorithm, H: BuildHasher, C: Clock> Readings for RateLimiter<Compact<A, H>, C> {
    fn readings(&self) -> Vec<Reading> {
        readings_of(Some(self.live_slots()), Some(self.gauges()), None)
    }
}

impl<A: CompactAlgorithm, H: BuildHasher + Clone, C: Clock> Readings
    for RateLimiter<Adjustable<Compact<A, H>>, C>
{
    fn readings(&self) -> Vec<Reading> {
        readings_of(Some(self.live_slots()), Some(self.gauges()), None)
    }
}

impl<K, A, H, C> Readings for RateLimiter<Keyed<K, A, H>, C>
where
    K: Hash + Eq + Send + Sync + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    fn readings(&self) -> Vec<Reading> {
        readings_of(Some(self.len()), None, None)
    }
}

impl<K, C, H> Readings for RateLimiter<Adjustable<AnyStore<K, H>>, C>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    C: Clock,
    H: BuildHasher + Clone,
{
    fn readings(&self) -> Vec<Reading> {
        readings_of(self.keys(), self.gauges(), self.saturation())
    }
}

impl<A: WindowAlgorithm, H: BuildHasher, C: Clock> Readings for RateLimiter<Sketch<A, H>, C> {
    fn readings(&self) -> Vec<Reading> {
        readings_of(None, None, Some(self.saturation()))
    }
}
