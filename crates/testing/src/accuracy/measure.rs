//! Plays traffic to a limiter and compares each decision with an oracle that knows every key.
//!
//! The oracle is GCRA in integers for each key. There are three ways to charge it, and the way decides what counts as
//! an error:
//!
//! - [`Charged::Admissions`]: the oracle is charged with all that the limiter admitted. A request deserves admission
//!   if the units that its key was really given leave room for it. This is right for denials. For admissions it is
//!   not: after one wrong admission, all later ones of a busy key look wrong.
//! - [`Charged::Conforming`]: the oracle is charged with what both the limiter and the oracle admit, as a policer
//!   does (ITU-T I.371). One unit too many is one error. This is right for admissions. Without wrong admissions it
//!   equals the first way.
//! - [`Charged::Deserved`]: the oracle is charged with what it admits itself, whatever the limiter does. This counts
//!   a wrong denial twice: later the limiter admits the units that it saved, when this oracle has none left.

use super::random::Seeded;
use super::traffic::{SEC, Traffic};
use tollgate::sketch::TatSketch;
use tollgate::{Capacity, Compact, Gcra, ManualClock, Overflow, RateLimiter, Timestamp};

/// The limiter under test.
#[derive(Debug)]
pub enum Limiter {
    Store(Box<RateLimiter<Compact<Gcra, Seeded>, ManualClock>>),
    Sketch(Box<TatSketch>, Seeded),
}

impl Limiter {
    pub fn store(traffic: &Traffic, overflow: Overflow, capacity: Capacity) -> Self {
        let limiter = RateLimiter::builder(Gcra::new(traffic.quota()))
            .clock(ManualClock::new(Timestamp::from_secs(1)))
            .hasher(Seeded(0x5EED))
            .capacity(capacity)
            .overflow(overflow)
            .compact();
        Self::Store(Box::new(limiter.expect("the quota fits")))
    }

    pub fn sketch(traffic: &Traffic, bytes: usize) -> Self {
        Self::Sketch(
            Box::new(TatSketch::try_new(traffic.quota(), bytes).expect("the quota fits")),
            Seeded(0x5EED),
        )
    }

    pub fn admits(&self, key: u64, now_ns: u64) -> bool {
        let now = Timestamp::from_nanos(now_ns);
        match self {
            Self::Store(limiter) => limiter.at(now).check(&key).is_allowed(),
            Self::Sketch(sketch, hasher) => {
                sketch.check_at(std::hash::BuildHasher::hash_one(hasher, key), 1, now).is_allowed()
            }
        }
    }

    pub fn bytes(&self) -> usize {
        match self {
            Self::Store(limiter) => limiter.state_bytes(),
            Self::Sketch(sketch, _) => sketch.state_bytes(),
        }
    }

    /// Returns a tick: by this much a decision may be early or late without the influence of other keys. The store
    /// returns 0, because the times here are whole ticks of the store.
    fn tick_ns(&self, traffic: &Traffic) -> u64 {
        match self {
            Self::Store(_) => 0,
            Self::Sketch(..) => (traffic.interval_ns() * traffic.burst).div_ceil(1024 - traffic.burst),
        }
    }
}

/// Counts of decisions that differ from the oracle's.
#[derive(Copy, Clone, Debug, Default)]
pub struct Errors {
    pub deserving: u64,
    /// Deserving requests that were denied.
    pub denied: u64,
    /// Requests in `denied` that deserved admission only for less than a tick.
    pub late: u64,
    pub abusive: u64,
    /// Abusive requests that were admitted.
    pub admitted: u64,
    /// Requests in `admitted` that would have deserved admission a tick later.
    pub early: u64,
}

impl Errors {
    /// Counts a decision. The flags say whether the request deserves admission a tick earlier, now, and a tick later.
    fn count(&mut self, [earlier, now, later]: [bool; 3], admitted: bool) {
        self.deserving += u64::from(now);
        self.abusive += u64::from(!now);
        self.denied += u64::from(now && !admitted);
        self.late += u64::from(now && !admitted && !earlier);
        self.admitted += u64::from(!now && admitted);
        self.early += u64::from(!now && admitted && later);
    }

    /// Returns the share of deserving requests that were denied because of other keys.
    pub fn denied_share(&self) -> f64 {
        share(self.denied - self.late, self.deserving)
    }

    /// Returns the share of deserving requests that were denied, but deserved admission only for less than a tick.
    pub fn late_share(&self) -> f64 {
        share(self.late, self.deserving)
    }

    /// Returns the share of abusive requests that were wrongly admitted.
    pub fn admitted_share(&self) -> f64 {
        share(self.admitted - self.early, self.abusive)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

/// What an oracle is charged with; see the module documentation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Charged {
    Admissions,
    Conforming,
    Deserved,
}

const CHARGED: [Charged; 3] = [Charged::Admissions, Charged::Conforming, Charged::Deserved];

/// The result of a run, without its warm-up.
#[derive(Copy, Clone, Debug, Default)]
pub struct Outcome {
    honest: [Errors; 3],
    pub flood: Errors,
    /// The average number of keys with a debt. By Little's law it is the admissions per second times the interval.
    pub live: f64,
    pub bytes: usize,
}

impl Outcome {
    pub fn honest(&self, charged: Charged) -> Errors {
        self.honest[charged as usize]
    }

    /// Returns the share of all deserving requests, the flood included, that were denied because of other keys.
    pub fn denied_share(&self) -> f64 {
        let (honest, flood) = (self.honest(Charged::Admissions), self.flood);
        share(honest.denied - honest.late + flood.denied, honest.deserving + flood.deserving)
    }

    /// Returns the share of all abusive requests that were wrongly admitted.
    pub fn admitted_share(&self) -> f64 {
        self.honest(Charged::Conforming).admitted_share()
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a small store")]
    pub fn bytes_a_key(&self) -> f64 {
        self.bytes as f64 / self.live
    }
}

/// Returns whether a key with this theoretical arrival time has room for one unit, by GCRA.
fn conforms(tat_ns: u64, now_ns: u64, interval_ns: u64, burst: u64) -> bool {
    tat_ns.max(now_ns) + interval_ns <= now_ns + interval_ns * burst
}

/// Plays `warm_up + measured` seconds of traffic.
pub fn play(traffic: &Traffic, limiter: &Limiter, seed: u64, warm_up: u64, measured: u64) -> Outcome {
    let (interval_ns, burst) = (traffic.interval_ns(), traffic.burst);
    let tick_ns = limiter.tick_ns(traffic);
    let bytes = limiter.bytes();
    // The arrival times of the three oracles, for each key.
    let mut tats = vec![[0_u64; 3]; traffic.keys as usize];
    let mut outcome = Outcome { bytes, ..Outcome::default() };
    let warm = warm_up * traffic.per_second();
    let mut admissions = 0_u64;
    for (number, request) in (0..).zip(traffic.requests(seed, warm_up + measured)) {
        let now_ns = request.now_ns;
        let admitted = limiter.admits(request.key, now_ns);
        let counted = number >= warm;
        admissions += u64::from(counted && admitted);
        let Some(index) = request.index else {
            if counted {
                outcome.flood.count([true; 3], admitted);
            }
            continue;
        };
        for ((tat_ns, errors), charged) in tats[index].iter_mut().zip(&mut outcome.honest).zip(CHARGED) {
            let deserves = conforms(*tat_ns, now_ns, interval_ns, burst);
            if counted {
                let deserves = [now_ns - tick_ns, now_ns, now_ns + tick_ns]
                    .map(|now_ns| conforms(*tat_ns, now_ns, interval_ns, burst));
                errors.count(deserves, admitted);
            }
            let charges = match charged {
                Charged::Admissions => admitted,
                Charged::Conforming => admitted && deserves,
                Charged::Deserved => deserves,
            };
            if charges {
                *tat_ns = (*tat_ns).max(now_ns) + interval_ns;
            }
        }
    }
    assert_eq!(limiter.bytes(), bytes, "the size of the limiter must not change");
    #[expect(clippy::cast_precision_loss, reason = "minutes of traffic")]
    let live = admissions as f64 / measured as f64 * (interval_ns as f64 / SEC as f64);
    outcome.live = live;
    outcome
}
