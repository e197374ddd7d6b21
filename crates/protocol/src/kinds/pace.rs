//! GCRA, as whole numbers of ticks.
//!
//! *GCRA.* The state is a time in microseconds, and the distance from this time to the theoretical arrival time, in
//! ticks. A microsecond has `scale` ticks, so that an emission interval is a whole number of ticks.
//!
//! 1. `scale` is the smallest whole number that makes the interval exact, if a full burst then takes at most 2^46 ticks:
//!    7 a minute has 7 ticks in a microsecond, and an interval of 60,000,000 ticks. So a burst that refills in a whole
//!    number of microseconds is back at exactly this microsecond.
//! 2. Otherwise `scale` is a power of two: the smallest that makes the interval exact. If there is none, it is the largest
//!    at which a full burst takes at most 2^46 ticks.
//! 3. Intervals are rounded up, so the rate is never higher than the quota's rate.
//! 4. The rate is lower by at most one part in `interval`: one in 2^25, for bursts of up to 2^20 and rates of up to 32
//!    a microsecond. A quota with an error above one in a thousand is rejected.
//! 5. There is room for a debt of 63 bursts, or of one burst if a burst takes 2^51 ticks. Bursts of up to 2^46 ticks
//!    keep that room, so rule 1 does not go beyond them.
//!
//! *Blocks.* A block is a whole number of microseconds. Its ticks and those of a burst together are at most 2^51, so a long
//! block can need a smaller `scale` than its quota alone.

use tollgate::internals::gcd;
use tollgate::{Quota, QuotaError};

use crate::exact::{MOST, above};

/// The preferred maximum number of ticks of a burst.
const ROOMY: u64 = 1 << 46;
/// The largest `scale`, as an exponent of two: 2^30 ticks in a microsecond. So intervals of 1/32 ns are distinct to one
/// part in 30,000.
const MOST_SHIFT: u32 = 30;
/// The error of a rate is at most one part in this number.
const FINE: u128 = 1_000;

/// The numbers with which the script counts GCRA, in ticks.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Ticks for one unit, at least 1.
    pub interval: u64,
    /// Ticks in a microsecond, at least 1.
    pub scale: u64,
    /// Ticks for a full burst.
    pub capacity: u64,
}

impl Pace {
    pub(crate) fn new(quota: &Quota) -> Result<Self, QuotaError> {
        Self::with_room(quota, 0)
    }

    /// Returns the numbers if a burst and this time together are below the maximum number of ticks.
    pub(crate) fn with_room(quota: &Quota, room_us: u64) -> Result<Self, QuotaError> {
        // The ticks of a unit at a scale, and whether they are exact or close enough.
        let at = |shift: u32| {
            let (period, limit) = (u128::from(quota.period_ns()) << shift, u128::from(quota.limit()) * 1_000);
            let interval = period.div_ceil(limit);
            let (over, exact) = (interval * limit - period, period % limit == 0);
            (interval, exact, over * FINE <= period)
        };
        let burst = u128::from(quota.burst_size());
        let fits =
            |shift: u32, most: u64| at(shift).0 * burst + (u128::from(room_us) << shift) <= u128::from(most);
        let made = |shift: u32, interval: u128| {
            // The caller has checked that the value is at most `MOST`, so this conversion does not fail.
            let interval = u64::try_from(interval).unwrap_or(MOST);
            Self { interval, scale: 1 << shift, capacity: interval * quota.burst_size() }
        };
        let has_room = |pace: &Self| pace.capacity.saturating_add(pace.scale.saturating_mul(room_us)) <= MOST;
        if let Some(exact) = Self::exact(quota).filter(has_room) {
            return Ok(exact);
        }
        let scales = 0..=MOST_SHIFT;
        let exact = scales.clone().find(|&shift| at(shift).1).filter(|&shift| fits(shift, MOST));
        let roomy = || {
            let largest = scales.clone().rev().find(|&shift| fits(shift, ROOMY));
            largest.filter(|&shift| at(shift).2)
        };
        let near = || scales.clone().find(|&shift| at(shift).2).filter(|&shift| fits(shift, MOST));
        if let Some(shift) = exact.or_else(roomy).or_else(near) {
            return Ok(made(shift, at(shift).0));
        }
        let interval = scales.clone().map(at).find(|scale| scale.2).map_or(u128::MAX, |scale| scale.0);
        let max = u64::try_from(u128::from(MOST) / interval).unwrap_or(u64::MAX);
        Err(above("GCRA", quota, "burst", max))
    }

    /// Returns the quota without rounding, if its numbers are small enough.
    fn exact(quota: &Quota) -> Option<Self> {
        let (period, limit) = (u128::from(quota.period_ns()), u128::from(quota.limit()) * 1_000);
        let common = gcd(period, limit);
        let interval = u64::try_from(period / common).ok()?;
        let scale = u64::try_from(limit / common).ok().filter(|scale| *scale <= 1 << MOST_SHIFT)?;
        let capacity = interval.checked_mul(quota.burst_size()).filter(|capacity| *capacity <= ROOMY)?;
        Some(Self { interval, scale, capacity })
    }

    /// The units left.
    pub(crate) const fn left(&self, ahead: u64) -> u64 {
        self.capacity.saturating_sub(ahead) / self.interval
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn smallest_scale_makes_interval_exact() {
        for (quota, interval, scale) in [
            (Quota::per_minute(10), 6_000_000, 1),
            (Quota::per_second(1_000_000), 1, 1),
            (Quota::per_second(4_000_000), 1, 4),
            (Quota::per_second(64), 15_625, 1),
            (Quota::per_second(128), 15_625, 2),
            (Quota::per_minute(7), 60_000_000, 7),
            (Quota::per_hour(19_541), 3_600_000_000, 19_541),
            (Quota::per_second(3_000_000), 1, 3),
        ] {
            let expected = Pace { interval, scale, capacity: interval * quota.burst_size() };
            assert_eq!(Pace::new(&quota).unwrap(), expected, "{quota}");
        }
    }

    // G74
    #[test]
    fn rate_error_is_bounded() {
        let bursts = [1, 2, 1_000, 999_999, 1 << 31];
        let limits = [1, 3, 7, 999, 1_000_003, 31_999_999_999, 32_000_000_000];
        for limit in limits {
            for burst in bursts {
                for period in [1_000_000_000, 60_000_000_000, 86_400_000_000_000] {
                    let Ok(quota) = Quota::try_new(limit, Duration::from_nanos(period)) else { continue };
                    let Ok(quota) = quota.try_burst(burst) else { continue };
                    let Ok(pace) = Pace::new(&quota) else {
                        let longest = u128::from(period) * u128::from(burst) / u128::from(limit);
                        assert!(longest > 1 << 50, "{quota} was rejected");
                        continue;
                    };
                    let asked = u128::from(period) * u128::from(pace.scale);
                    let got = u128::from(pace.interval) * u128::from(limit) * 1_000;
                    assert!(got >= asked && (got - asked) * 1_000 <= asked, "{quota}: {pace:?}");
                    if burst < 1_000_000 && limit <= 32_000_000 && pace.capacity <= ROOMY {
                        assert!((got - asked) << 25 <= asked, "{quota}: {pace:?}");
                    }
                    assert!(pace.capacity <= MOST && (1..=1 << MOST_SHIFT).contains(&pace.scale));
                    let is_small = burst <= 814 * 86_400_000_000_000 / period && limit <= 1_000_003;
                    assert!(!is_small || got == asked, "{quota}: {pace:?}");
                }
            }
        }
    }
}
