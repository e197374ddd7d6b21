//! Ticks: the unit of time in a compact arrival time. This module chooses the length of a tick.
//!
//! A tick is a rational number of nanoseconds. The limiter's own emission interval is a whole number of ticks, so no
//! rate is ever rounded. The number of ticks per interval is a trade-off between three properties:
//!
//! - *Fineness.* A request is decided at the beginning of the tick that contains its time. If its time is a whole
//!   number of ticks, the decision is exact, ties included. Otherwise the request is treated as earlier, by less than a
//!   tick. The error does not accumulate: over any interval of length t at most `burst + (t + tick) / interval` units
//!   are admitted.
//! - *Range.* Arrival times are kept modulo 2⁴⁰ ticks. If a key returns after almost exactly 2⁴⁰ ticks, and no key used
//!   its slot in the meantime, its old word reads as a debt again. In every 2⁴⁰ ticks, this can happen only in one span
//!   as long as a full burst.
//! - *Preemption.* A thread that is stopped between its clock reading and its exchange must continue within half the
//!   range, which is at least a second.
//!
//! In the usual case, the module chooses more than 2¹⁹ and at most 2²⁰ ticks per full burst. A burst of more than 2¹¹
//! units may get more ticks, because every interval has at least 256 ticks. With 2²⁰ ticks per burst, the range is 2²⁰
//! bursts: two years at `10/60s`. Of the keys that return after a range or more, about one in a million is misread. Two
//! keys share a fingerprint about as often. (With 2²⁴ ticks per burst, the range is 45 days, and one key of a real
//! trace was misread.)
//!
//! Tables with one quota have two exceptions, for limits of bytes. (The intervals of other quotas are rounded up to whole
//! ticks, so they need 256.) Both admit at most one unit too many in any interval:
//!
//! - A burst and overdraft of together more than 2²⁵ units, up to 2³³, have one tick per unit. A unit is then less than 3 × 10⁻⁸ of both. With
//!   256 ticks per unit, a burst of 10⁹ units would have 2³⁸ ticks, and the range would be only four bursts. With one, it
//!   is a thousand bursts.
//! - A rate above 2³¹ a second has as many ticks per unit as keep half the range at a second, and at least one.
//!
//! Within these limits, the module tries the units 1 ns, 10 ns, 100 ns, … 1 s in this order, and takes the first unit
//! that can be a whole number of ticks. At `10/60s` a tick is 100 µs, and requests at whole milliseconds are decided
//! exactly.
//!
//! Times are rounded down, although rounding up would only deny more. With rounding up, a burst that is sent within one
//! tick would lose its last unit: the first unit would be charged from the next tick on, and the last unit, still in
//! the same tick, would find no room. Forty bits cannot distinguish this burst from one that began whole intervals ago.

use crate::base::multiply_high;

/// Bits of a state.
pub(crate) const STATE_BITS: u32 = 40;
/// The fewest ticks per emission interval, except for very large bursts and very high rates.
pub(crate) const MIN_TICKS: u64 = 256;
/// The largest burst whose intervals have [`MIN_TICKS`] ticks.
pub(crate) const FINE_BURST: u64 = MAX_HORIZON / MIN_TICKS;
/// The most ticks per full burst: half the range is 64 full bursts.
pub(crate) const MAX_HORIZON: u64 = 1 << (STATE_BITS - 7);
/// The number of ticks per full burst, if the interval is long enough.
const WANTED_HORIZON: u64 = 1 << 20;
const HALF_RANGE: u64 = 1 << (STATE_BITS - 1);
/// The most units a second: with one tick each, half the range is a second.
pub(crate) const MAX_RATE: u64 = HALF_RANGE;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// The number of ticks per nanosecond, as a fraction. Its constants make the conversion of a time exact and fast.
///
/// Let `M = ⌈rest × 2¹²⁸ / den⌉` and `rest = num mod den`. Then `⌊n × num / den⌋ = n × whole + ⌊n × M / 2¹²⁸⌋` for
/// every 64-bit n. Proof: M is too large by less than 1, so the product is too large by less than 2⁻⁶⁴. A fraction
/// whose denominator is below 2⁶⁴ is a whole number, or at least 2⁻⁶⁴ below the next one.
///
/// Most times need one multiplication: `⌊n × F / 2^(64 + s)⌋` with `F = ⌈2^(64 + s) × num / den⌉` of 64 bits. F is too
/// large by `e / den` with `e = F × den − 2^(64 + s) × num`. By the same argument, the result is exact while `n × e <
/// 2^(64 + s)`. If `num` is 1, this condition holds for all times until 2262 at least. For other values of `num`, it
/// may hold for no time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct TickRate {
    /// Times up to this one need only one multiplication, by `factor`.
    short_to: u64,
    factor: u64,
    shift: u32,
    num: u64,
    den: u64,
    whole: u64,
    high: u64,
    low: u64,
}

impl TickRate {
    /// Creates a rate of `num / den` ticks per nanosecond; `den` is not zero.
    pub(crate) const fn new(num: u64, den: u64) -> Self {
        let rest = (num % den) as u128;
        let (upper, left) = ((rest << 64) / den as u128, (rest << 64) % den as u128);
        let (lower, left) = ((left << 64) / den as u128, (left << 64) % den as u128);
        // At most rest × 2¹²⁸ / den + 1 <= 2¹²⁸ − 1, since rest < den.
        let magic = (upper << 64) + lower + (left > 0) as u128;
        #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
        let (high, low) = ((magic >> 64) as u64, magic as u64);
        let (short_to, factor, shift) = short(num, den, magic);
        Self { short_to, factor, shift, num, den, whole: num / den, high, low }
    }

    /// Returns the ticks that have passed at `ns`, rounded down, modulo 2⁶⁴.
    #[inline]
    pub(crate) const fn floor(&self, ns: u64) -> u64 {
        if ns <= self.short_to {
            return multiply_high(ns, self.factor) >> self.shift;
        }
        let low = (ns as u128 * self.low as u128) >> 64;
        // At most (2⁶⁴ − 1)² + 2⁶⁴ − 1 < 2¹²⁸.
        let high = (ns as u128 * self.high as u128 + low) >> 64;
        let fraction = high as u64;
        ns.wrapping_mul(self.whole).wrapping_add(fraction)
    }

    /// Returns the part that [`TickRate::floor`] cut off, in units of `1 / den` of a tick.
    #[inline]
    pub(crate) const fn remainder(&self, ns: u64, ticks: u64) -> u64 {
        // The result is below `den`, so it is right modulo 2⁶⁴.
        ns.wrapping_mul(self.num).wrapping_sub(ticks.wrapping_mul(self.den))
    }

    pub(crate) const fn num(&self) -> u64 {
        self.num
    }

    pub(crate) const fn den(&self) -> u64 {
        self.den
    }
}

/// Returns the constants of the conversion with one multiplication, and the last time for which it is exact. `magic` is
/// `⌈num × 2¹²⁸ / den⌉`. If a tick is not longer than a nanosecond, no time is converted in this way.
const fn short(num: u64, den: u64, magic: u128) -> (u64, u64, u32) {
    if num >= den {
        return (0, 0, 0);
    }
    // 2^shift < den / num, so the factor is below 2⁶⁴.
    let shift = ((den - 1) / num).ilog2();
    let factor = magic.div_ceil(1 << (64 - shift));
    let excess = factor * den as u128 - ((num as u128) << (64 + shift));
    let limit = match ((1_u128 << (64 + shift)) - 1).checked_div(excess) {
        Some(limit) if limit < u64::MAX as u128 => limit,
        _ => u64::MAX as u128,
    };
    #[expect(clippy::cast_possible_truncation, reason = "both are below 2^64")]
    let (limit, factor) = (limit as u64, factor as u64);
    (limit, factor, shift)
}

/// An interval of `num / den` nanoseconds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Interval {
    pub(crate) num: u64,
    pub(crate) den: u64,
}

/// A rate for the compact store: the exact interval of one unit, and the burst, which is the number of intervals that a
/// state may be ahead of now.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnitRate {
    pub(crate) interval: Interval,
    pub(crate) burst: u64,
}

/// The reason why a set of rates has no tick.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Unfit {
    /// The burst has too many intervals; at most `max` fit.
    Burst { max: u64 },
    /// The interval is too short: half the range would be less than a second. At most `max` units a second fit.
    Fast { max: u64 },
    /// The rates of one table are too far apart.
    Apart,
}

/// Chooses the ticks per interval of `own`, so that a state may be `room` units ahead, and so that the ticks can also count
/// every rate in `others`.
pub(crate) fn choose(own: UnitRate, room: u64, others: &[UnitRate]) -> Result<u64, Unfit> {
    let Interval { num, den } = own.interval;
    let (num, den) = (u128::from(num), u128::from(den));
    // The span of `times` intervals of `rate`, divided by the interval of `own`. Both are in nanoseconds, as fractions.
    let scaled = |rate: &UnitRate, times: u64| {
        (u128::from(rate.interval.num) * u128::from(times), num, u128::from(rate.interval.den), den)
    };
    let fewest = if others.is_empty() { 1 } else { MIN_TICKS };
    let mut most = match MAX_HORIZON / room {
        ticks if ticks < fewest => return Err(Unfit::Burst { max: MAX_HORIZON / fewest }),
        MIN_TICKS.. => u128::from(MAX_HORIZON / room),
        _ => 1,
    };
    // 2³⁹ × (interval / ticks) >= 1 s
    let by_range = u128::from(HALF_RANGE) * num / (u128::from(NANOS_PER_SEC) * den);
    if by_range < u128::from(fewest) {
        return Err(Unfit::Fast { max: MAX_RATE / fewest });
    }
    most = most.min(by_range);
    let mut least = most.min(u128::from(MIN_TICKS));
    for rate in others {
        if rate.burst > FINE_BURST {
            return Err(Unfit::Burst { max: FINE_BURST });
        }
        let (span, own_num, span_den, own_den) = scaled(rate, 1);
        // ticks × span / own >= 256, rounded up.
        least = least.max(ratio_ceil(MIN_TICKS, own_num, span_den, span, own_den));
        let (span, own_num, span_den, own_den) = scaled(rate, rate.burst);
        // ticks × span / own <= the longest horizon, less one tick per unit for rounding up.
        let room = MAX_HORIZON - rate.burst;
        most = most.min(ratio_floor(room, own_num, span_den, span, own_den));
    }
    if most < least {
        return Err(Unfit::Apart);
    }
    let wanted = u128::from((WANTED_HORIZON / own.burst).max(2 * MIN_TICKS)).max(least.saturating_mul(2));
    let most = most.min(wanted);
    for unit in units() {
        let step = num / gcd(num, unit);
        if step <= most {
            let ticks = most / step * step;
            if ticks >= least {
                return Ok(to_u64(ticks));
            }
        }
    }
    Ok(to_u64(most))
}

/// Returns `⌈count × (num × b) / (span × a)⌉`, saturating.
fn ratio_ceil(count: u64, num: u128, b: u128, span: u128, a: u128) -> u128 {
    let (top, bottom) = product_ratio(count, num, b, span, a);
    top.div_ceil(bottom)
}

/// Returns `⌊count × (num × b) / (span × a)⌋`, saturating.
fn ratio_floor(count: u64, num: u128, b: u128, span: u128, a: u128) -> u128 {
    let (top, bottom) = product_ratio(count, num, b, span, a);
    top / bottom
}

/// Returns the numerator and the denominator. The factors that `num` and `span` have in common are removed first, so
/// that both results fit. Both parts of an interval are below 2⁶³, and its denominator is at most 32.
fn product_ratio(count: u64, num: u128, b: u128, span: u128, a: u128) -> (u128, u128) {
    let common = gcd(num, span);
    let (num, span) = (num / common, span / common);
    let top = num.saturating_mul(b).saturating_mul(u128::from(count));
    (top, span.saturating_mul(a).max(1))
}

fn to_u64(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The powers of ten from 1 ns to 1 s, in nanoseconds.
fn units() -> impl Iterator<Item = u128> {
    (0..=9).map(|power| 10_u128.pow(power))
}

/// Returns the greatest common divisor.
pub const fn gcd(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn choose(own: UnitRate, others: &[UnitRate]) -> Result<u64, Unfit> {
        super::choose(own, own.burst, others)
    }

    fn rate(num: u64, den: u64, burst: u64) -> UnitRate {
        UnitRate { interval: Interval { num, den }, burst }
    }

    /// Common limits use the short conversion until 2043 at least.
    #[test]
    fn common_tick_conversions_are_short() {
        const SECOND: u64 = 1_000_000_000;
        for own in [
            rate(6 * SECOND, 1, 10),
            rate(60 * SECOND, 1, 60),
            rate(SECOND / 100, 1, 200),
            rate(60 * SECOND, 7, 7),
            rate(SECOND, 1, 1_000_000),
            rate(SECOND / 1_000, 1, 1_000),
            rate(86_400 * SECOND, 1, 1),
        ] {
            let ticks = u128::from(choose(own, &[]).unwrap()) * u128::from(own.interval.den);
            let common = gcd(ticks, own.interval.num.into());
            let rate = TickRate::new(to_u64(ticks / common), own.interval.num / to_u64(common));
            assert!(rate.short_to >= 73 * 365 * 86_400 * SECOND, "{own:?}: {rate:?}");
        }
        assert!(TickRate::new(1, 60 * SECOND).short_to >= u64::MAX / 2, "windows");
    }

    fn is_exact(rate: &TickRate, num: u64, den: u64, ns: u64) {
        let product = u128::from(ns) * u128::from(num);
        #[expect(clippy::cast_possible_truncation, reason = "modulo 2^64 is the claim")]
        let exact = (product / u128::from(den)) as u64;
        assert_eq!(rate.floor(ns), exact, "{ns} × {num}/{den}");
        assert_eq!(u128::from(rate.remainder(ns, exact)), product % u128::from(den), "{ns} × {num}/{den}");
    }

    /// Checks times around the last one for which the short conversion is exact.
    #[test]
    fn conversion_is_exact_at_short_limit() {
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let den = (seed >> 7 >> (seed & 31)).max(1);
            let rate = TickRate::new((seed >> 40) % 10_000 + 1, den);
            for near in [0, 1, 2, rate.den, rate.den.wrapping_mul(3)] {
                for ns in [rate.short_to.wrapping_sub(near), rate.short_to.wrapping_add(near)] {
                    is_exact(&rate, rate.num, rate.den, ns);
                }
            }
        }
    }

    // G5
    #[test]
    fn conversion_is_exact_for_every_time() {
        for (num, den) in [
            (1, 1),
            (1, 3),
            (7, 62_500),
            (1, 999_999_937),
            (25, 1),
            (u64::MAX, 3),
            (3, u64::MAX),
            (u64::MAX - 1, u64::MAX),
            (1 << 40, 86_400_000_000_001),
        ] {
            let rate = TickRate::new(num, den);
            let mut ns = 1_u64;
            for step in 0..2_000_u64 {
                for ns in [ns, ns.wrapping_mul(den), ns.wrapping_mul(den).wrapping_sub(1), u64::MAX - step] {
                    is_exact(&rate, num, den, ns);
                }
                ns = ns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step);
            }
        }
    }

    #[test]
    fn common_times_are_whole_ticks() {
        const MS: u64 = 1_000_000;
        for (name, rate, unit) in [
            ("10/60s", rate(6_000 * MS, 1, 10), MS),
            ("60/h", rate(60_000 * MS, 1, 60), 10 * MS),
            ("100/s burst 200", rate(10 * MS, 1, 200), 10_000),
            ("7/60s", rate(60_000 * MS, 7, 7), MS),
            ("5000/h", rate(720 * MS, 1, 5_000), 10 * MS),
            ("1/day", rate(86_400_000 * MS, 1, 1), 100 * MS),
        ] {
            let ticks = choose(rate, &[]).unwrap();
            let (num, den) = (u128::from(rate.interval.num), u128::from(rate.interval.den));
            assert!(ticks >= MIN_TICKS && ticks * rate.burst <= MAX_HORIZON, "{name}: {ticks}");
            // Ticks per `unit` nanoseconds.
            assert_eq!(u128::from(unit) * den * u128::from(ticks) % num, 0, "{name}: {ticks}");
        }
    }

    #[test]
    fn unfit_rates_are_errors() {
        let small = rate(1_000_000, 1, 1);
        let large = |burst| rate(1_000_000, 1, burst);
        assert_eq!(choose(large((1 << 33) + 1), &[]), Err(Unfit::Burst { max: 1 << 33 }));
        assert_eq!(choose(large((1 << 25) + 1), &[small]), Err(Unfit::Burst { max: 1 << 25 }));
        assert_eq!(choose(small, &[large((1 << 25) + 1)]), Err(Unfit::Burst { max: 1 << 25 }));
        assert!(choose(small, &[large(1 << 24)]).is_ok());
        // 2³¹ per second: slightly more than 15/32 ns per unit.
        assert_eq!(choose(rate(14, 32, 1), &[rate(15, 32, 1)]), Err(Unfit::Fast { max: 1 << 31 }));
        assert_eq!(choose(rate(1, 550, 1), &[]), Err(Unfit::Fast { max: 1 << 39 }));
        let (fast, slow) = (rate(1_000, 1, 1), rate(u64::MAX / 4, 1, 1));
        assert_eq!(choose(fast, &[slow]), Err(Unfit::Apart));
        assert_eq!(choose(slow, &[fast]), Err(Unfit::Apart));
        assert!(choose(rate(u64::MAX / 2, 1, 1), &[]).is_ok());
    }

    /// One quota alone may have fewer ticks per unit than 256, and never fewer than one.
    #[test]
    fn large_bursts_and_high_rates_have_few_ticks() {
        for (burst, ticks) in [(1 << 25, 256), ((1 << 25) + 1, 1), (1_000_000_000, 1), (1 << 33, 1)] {
            assert_eq!(choose(rate(1, 1, burst), &[]), Ok(ticks), "1/ns, burst {burst}");
        }
        // 2³⁹ ticks are at least a second.
        for (den, ticks) in [(2, 274), (4, 137), (32, 17), (500, 1)] {
            assert_eq!(choose(rate(1, den, 1_000), &[]), Ok(ticks), "{den} units a nanosecond");
        }
    }

    #[test]
    fn one_tick_fits_all_rates() {
        let (minute, second, day) =
            (rate(600_000_000, 1, 100), rate(10_000_000, 1, 1_000), rate(86_400_000_000, 1, 1_000));
        let ticks = choose(minute, &[second, day]).unwrap();
        // 60 intervals of the second rate per interval of the first.
        assert!(ticks / 60 >= MIN_TICKS, "{ticks}");
        assert!(ticks * 144 * 1_000 <= MAX_HORIZON, "{ticks}");
    }
}
