//! Token buckets that are refilled in batches: `limit` tokens at the end of each period, never above `burst`.

use super::{Oracle, Spec, first, signed};

/// A bucket whose periods start at the first take from a full bucket.
#[derive(Clone, Debug)]
pub struct Interval {
    batch: u128,
    period: u128,
    capacity: i128,
    /// The start of the periods, the number of periods that had ended at the last take, and the tokens left after it. A
    /// negative number of tokens is a debt.
    taken: Option<(u128, u128, i128)>,
}

impl Interval {
    pub fn new(spec: Spec) -> Self {
        Self {
            batch: spec.limit.into(),
            period: spec.period_ns.into(),
            capacity: spec.burst.into(),
            taken: None,
        }
    }

    fn view(&self, now: u128) -> (u128, u128, i128) {
        let full = (now, 0, self.capacity);
        let Some((origin, ended, left)) = self.taken else { return full };
        let ended_now = ended.max(now.saturating_sub(origin) / self.period);
        let tokens = left + signed((ended_now - ended) * self.batch);
        if tokens >= self.capacity { full } else { (origin, ended_now, tokens) }
    }
}

/// Returns the tokens at the time of a reservation, after `cost` is reserved. The batches before the turn are not added
/// yet. Tokens that these batches would add above the capacity are lost.
fn reserved(tokens: i128, cost: u64, batch: u128, capacity: i128) -> i128 {
    let (cost, batch) = (i128::from(cost), signed(batch));
    let coming = (cost - tokens).max(0).unsigned_abs().div_ceil(batch.unsigned_abs());
    let coming = signed(coming) * batch;
    capacity.min(tokens + coming) - cost - coming
}

impl Oracle for Interval {
    fn capacity(&self) -> u64 {
        super::narrow(self.capacity.unsigned_abs())
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        i128::from(cost) <= self.view(now).2
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let (origin, ended, tokens) = self.view(now);
        self.taken = Some((origin, ended, tokens - i128::from(cost)));
    }

    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let (origin, ended, tokens) = self.view(now);
        let back = (self.capacity - tokens).min(units.into());
        if back > 0 {
            self.taken = Some((origin, ended, tokens + back));
        }
        super::narrow(back.unsigned_abs())
    }

    fn reserve(&mut self, now: u128, cost: u64) {
        let (origin, ended, tokens) = self.view(now);
        self.taken = Some((origin, ended, reserved(tokens, cost, self.batch, self.capacity)));
    }

    fn most_in(&self, t: u128) -> u128 {
        self.capacity.unsigned_abs() + t.div_ceil(self.period) * self.batch
    }
}

/// A bucket whose batches arrive at `origin + k * period` for every whole `k`, independent of its first use.
#[derive(Clone, Debug)]
pub struct Aligned {
    batch: u128,
    period: u128,
    capacity: i128,
    origin: u64,
    /// Whether a new bucket starts with only the share of its first, partial period.
    adaptive: bool,
    /// The period of the last take and the tokens left then. A negative number of tokens is a debt.
    taken: Option<(i128, i128)>,
}

impl Aligned {
    pub fn new(spec: Spec, origin: u64) -> Self {
        Self {
            batch: spec.limit.into(),
            period: spec.period_ns.into(),
            capacity: spec.burst.into(),
            origin,
            adaptive: false,
            taken: None,
        }
    }

    pub fn adaptive(spec: Spec, origin: u64) -> Self {
        Self { adaptive: true, ..Self::new(spec, origin) }
    }

    fn since_origin(&self, now: u128) -> i128 {
        i128::try_from(now).expect("a time fits") - i128::from(self.origin)
    }

    fn period_signed(&self) -> i128 {
        i128::try_from(self.period).expect("a period fits")
    }

    fn index(&self, now: u128) -> i128 {
        self.since_origin(now).div_euclid(self.period_signed())
    }

    fn until_next_batch(&self, now: u128) -> u128 {
        self.period - self.since_origin(now).rem_euclid(self.period_signed()).unsigned_abs()
    }

    fn fresh(&self, now: u128) -> i128 {
        if self.adaptive {
            let share = signed(self.until_next_batch(now) * self.batch / self.period);
            self.capacity.min((self.capacity - signed(self.batch)).max(0) + share)
        } else {
            self.capacity
        }
    }

    fn view(&self, now: u128) -> (i128, i128) {
        let index = self.index(now);
        match self.taken {
            None => (index, self.fresh(now)),
            Some((last, left)) => {
                let index = index.max(last);
                let batches = (index - last).unsigned_abs();
                (index, self.capacity.min(left + signed(batches * self.batch)))
            }
        }
    }
}

impl Oracle for Aligned {
    fn capacity(&self) -> u64 {
        super::narrow(self.capacity.unsigned_abs())
    }

    fn admits(&self, now: u128, cost: u64) -> bool {
        i128::from(cost) <= self.view(now).1
    }

    fn charge(&mut self, now: u128, cost: u64) {
        let (index, tokens) = self.view(now);
        self.taken = Some((index, tokens - i128::from(cost)));
    }

    /// A bucket that was never used owes nothing, even if its share of the first period is not a full one.
    fn give_back(&mut self, now: u128, units: u64) -> u64 {
        let (index, tokens) = self.view(now);
        let back = (self.capacity - tokens).min(units.into());
        if back == 0 || self.taken.is_none() {
            return 0;
        }
        self.taken = Some((index, tokens + back));
        super::narrow(back.unsigned_abs())
    }

    fn reserve(&mut self, now: u128, cost: u64) {
        let (index, tokens) = self.view(now);
        self.taken = Some((index, reserved(tokens, cost, self.batch, self.capacity)));
    }

    fn most_in(&self, t: u128) -> u128 {
        self.capacity.unsigned_abs() + t.div_ceil(self.period) * self.batch
    }

    /// Tries only the times at which batches arrive. Between two batches a bucket gains no tokens, and an unused
    /// adaptive bucket even loses some.
    fn retry_after(&self, now: u64, cost: u64) -> Option<u128> {
        let now = u128::from(now);
        if cost > self.capacity() {
            return None;
        }
        if cost == 0 || self.admits(now, cost) {
            return Some(0);
        }
        let wait = |batch: u128| self.until_next_batch(now) + batch * self.period;
        let admitted = |batch| self.admits(now + wait(batch), cost);
        let mut horizon = 1;
        while !admitted(horizon) {
            horizon *= 2;
        }
        first(0, horizon, &admitted).map(wait)
    }
}
