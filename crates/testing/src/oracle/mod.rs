//! Slow, simple models of every algorithm, to compare the real ones with. They share no code with the library.
//!
//! Each oracle keeps its state in the form in which the algorithm is usually explained: a bucket of tokens, a list of
//! admission times, a count per window. The integers are wide enough that nothing rounds. Times of the bucket family
//! are fractions of a nanosecond with the quota's own denominator.
//!
//! An oracle answers two questions itself: whether a cost is admitted now, and what admitting it changes. Everything
//! else (the wait, the remaining units, the time until the debt is paid) follows from the first answer, by a search
//! for the smallest or largest value that is admitted.

mod bucket;
mod log;
mod refill;
mod window;

pub use bucket::{Bucket, Gcra, Meter, Queue};
pub use log::{Log, Spacing};
pub use refill::{Aligned, Interval};
pub use window::{Fixed, Sliding, Sub};

/// A quota in plain numbers: `limit` units every `period_ns`, and up to `burst` at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    pub limit: u64,
    pub period_ns: u64,
    pub burst: u64,
}

impl Spec {
    /// A quota whose burst is its limit.
    pub fn new(limit: u64, period_ns: u64) -> Self {
        Self { limit, period_ns, burst: limit }
    }

    pub fn with_burst(self, burst: u64) -> Self {
        Self { burst, ..self }
    }

    /// The emission interval `period / limit` as a reduced fraction of nanoseconds.
    pub fn interval(&self) -> (u128, u128) {
        let divisor = gcd(self.limit, self.period_ns);
        (u128::from(self.period_ns / divisor), u128::from(self.limit / divisor))
    }

    /// Returns whether a bucket decides this quota exactly. This requires that some `k` up to 32 emission intervals
    /// are a whole number of nanoseconds. If `k` is not 1, a burst must also take at most 2^61 of these fractions.
    pub fn is_exact(&self) -> bool {
        let (num, den) = self.interval();
        den == 1 || den <= 32 && num * u128::from(self.burst) <= 1 << 61
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The oracle's decision.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    Denied,
    Never,
}

/// Every oracle can be cloned.
pub trait Copied {
    /// Returns a copy of the current state.
    fn copy(&self) -> Box<dyn Oracle>;
}

impl<O: Oracle + Clone + 'static> Copied for O {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }
}

/// A limit on one key.
pub trait Oracle: Copied + std::fmt::Debug + Send {
    /// Returns the largest cost that is ever admitted.
    fn capacity(&self) -> u64;

    /// Returns whether `cost` (from 1 to the capacity) is admitted at `now`. Changes nothing.
    fn admits(&self, now: u128, cost: u64) -> bool;

    /// Charges an admitted `cost`.
    fn charge(&mut self, now: u128, cost: u64);

    /// Charges a `cost` without a check; units that do not conform become a debt. Returns the units charged.
    fn force(&mut self, now: u128, cost: u64) -> u64 {
        if cost > 0 {
            self.charge(now, cost);
        }
        cost
    }

    /// Charges a `cost` that goes at its conforming time, as if it were charged then and no other charge came before.
    fn reserve(&mut self, now: u128, cost: u64) {
        self.force(now, cost);
    }

    /// Takes back the last units that are owed, up to `units`. Returns their number, with a unit that was paid in part. The
    /// default takes back nothing.
    fn give_back(&mut self, _now: u128, _units: u64) -> u64 {
        0
    }

    /// Returns the most units that any closed interval of `t` nanoseconds can admit while time does not step back.
    fn most_in(&self, t: u128) -> u128;

    /// Returns the whole nanoseconds that an offer at `now` waits before it goes.
    fn delay(&self, _now: u128) -> u128 {
        0
    }

    fn peek(&self, now: u64, cost: u64) -> Verdict {
        if cost == 0 {
            Verdict::Allowed
        } else if cost > self.capacity() {
            Verdict::Never
        } else if self.admits(u128::from(now), cost) {
            Verdict::Allowed
        } else {
            Verdict::Denied
        }
    }

    fn offer(&mut self, now: u64, cost: u64) -> Verdict {
        let verdict = self.peek(now, cost);
        if verdict == Verdict::Allowed && cost > 0 {
            self.charge(u128::from(now), cost);
        }
        verdict
    }

    /// Returns the largest cost admitted at `now`.
    fn remaining(&self, now: u64) -> u64 {
        let now = u128::from(now);
        let capacity = u128::from(self.capacity());
        let refused = first(1, capacity, &|cost| !self.admits(now, narrow(cost)));
        narrow(refused.unwrap_or(capacity + 1) - 1)
    }

    /// Returns the smallest whole number of nanoseconds after which `cost` is admitted without other requests, or
    /// `None` if it never is.
    fn retry_after(&self, now: u64, cost: u64) -> Option<u128> {
        match cost {
            0 => Some(0),
            _ if cost > self.capacity() => None,
            _ => Some(self.conforms_after(now, cost)),
        }
    }

    /// [`Oracle::retry_after`] for a cost up to the capacity. A cost of 0 conforms when no more than the capacity is owed.
    fn conforms_after(&self, now: u64, cost: u64) -> u128 {
        let admitted = |wait| self.admits(u128::from(now) + wait, cost);
        let mut horizon = 1;
        while !admitted(horizon) {
            horizon *= 2;
        }
        first(0, horizon, &admitted).expect("the horizon is admitted")
    }

    /// Charges single units until one is denied. Returns their number.
    fn take_all(&mut self, now: u64) -> u64 {
        let mut taken = 0;
        while self.admits(now.into(), 1) {
            self.charge(now.into(), 1);
            taken += 1;
        }
        taken
    }

    /// Returns the smallest wait after which the whole capacity is available again.
    fn reset_after(&self, now: u64) -> u128 {
        self.retry_after(now, self.capacity()).expect("the capacity is admitted in the end")
    }
}

/// Returns the first of `low..=high` that satisfies `holds`. Once true, `holds` must stay true.
fn first(mut low: u128, high: u128, holds: &dyn Fn(u128) -> bool) -> Option<u128> {
    let mut end = high + 1;
    while low < end {
        let middle = low + (end - low) / 2;
        if holds(middle) {
            end = middle;
        } else {
            low = middle + 1;
        }
    }
    (low <= high).then_some(low)
}

fn signed(n: u128) -> i128 {
    i128::try_from(n).expect("times and rates stay far below 127 bits")
}

fn narrow(n: u128) -> u64 {
    u64::try_from(n).expect("a cost fits in 64 bits")
}

/// Returns how many adjoining spans of `span` nanoseconds a closed interval of `t` can touch.
fn touched(t: u128, span: u128) -> u128 {
    if t == 0 { 1 } else { (t - 1) / span + 2 }
}
