//! What is measured: subjects, how they are built, and what is asked of them.

use std::time::Duration;

use crate::support::length;

/// What every check of a turn must answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// All admitted: 1 in ten minutes for each key, and a burst that is never used up. Keys owe all along, as busy
    /// clients do.
    Allowed,
    /// All admitted: 1 M a second for each key and a large burst, so that where there are many keys each has paid
    /// back before it comes again. Stores that forget idle keys may forget it in between.
    AllowedIdle,
    /// All admitted: one word takes all checks of all rounds, some fifty million.
    AllowedWord,
    /// Limits that the priming check of each key has used up for an hour.
    Denied,
    /// 100 a minute, all at once if need be: keys that ask seldom are to be admitted, and a full store may deny some.
    Mostly,
    /// So many percent of the keys have used up their limit, and are denied; the others are admitted.
    Denying(u64),
}

/// What a subject is built for.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Setup {
    /// Distinct keys that there will be, or that there is to be room for.
    pub(crate) population: u64,
    pub(crate) expect: Expect,
}

/// A quota that every subject can express: `rate` units in each `period`, `burst` at once.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) rate: u32,
    pub(crate) period: Duration,
    pub(crate) burst: u32,
}

impl Expect {
    pub(crate) fn terms(self) -> Terms {
        match self {
            Self::Allowed => Terms { rate: 1, period: Duration::from_secs(600), burst: 10_000_000 },
            Self::AllowedIdle => Terms { rate: 1_000_000, period: Duration::from_secs(1), burst: 10_000_000 },
            Self::AllowedWord => {
                Terms { rate: 1_000_000, period: Duration::from_secs(1), burst: 1_000_000_000 }
            }
            Self::Denied => Terms { rate: 1, period: Duration::from_secs(3600), burst: 1 },
            Self::Mostly => Terms { rate: 100, period: Duration::from_secs(60), burst: 100 },
            // Small enough to be used up by checks, and more than the checks of all rounds take from one key.
            Self::Denying(_) => Terms { rate: 1, period: Duration::from_secs(600), burst: 20_000 },
        }
    }
}

impl Terms {
    /// The time for one unit.
    pub(crate) fn interval(self) -> Duration {
        self.period / self.rate
    }
}

/// One limiter under measurement.
pub(crate) trait Subject<K>: Sync {
    /// One check of cost 1: whether it was admitted.
    fn check(&self, key: &K) -> bool;

    /// Checks all of `keys` in order; how many were admitted. Only batch APIs override this.
    #[inline(always)]
    fn check_all(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from(self.check(key))).sum()
    }

    /// Keys that lost their place while they owed, up to now, if it is counted.
    fn evicted(&self) -> Option<u64> {
        None
    }
}

/// A [`Subject`] behind one dynamic call a turn.
pub(crate) trait Contender<K>: Sync {
    /// Runs `checks` checks over `keys`, again and again from the start; how many were admitted.
    fn run(&self, keys: &[K], checks: u64) -> u64;

    /// As [`Subject::evicted`].
    fn evicted(&self) -> Option<u64>;
}

impl<K, S: Subject<K>> Contender<K> for S {
    #[inline(never)]
    fn run(&self, keys: &[K], checks: u64) -> u64 {
        let mut left = length(checks);
        let mut admitted = 0;
        while left > 0 {
            let pass = &keys[..left.min(keys.len())];
            admitted += self.check_all(pass);
            left -= pass.len();
        }
        admitted
    }

    fn evicted(&self) -> Option<u64> {
        Subject::evicted(self)
    }
}

/// How to build a subject, and what its figure counts.
pub(crate) struct Recipe<K> {
    pub(crate) name: &'static str,
    pub(crate) counts: &'static str,
    pub(crate) build: fn(Setup) -> Box<dyn Contender<K>>,
}
