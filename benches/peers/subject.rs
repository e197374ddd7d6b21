//! The subjects of the measurements: how to build them, and which answers their checks must give.

use std::time::Duration;

use crate::support::length;

/// The answers that the checks of a turn must give.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// All checks are admitted: 1 unit in ten minutes per key, and a burst that is never used up. Every key has a debt
    /// all the time, like the key of a busy client.
    Allowed,
    /// All checks are admitted: 1 M units a second per key and a large burst. With many keys, a key's debt has expired
    /// before the next check of that key. Stores that forget idle keys may forget the key in between.
    AllowedIdle,
    /// All checks are admitted. The checks of all rounds, about fifty million, charge one word.
    AllowedWord,
    /// All checks are denied: the first check of each key used up its limit for an hour.
    Denied,
    /// 100 units a minute, with a burst of 100. Keys with few requests should be admitted, but a full store may deny
    /// some.
    Mostly,
    /// 1 unit a minute, with a burst of 60.
    Spent,
    /// This percentage of the keys have used up their limits and are denied. The other keys are admitted.
    Denying(u64),
}

/// The parameters of a subject.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Setup {
    /// The number of distinct keys, or the number that the store must have room for.
    pub(crate) population: u64,
    pub(crate) expect: Expect,
}

/// A quota that every subject can express: `rate` units per `period`, and at most `burst` at once.
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
            Self::Spent => Terms { rate: 1, period: Duration::from_secs(60), burst: 60 },
            // Before the rounds, the harness uses up this burst for each key that must be denied. Any other key gets
            // fewer checks than this in all rounds.
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
    /// Makes one check of cost 1. Returns whether it was admitted.
    fn check(&self, key: &K) -> bool;

    /// Checks all `keys` in order. Returns how many were admitted. Only batch APIs override this.
    #[inline(always)]
    fn check_all(&self, keys: &[K]) -> u64 {
        keys.iter().map(|key| u64::from(self.check(key))).sum()
    }

    /// Returns the number of evicted keys with a debt, if the limiter counts them.
    fn evicted(&self) -> Option<u64> {
        None
    }
}

/// A [`Subject`] behind one dynamic call per turn.
pub(crate) trait Contender<K>: Sync {
    /// Makes `checks` checks, and starts again from the first key after the last. Returns how many were admitted.
    fn run(&self, keys: &[K], checks: u64) -> u64;

    /// Like [`Subject::evicted`].
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

/// How to build a subject, and how to describe its row.
pub(crate) struct Recipe<K> {
    pub(crate) name: &'static str,
    /// The calls and parts that the row's time includes.
    pub(crate) counts: &'static str,
    pub(crate) build: fn(Setup) -> Box<dyn Contender<K>>,
}
