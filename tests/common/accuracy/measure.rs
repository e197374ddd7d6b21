//! Plays traffic to a limiter beside an oracle that knows every key.
//!
//! The oracle is GCRA in integers for each key. What is charged to it decides what an error is:
//!
//! - [`Charged::Admissions`]: all that the limiter admitted. A request deserves admission if what its key was really given
//!   leaves room for it. Right for denials. After one wrong admission all later ones of a busy key look wrong.
//! - [`Charged::Conforming`]: what it admitted and the oracle would have, as a policer does (ITU-T I.371): a unit too many
//!   is one error. Right for admissions. The same as the first where there are none too many.
//! - [`Charged::Deserved`]: what the oracle admits, whatever the limiter does. Counts a wrong denial twice: the limiter
//!   admits later what was saved up, when this oracle has none left.

use super::random::Seeded;
use super::traffic::{SEC, Traffic};
use tollgate::sketch::TatSketch;
use tollgate::{Capacity, Compact, Gcra, ManualClock, Overflow, RateLimiter, Timestamp};

/// What decides.
#[derive(Debug)]
pub(crate) enum Limiter {
    Store(Box<RateLimiter<Compact<Gcra, Seeded>, ManualClock>>),
    Sketch(Box<TatSketch>, Seeded),
}

impl Limiter {
    pub(crate) fn store(traffic: &Traffic, overflow: Overflow, capacity: Capacity) -> Self {
        let limiter = RateLimiter::builder(Gcra::new(traffic.quota()))
            .clock(ManualClock::new(Timestamp::from_secs(1)))
            .hasher(Seeded(0x5EED))
            .capacity(capacity)
            .overflow(overflow)
            .compact();
        Self::Store(Box::new(limiter.expect("fits")))
    }

    pub(crate) fn sketch(traffic: &Traffic, bytes: usize) -> Self {
        Self::Sketch(Box::new(TatSketch::try_new(traffic.quota(), bytes).expect("fits")), Seeded(0x5EED))
    }

    pub(crate) fn admits(&self, key: u64, now_ns: u64) -> bool {
        let now = Timestamp::from_nanos(now_ns);
        match self {
            Self::Store(limiter) => limiter.check_at(&key, 1, now).is_allowed(),
            Self::Sketch(sketch, hasher) => {
                sketch.check_at(std::hash::BuildHasher::hash_one(hasher, key), 1, now).is_allowed()
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Store(limiter) => limiter.state_bytes(),
            Self::Sketch(sketch, _) => sketch.state_bytes(),
        }
    }

    /// A tick, by which decisions can be early or late without any other key's doing. Times here are whole ticks of the
    /// store's, which then is neither.
    fn tick_ns(&self, traffic: &Traffic) -> u64 {
        match self {
            Self::Store(_) => 0,
            Self::Sketch(..) => (traffic.interval_ns() * traffic.burst).div_ceil(1024 - traffic.burst),
        }
    }
}

/// Decisions against an oracle's.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Errors {
    pub(crate) deserving: u64,
    /// Deserving, and denied.
    pub(crate) denied: u64,
    /// Of them, those that did not deserve it a tick earlier.
    pub(crate) late: u64,
    pub(crate) abusive: u64,
    /// Abusive, and admitted.
    pub(crate) admitted: u64,
    /// Of them, those that would have deserved it a tick later.
    pub(crate) early: u64,
}

impl Errors {
    /// Counts a decision on a request that deserves admission now, or did a tick earlier, or would a tick later.
    fn count(&mut self, [earlier, now, later]: [bool; 3], admitted: bool) {
        self.deserving += u64::from(now);
        self.abusive += u64::from(!now);
        self.denied += u64::from(now && !admitted);
        self.late += u64::from(now && !admitted && !earlier);
        self.admitted += u64::from(!now && admitted);
        self.early += u64::from(!now && admitted && later);
    }

    /// Wrong denials for want of room, of deserving requests.
    pub(crate) fn denied_share(&self) -> f64 {
        share(self.denied - self.late, self.deserving)
    }

    /// Denials that are late by less than a tick, of deserving requests.
    pub(crate) fn late_share(&self) -> f64 {
        share(self.late, self.deserving)
    }

    /// Wrong admissions, of abusive requests.
    pub(crate) fn admitted_share(&self) -> f64 {
        share(self.admitted - self.early, self.abusive)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of requests")]
fn share(part: u64, of: u64) -> f64 {
    part as f64 / of.max(1) as f64
}

/// What an oracle is charged; see the module's text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Charged {
    Admissions,
    Conforming,
    Deserved,
}

const CHARGED: [Charged; 3] = [Charged::Admissions, Charged::Conforming, Charged::Deserved];

/// What a run came to, after its warm-up.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Outcome {
    honest: [Errors; 3],
    pub(crate) flood: Errors,
    /// Keys that owed something, on average: by the law of live slots, what was admitted in a second times the interval.
    pub(crate) live: f64,
    pub(crate) bytes: usize,
}

impl Outcome {
    pub(crate) fn honest(&self, charged: Charged) -> Errors {
        self.honest[charged as usize]
    }

    /// Wrong denials for want of room, of all deserving requests.
    pub(crate) fn denied_share(&self) -> f64 {
        let (honest, flood) = (self.honest(Charged::Admissions), self.flood);
        share(honest.denied - honest.late + flood.denied, honest.deserving + flood.deserving)
    }

    /// Wrong admissions, of all abusive requests.
    pub(crate) fn admitted_share(&self) -> f64 {
        self.honest(Charged::Conforming).admitted_share()
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes of a small store")]
    pub(crate) fn bytes_a_key(&self) -> f64 {
        self.bytes as f64 / self.live
    }
}

/// GCRA: whether a key with this theoretical arrival time has room for a unit.
fn conforms(tat_ns: u64, now_ns: u64, interval_ns: u64, burst: u64) -> bool {
    tat_ns.max(now_ns) + interval_ns <= now_ns + interval_ns * burst
}

/// Plays `warm_up + measured` seconds of traffic.
pub(crate) fn play(traffic: &Traffic, limiter: &Limiter, seed: u64, warm_up: u64, measured: u64) -> Outcome {
    let (interval_ns, burst) = (traffic.interval_ns(), traffic.burst);
    let tick_ns = limiter.tick_ns(traffic);
    let bytes = limiter.bytes();
    // TATs of the three oracles.
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
    assert_eq!(limiter.bytes(), bytes, "the memory is what it was");
    #[expect(clippy::cast_precision_loss, reason = "minutes of traffic")]
    let live = admissions as f64 / measured as f64 * (interval_ns as f64 / SEC as f64);
    outcome.live = live;
    outcome
}
