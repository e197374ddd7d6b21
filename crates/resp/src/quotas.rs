//! Quotas that clients send: a store for each. It is compact if its words have room for the quota. Larger bursts and faster rates, such as
//! those of bytes, are in a keyed store with as many keys as fit in the same memory.
//!
//! ```text
//! a quota that is in force   its store decides
//! a new quota                not charged (a query or a denial): it is not stored, because without usage it is like any new quota
//!                            charged, and fewer quotas than the most are in force: it gets a new store
//!                            charged, and the most are in force: it replaces the quota that was charged least recently, among those
//!                            whose keys all are idle. If no quota is idle, the new one is refused
//! ```
//! Each user has a share of the most quotas. A user that has used its share replaces only quotas that it was the first to send.
//!
//! The memory of a quota is freed when all of its keys have been idle for [`KEPT_NS`]: see [`Quotas::drop_idle`]. A key is idle when it
//! has its full burst again, so no usage is forgotten with a store.
//!
//! Quotas that were taken over from the last process stay until they are idle, also if they are more than the most.
//!
//! A check holds the lock for reading, and a change holds it for writing. All times are read under the lock. Therefore no check can
//! charge a store that was dropped.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read, Write};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ring::hmac::{self, HMAC_SHA256};
use tollgate::stores::SnapshotError;
use tollgate::{
    Capacity, Clock, Compact, Decision, DefaultClock, Gcra, Keyed, Quota, QuotaError, RateLimiter, Timestamp,
    WhenFull,
};

use super::saved::{self, SavedQuota, unusable};
use super::users::User;

/// How much later than noted a quota may have been charged. A check that comes sooner after a note does not write one, so threads rarely
/// write to the same place.
const SLACK_NS: u64 = 1 << 27;

/// How long a quota is kept after its keys have become idle, so that one that is charged from time to time is not created each time.
const KEPT_NS: u64 = 60_000_000_000;

/// The bytes for each key of a keyed store: a node, its part of the table, and room for the growth of the table.
const KEY: usize = 80;

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
    /// The user has its share, this many others that are in use.
    Share(usize),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (places, whose, bound) = match self {
            Self::Quota(error) => return error.fmt(f),
            Self::Full(most) => (most, "", "the most that --resp-quotas allows"),
            Self::Share(share) => (share, " of this user", "its share of --resp-quotas"),
        };
        write!(
            f,
            "{places} other quotas{whose} are in use, {bound}; use fewer combinations of burst, count and period, or raise it"
        )
    }
}

/// The quotas in force.
#[derive(Debug)]
pub struct Quotas<C = DefaultClock> {
    clock: C,
    most: usize,
    /// The memory of one store.
    memory: Capacity,
    /// The secret seeds of the hashes of keys.
    seeds: [u64; 4],
    table: RwLock<Table<C>>,
}

#[derive(Debug)]
struct Table<C> {
    in_force: HashMap<ClientQuota, Arc<ActiveQuota<C>>, ahash::RandomState>,
    /// The users that were refused.
    refused: HashMap<Box<str>, RefusedUser>,
}

/// A user whose new quotas are refused.
#[derive(Debug)]
struct RefusedUser {
    /// The quotas in use: its share, or all.
    places: usize,
    /// Until this time, none of them becomes idle.
    until_ns: u64,
}

#[derive(Debug)]
struct ActiveQuota<C> {
    limiter: QuotaLimiter<C>,
    /// The user that was the first to send it.
    user: Box<str>,
    /// When a key was charged last, to within [`SLACK_NS`]. 0: never. Queries and denials do not count, because they prolong no debt.
    /// Ordering: Relaxed. A caller that needs it exactly holds the lock for writing.
    charged_ns: AtomicU64,
    /// The time after which a key that was charged last is idle.
    refill_ns: u64,
}

/// The limiter of a quota.
enum QuotaLimiter<C> {
    Compact(RateLimiter<Compact, C>),
    Keyed {
        limiter: RateLimiter<Keyed<u128, Gcra>, C>,
        /// The secret of the hash of keys. With the same seeds, it is the same on every machine.
        secret: hmac::Key,
        /// The most keys.
        most: usize,
    },
}

impl<C: Clock + Clone> Quotas<C> {
    /// Creates an empty table for at most `most` quotas, each with a store of this size.
    pub fn new(clock: C, most: usize, memory: Capacity) -> Self {
        let table = Table { in_force: HashMap::default(), refused: HashMap::new() };
        let secret = RandomState::new();
        let seeds = [0, 1, 2, 3].map(|number: u64| secret.hash_one(number));
        Self { clock, most, memory, seeds, table: RwLock::new(table) }
    }

    /// Returns how many quotas are in force.
    pub fn len(&self) -> usize {
        self.read().in_force.len()
    }

    /// Charges `cost` units to a key for a user. A cost of 0 only queries.
    ///
    /// # Errors
    /// If the quota is not in force and cannot be put in force.
    ///
    /// # Complexity
    /// O(1), and O(quotas) for one that is new.
    pub fn check(&self, asked: ClientQuota, key: &[u8], cost: u64, user: &User) -> Result<Decision, Refused> {
        let (now, share) = {
            let table = self.read();
            let now = self.clock.now();
            if let Some(quota) = table.in_force.get(&asked) {
                return Ok(quota.check(now, key, cost));
            }
            let share = (self.most / user.sharers()).max(1);
            let refused = table.refused.get(&user.name);
            // Its share may have grown.
            let refused = refused.filter(|known| now.as_nanos() < known.until_ns && share <= known.places);
            if let Some(known) = refused.filter(|_| cost > 0) {
                return Err(self.refusal(known.places));
            }
            (now, share)
        };
        let create = |memory| self.create(asked, &user.name, memory).map_err(Refused::Quota);
        let fresh = create(Capacity::slots(1))?.check(now, key, cost);
        if cost == 0 || fresh.is_denied() {
            return Ok(fresh);
        }
        // Building a store takes time, so no other check waits for it, and what is dropped is dropped after the lock.
        let (quota, mut gone) = (Arc::new(create(self.memory)?), Vec::new());
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        while !table.in_force.contains_key(&asked) {
            let own = table.in_force.values().filter(|quota| quota.user == user.name).count();
            if own < share && table.in_force.len() < self.most {
                break;
            }
            let owner = (own >= share).then_some(&*user.name);
            match table.longest_idle(now.as_nanos(), owner) {
                Ok(idle) => gone.push(table.in_force.remove(&idle)),
                Err(until_ns) => {
                    let places = if owner.is_some() { share } else { self.most };
                    table.refused.retain(|_, known| known.until_ns > now.as_nanos());
                    table.refused.insert(user.name.clone(), RefusedUser { places, until_ns });
                    return Err(self.refusal(places));
                }
            }
        }
        Ok(table.in_force.entry(asked).or_insert_with(|| Arc::clone(&quota)).check(now, key, cost))
    }

    /// Gives back the memory of quotas whose keys have all been idle for a minute.
    ///
    /// # Complexity
    /// O(quotas). While one of them is taken out, checks wait.
    pub fn drop_idle(&self) {
        let is_spare = |quota: &ActiveQuota<C>| {
            quota.idle_at_ns().saturating_add(KEPT_NS) <= self.clock.now().as_nanos()
        };
        let spare = |(asked, quota): (&ClientQuota, &Arc<_>)| is_spare(quota).then_some(*asked);
        let spare = Vec::from_iter(self.read().in_force.iter().filter_map(spare));
        for asked in spare {
            let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
            // It may have been charged meanwhile.
            let is_spare = table.in_force.get(&asked).is_some_and(|quota| is_spare(quota));
            let gone = if is_spare { table.in_force.remove(&asked) } else { None };
            drop(table);
            drop(gone);
        }
    }

    fn refusal(&self, places: usize) -> Refused {
        if places < self.most { Refused::Share(places) } else { Refused::Full(places) }
    }

    /// Writes the quotas that have keys without a full burst, for [`Quotas::restore`]. No check waits for `to`.
    ///
    /// # Errors
    /// If `to` returns an error.
    ///
    /// # Complexity
    /// O(memory of all stores). It holds the usage of one store at a time.
    pub fn save(&self, to: &mut impl Write) -> io::Result<()> {
        saved::begin(to, self.seeds)?;
        let in_force = Vec::from_iter(self.read().in_force.keys().copied());
        for asked in in_force {
            let found = self.read().in_force.get(&asked).cloned();
            // One that was dropped meanwhile was idle.
            let Some(quota) = found.filter(|quota| quota.idle_at_ns() > self.clock.now().as_nanos()) else {
                continue;
            };
            let ClientQuota { burst, count, period_ns } = asked;
            let (usage, most_keys) = (quota.limiter.snapshot(), quota.limiter.most_keys());
            // Read after the usage and while no check charges, so that it is not too early.
            let alone = self.table.write().unwrap_or_else(PoisonError::into_inner);
            let charged_ns = quota.charged_ns.load(Relaxed);
            drop(alone);
            let user = quota.user.to_string();
            saved::put(to, &SavedQuota { burst, count, period_ns, charged_ns, usage, user, most_keys })?;
        }
        saved::put(to, &())
    }

    /// Takes over the quotas that [`Quotas::save`] wrote, without the usage that time has paid since. Returns their number.
    ///
    /// # Errors
    /// If the bytes cannot be used ([`io::ErrorKind::InvalidData`]), or not be read. Then nothing has changed.
    pub fn restore(&mut self, from: &mut impl Read) -> io::Result<usize> {
        let seeds = saved::read_begin(from)?;
        let mut restored = Self { seeds, ..Self::new(self.clock.clone(), self.most, self.memory) };
        let now_ns = self.clock.now().as_nanos();
        let mut in_force = HashMap::default();
        while let Some(saved) = saved::next(from)? {
            let SavedQuota { burst, count, period_ns, charged_ns, usage, user, most_keys } = saved;
            let asked = ClientQuota { burst, count, period_ns };
            let mut quota =
                restored.create(asked, &user, self.memory).map_err(|error| unusable(error.to_string()))?;
            let earlier = "it needs the earlier --resp-quota-memory";
            // Keys without a place in the table would have a full burst again.
            if most_keys > quota.limiter.most_keys() {
                return Err(unusable(format!("it has room for {most_keys} keys of a quota; {earlier}")));
            }
            let taken = quota.limiter.restore(&usage);
            taken.map_err(|error| unusable(format!("{error}; {earlier}")))?;
            // If the clock is behind, all debts continue from now.
            quota.charged_ns = charged_ns.min(now_ns).into();
            if quota.idle_at_ns() > now_ns {
                in_force.insert(asked, Arc::new(quota));
            }
        }
        saved::read_end(from)?;
        let count = in_force.len();
        restored.table = RwLock::new(Table { in_force, refused: HashMap::new() });
        *self = restored;
        Ok(count)
    }

    fn read(&self) -> RwLockReadGuard<'_, Table<C>> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn create(&self, asked: ClientQuota, user: &str, memory: Capacity) -> Result<ActiveQuota<C>, QuotaError> {
        let ClientQuota { burst, count, period_ns } = asked;
        let quota = Quota::try_new(count, Duration::from_nanos(period_ns))?.try_burst(burst)?;
        let builder = || RateLimiter::builder(Gcra::new(quota)).clock(self.clock.clone());
        // Beyond these values, a tick of a compact store is up to a whole unit. Here each unit counts.
        let is_fine = burst <= 1 << 25 && u128::from(count) * 1_000_000_000 <= u128::from(period_ns) << 31;
        let compact = || builder().seeds(self.seeds).capacity(memory).compact().ok();
        let limiter = match is_fine.then(compact).flatten() {
            Some(limiter) => QuotaLimiter::Compact(limiter),
            None => {
                let most = memory.bytes().map_or(1, |bytes| (bytes / KEY).max(1));
                let limiter = builder().max_keys(most, WhenFull::Deny).keyed();
                let seeds = self.seeds.map(u64::to_le_bytes);
                QuotaLimiter::Keyed {
                    limiter,
                    secret: hmac::Key::new(HMAC_SHA256, seeds.as_flattened()),
                    most,
                }
            }
        };
        // A compact store may refill slower by 1/256.
        let refill = u128::from(burst) * u128::from(period_ns) / u128::from(count.max(1));
        let refill_ns = u64::try_from(refill + refill / 128).unwrap_or(u64::MAX).saturating_add(2 * SLACK_NS);
        Ok(ActiveQuota { limiter, user: user.into(), charged_ns: AtomicU64::new(0), refill_ns })
    }
}

impl<C: Clock> Table<C> {
    /// Returns the quota that was charged least recently, of this user or of all, if its keys are all idle.
    ///
    /// # Errors
    /// If none is idle: the time at which the first one becomes idle.
    fn longest_idle(&self, now_ns: u64, owner: Option<&str>) -> Result<ClientQuota, u64> {
        let quotas = self.in_force.iter().filter(|(_, quota)| owner.is_none_or(|user| *quota.user == *user));
        let idle = quotas.clone().filter(|(_, quota)| quota.idle_at_ns() <= now_ns);
        let found = idle.min_by_key(|(_, quota)| quota.charged_ns.load(Relaxed)).map(|(asked, _)| *asked);
        found.ok_or_else(|| quotas.map(|(_, quota)| quota.idle_at_ns()).min().unwrap_or_default())
    }
}

impl<C: Clock> QuotaLimiter<C> {
    /// Charges a key. A cost of 0 only queries.
    fn check(&self, now: Timestamp, key: &[u8], cost: u64) -> Decision {
        match (self, cost) {
            (Self::Compact(limiter), 0) => limiter.at(now).peek_n(key, 0),
            (Self::Compact(limiter), _) => limiter.at(now).check_n(key, cost),
            (Self::Keyed { limiter, secret, .. }, _) => {
                let mut first = [0; 16];
                first.iter_mut().zip(hmac::sign(secret, key).as_ref()).for_each(|(to, from)| *to = *from);
                let key = u128::from_le_bytes(first);
                if cost == 0 { limiter.at(now).peek_n(&key, 0) } else { limiter.at(now).check_n(&key, cost) }
            }
        }
    }

    /// Returns the most keys of a keyed store. A compact store compares its size itself.
    fn most_keys(&self) -> u64 {
        match self {
            Self::Compact(_) => 0,
            Self::Keyed { most, .. } => *most as u64,
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        match self {
            Self::Compact(limiter) => limiter.snapshot(),
            Self::Keyed { limiter, .. } => limiter.snapshot(),
        }
    }

    fn restore(&self, usage: &[u8]) -> Result<(), SnapshotError> {
        match self {
            Self::Compact(limiter) => limiter.restore(usage),
            Self::Keyed { limiter, .. } => limiter.restore(usage),
        }
    }
}

impl<C> fmt::Debug for QuotaLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Compact(_)) { "Compact" } else { "Keyed" })
    }
}

impl<C: Clock> ActiveQuota<C> {
    fn check(&self, now: Timestamp, key: &[u8], cost: u64) -> Decision {
        let decision = self.limiter.check(now, key, cost);
        if cost > 0 && decision.is_allowed() {
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
