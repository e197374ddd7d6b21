//! The bucket family: four descriptions of one limit, each modelled in its own terms.
//!
//! The emission interval is `num / den` nanoseconds. Times are therefore counted in units of `1 / den` ns, and an
//! interval is `num` of them. A time before the last charge continues the same line backwards: the bucket is emptier,
//! the level is higher, and the head of the queue is further away.

use super::{Oracle, Spec, narrow, signed};

fn steady(burst: u64, num: u128, den: u128, t: u128) -> u128 {
    u128::from(burst) + t * den / num
}

/// The generic cell rate algorithm: virtual scheduling with a theoretical arrival time.
#[derive(Clone, Debug)]
pub struct Gcra {
    num: u128,
    den: u128,
    burst: u64,
    arrival: u128,
}

impl Gcra {
    pub fn new(spec: Spec) -> Self {
        let (num, den) = spec.interval();
        Self { num, den, burst: spec.burst, arrival: 0 }
    }

    /// Decides under this quota from now on. Its interval must be in the same fractions of a nanosecond.
    pub fn set(&mut self, spec: Spec) {
        let (num, den) = spec.interval();
        assert_eq!(den, self.den, "the arrival time is in fractions of this size");
        (self.num, self.burst) = (num, spec.burst);
    }

    fn after(&self, now: u128, cost: u64) -> u128 {
        self.arrival.max(now * self.den) + u128::from(cost) * self.num
    }
}

impl Oracle for Gcra {
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        self.after(now, cost) <= now * self.den + u128::from(self.burst) * self.num
    }

    fn charge(&mut self, now: u128, cost: u64) {
        self.arrival = self.after(now, cost);
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let back = self.arrival.saturating_sub(now * self.den).min(u128::from(units) * self.num);
        self.arrival -= back;
        narrow(back.div_ceil(self.num))
    }

    fn most_in(&self, t: u128) -> u128 {
        steady(self.burst, self.num, self.den, t)
    }
}

/// A bucket that is refilled continuously. One token is `num` drops, and `den` drops are added each nanosecond.
#[derive(Clone, Debug)]
pub struct Bucket {
    num: i128,
    den: i128,
    burst: u64,
    /// The time of the last take and the drops left then. A bucket that was never used is full.
    taken: Option<(i128, i128)>,
}

impl Bucket {
    pub fn new(spec: Spec) -> Self {
        let (num, den) = spec.interval();
        Self { num: signed(num), den: signed(den), burst: spec.burst, taken: None }
    }

    fn drops(&self, now: i128) -> i128 {
        let full = i128::from(self.burst) * self.num;
        match self.taken {
            None => full,
            Some((last, left)) => full.min(left + (now - last) * self.den),
        }
    }
}

impl Oracle for Bucket {
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        i128::from(cost) * self.num <= self.drops(signed(now))
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let now = signed(now);
        self.taken = Some((now, self.drops(now) - i128::from(cost) * self.num));
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let (now, full) = (signed(now), i128::from(self.burst) * self.num);
        let back = (full - self.drops(now)).min(i128::from(units) * self.num);
        if back > 0 {
            self.taken = Some((now, self.drops(now) + back));
        }
        narrow(back.unsigned_abs().div_ceil(self.num.unsigned_abs()))
    }

    fn most_in(&self, t: u128) -> u128 {
        steady(self.burst, self.num.unsigned_abs(), self.den.unsigned_abs(), t)
    }
}

/// A leaky bucket: each unit adds `num` drops, `den` drops leak each nanosecond, and the bucket must not overflow.
#[derive(Clone, Debug)]
pub struct Meter {
    num: i128,
    den: i128,
    burst: u64,
    level: i128,
    poured: i128,
}

impl Meter {
    pub fn new(spec: Spec) -> Self {
        let (num, den) = spec.interval();
        Self { num: signed(num), den: signed(den), burst: spec.burst, level: 0, poured: 0 }
    }

    fn level(&self, now: i128) -> i128 {
        if self.level == 0 { 0 } else { (self.level - (now - self.poured) * self.den).max(0) }
    }
}

impl Oracle for Meter {
    fn capacity(&self) -> u64 {
        self.burst
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        self.level(signed(now)) + i128::from(cost) * self.num <= i128::from(self.burst) * self.num
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let now = signed(now);
        self.level = self.level(now) + i128::from(cost) * self.num;
        self.poured = now;
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let level = self.level(signed(now));
        let back = level.min(i128::from(units) * self.num);
        if back > 0 {
            (self.level, self.poured) = (level - back, signed(now));
        }
        narrow(back.unsigned_abs().div_ceil(self.num.unsigned_abs()))
    }

    fn most_in(&self, t: u128) -> u128 {
        steady(self.burst, self.num.unsigned_abs(), self.den.unsigned_abs(), t)
    }
}

/// A queue that serves one unit per interval. A unit keeps its place until one interval after it went.
#[derive(Clone, Debug)]
pub struct Queue {
    num: u128,
    den: u128,
    places: u64,
    /// The current run of service without a pause: the time of its first unit, and its number of units.
    run: Option<(u128, u128)>,
}

impl Queue {
    pub fn new(spec: Spec) -> Self {
        let (num, den) = spec.interval();
        Self { num, den, places: spec.burst, run: None }
    }

    /// Returns the units in the queue, including the unit of the current interval.
    fn held(&self, now: u128) -> u128 {
        let now = now * self.den;
        match self.run {
            None => 0,
            Some((start, units)) if start > now => units + (start - now).div_ceil(self.num),
            Some((start, units)) => units.saturating_sub((now - start) / self.num),
        }
    }

    fn departure(&self, now: u128) -> u128 {
        let now = now * self.den;
        self.run.map_or(now, |(start, units)| now.max(start + units * self.num))
    }
}

impl Oracle for Queue {
    fn capacity(&self) -> u64 {
        self.places
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        self.held(now) + u128::from(cost) <= u128::from(self.places)
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let departure = self.departure(now);
        let cost = u128::from(cost);
        self.run = match self.run {
            Some((start, units)) if start + units * self.num == departure => Some((start, units + cost)),
            _ => Some((departure, cost)),
        };
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let departure = self.departure(now);
        let back = (departure - now * self.den).min(u128::from(units) * self.num);
        if back > 0 {
            self.run = Some((departure - back, 0));
        }
        narrow(back.div_ceil(self.num))
    }

    fn most_in(&self, t: u128) -> u128 {
        steady(self.places, self.num, self.den, t)
    }

    fn delay(&self, now: u128) -> u128 {
        (self.departure(now) - now * self.den).div_ceil(self.den)
    }
}
