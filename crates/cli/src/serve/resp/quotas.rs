//! Quotas that clients send: a compact store for each.
//!
//! ```text
//! a quota that is in force   its store decides
//! a new one                  there is room: a new store
//!                            there is none: it takes the place of the quota that was charged least recently, among those whose keys
//!                            all are idle. If no quota is idle, the new one is refused
//! ```
//! So a store is dropped only when each of its keys has its full burst again, and nothing is forgotten.
//!
//! A check holds the lock for reading, and a change holds it for writing. All times are read under the lock. Therefore no check can
//! charge a store that was dropped.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use tollgate::{Capacity, Clock, Compact, Decision, Gcra, QuantaClock, Quota, QuotaError, RateLimiter};

/// How much later than noted a quota may have been charged. A check that comes sooner after a note does not write one, so threads rarely
/// write to the same place.
const SLACK_NS: u64 = 1 << 27;

/// A quota as a client sends it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientQuota {
    /// The units at once.
    pub burst: u64,
    /// The units in each period.
    pub count: u64,
    /// The period.
    pub period_ns: u64,
}

/// The reason why a quota is not in force.
#[derive(Debug)]
pub enum Refused {
    /// No limiter can have it.
    Quota(QuotaError),
    /// This many others are in use.
    Full(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota(error) => error.fmt(f),
            Self::Full(most) => write!(
                f,
                "{most} other quotas are in use, the most that --resp-quotas allows; use fewer combinations of burst, count and \
                 period, or raise it"
            ),
        }
    }
}

/// The quotas in force.
#[derive(Debug)]
pub struct Quotas<C = QuantaClock> {
    clock: C,
    most: usize,
    /// The memory of one store.
    memory: Capacity,
    table: RwLock<Table<C>>,
}

#[derive(Debug)]
struct Table<C> {
    in_force: HashMap<ClientQuota, ActiveQuota<C>, ahash::RandomState>,
    /// Until this time, no quota becomes idle.
    busy_until_ns: u64,
}

#[derive(Debug)]
struct ActiveQuota<C> {
    limiter: RateLimiter<Compact, C>,
    /// When a key was charged last, to within [`SLACK_NS`]. 0: never. Looks and denials prolong no debt, so they do not count.
    /// Ordering: Relaxed. A caller that needs it exactly holds the lock for writing.
    charged_ns: AtomicU64,
    /// The time after which a key that was charged last is idle.
    refill_ns: u64,
}

impl<C: Clock + Clone> Quotas<C> {
    /// Creates an empty table for at most `most` quotas, each with a store of this size.
    pub fn new(clock: C, most: usize, memory: Capacity) -> Self {
        let table = Table { in_force: HashMap::default(), busy_until_ns: 0 };
        Self { clock, most, memory, table: RwLock::new(table) }
    }

    /// Returns how many quotas are in force.
    pub fn len(&self) -> usize {
        self.read().in_force.len()
    }

    /// Charges `cost` units to a key. A cost of 0 is a look.
    ///
    /// # Errors
    /// If the quota is not in force and cannot be put in force.
    ///
    /// # Complexity
    /// O(1), and O(quotas) for one that is new.
    pub fn check(&self, asked: ClientQuota, key: &[u8], cost: u64) -> Result<Decision, Refused> {
        let has_room = {
            let table = self.read();
            let now = self.clock.now();
            if let Some(quota) = table.in_force.get(&asked) {
                return Ok(quota.check(now, key, cost));
            }
            table.in_force.len() < self.most || now.as_nanos() >= table.busy_until_ns
        };
        if !has_room {
            return Err(Refused::Full(self.most));
        }
        // This takes memory, so no other check waits for it.
        let quota = self.create(asked).map_err(Refused::Quota)?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if table.in_force.len() >= self.most && !table.in_force.contains_key(&asked) {
            let Some(idle) = table.longest_idle(now.as_nanos()) else {
                return Err(Refused::Full(self.most));
            };
            table.in_force.remove(&idle);
        }
        Ok(table.in_force.entry(asked).or_insert(quota).check(now, key, cost))
    }

    fn read(&self) -> RwLockReadGuard<'_, Table<C>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, asked: ClientQuota) -> Result<ActiveQuota<C>, QuotaError> {
        let ClientQuota { burst, count, period_ns } = asked;
        let quota = Quota::try_new(count, Duration::from_nanos(period_ns))?.try_burst(burst)?;
        let builder = RateLimiter::builder(Gcra::new(quota)).clock(self.clock.clone());
        let limiter = builder.capacity(self.memory).compact()?;
        // A compact store may refill slower by 1/256.
        let refill = u128::from(burst) * u128::from(period_ns) / u128::from(count.max(1));
        let refill_ns = u64::try_from(refill + refill / 128).unwrap_or(u64::MAX).saturating_add(2 * SLACK_NS);
        Ok(ActiveQuota { limiter, charged_ns: AtomicU64::new(0), refill_ns })
    }
}

impl<C> Table<C> {
    /// Returns the quota that was charged least recently, if its keys are all idle. Otherwise notes when the first quota becomes idle.
    fn longest_idle(&mut self, now_ns: u64) -> Option<ClientQuota> {
        let quotas = self.in_force.iter();
        let idle = quotas.clone().filter(|(_, quota)| quota.idle_at_ns() <= now_ns);
        let found = idle.min_by_key(|(_, quota)| quota.charged_ns.load(Relaxed)).map(|(asked, _)| *asked);
        if found.is_none() {
            self.busy_until_ns = quotas.map(|(_, quota)| quota.idle_at_ns()).min().unwrap_or_default();
        }
        found
    }
}

impl<C> ActiveQuota<C> {
    fn check(&self, now: tollgate::Timestamp, key: &[u8], cost: u64) -> Decision {
        if cost == 0 {
            return self.limiter.at(now).peek_n(key, 0);
        }
        let decision = self.limiter.at(now).check_n(key, cost);
        if decision.is_allowed() {
            let noted = self.charged_ns.load(Relaxed);
            if noted == 0 || now.as_nanos() > noted.saturating_add(SLACK_NS) {
                self.charged_ns.fetch_max(now.as_nanos().max(1), Relaxed);
            }
        }
        decision
    }

    fn idle_at_ns(&self) -> u64 {
        match self.charged_ns.load(Relaxed) {
            0 => 0,
            charged => charged.saturating_add(self.refill_ns),
        }
    }
}
