//! The state of rules in a snapshot, and what a load takes over from it.
//!
//! ```text
//! magic 8 | version u32 | seeds 4 × u64 | a hash u64 | time ns u64 | number of the load u64
//! for each counter:  1 | domain | identity | parameters | spare u64, lineage u64 | the states of its store
//! for each filter:   2 | domain | identity | counted by 2 × u64 | the values of the window
//! for each hold:     3 | number of its counter u64 | hash, end, random 2 ×, units, paid: u64 each | its charge
//! 0 | checksum u64
//! ```
//! A restore is a load after the load of the snapshot: the rules of the snapshot are those in force before it. So a
//! rule keeps its counter, a changed rule takes the usage over, and the usage of a removed rule is dropped.
//!
//! *Holds.* A hold is saved if it was there before the first store was saved and still is after the last one. Then its
//! charge was in its store all the time. A hold that comes or goes meanwhile is left out, so that no refund returns units
//! that the saved store does not have.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::io;
use std::sync::Arc;

use super::Rules;
use super::counter::{Counter, LocalCounter, Parameters};
use super::held::{HeldCharge, RuleBook};
use super::rule_set::{ActiveRule, RuleSet};
use super::values::SeenValues;
use crate::algorithm::Limit;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::base::decision::{Decision, Facts, Outcome};
use crate::edge::rules::counting::Hasher;
use crate::edge::rules::rule::{Amount, Charging, Rule, Store};
use crate::store::any::saved;
use crate::store::holding::Held;
use crate::store::migrate::{Generation, Numbered as _};
use crate::store::snapshot::{
    PROBE, Problem, PutBytes, SnapshotError, SnapshotReader, SnapshotTimes, put_text, put_u64, write_snapshot,
};
use crate::store::{AnyStore, Capacity, HoldId};

const MAGIC: &[u8; 8] = b"TOLLRULE";
const VERSION: u32 = 1;

const END: u8 = 0;
const COUNTER: u8 = 1;
const VALUES: u8 = 2;
const HOLD: u8 = 3;

/// The largest store that is created for a counter of the snapshot, unless the rule's own is as large. A few bytes of a
/// snapshot must not ask for more.
const LARGEST: usize = 16 << 20;

/// What a load has taken over from a snapshot: see [`RulesBuilder::restore`](crate::rules::RulesBuilder::restore).
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The time of the snapshot, by the clock of the rules that wrote it.
    pub made_at: Timestamp,
    /// The counters of the snapshot that rules of the load use, or take usage over from.
    pub counters: u64,
    /// The counters of the snapshot that no rule of the load has.
    pub dropped: u64,
    /// The counters that cannot be used, although the checksum is right. Their rules start without usage.
    pub unusable: u64,
    /// The holds and requests in progress.
    pub holds: u64,
}

impl<C: Clock> Rules<C> {
    /// Writes the state of all rules that this process counts, for
    /// [`RulesBuilder::restore`](crate::rules::RulesBuilder::restore) in another process: the usage of all keys, blocks,
    /// holds and requests in progress, the admitted values of rules with `distinct`, and limits that requests set.
    /// It has no usage of sketches and of rules with `store: redis`.
    ///
    /// The bytes contain keys of clients and the secret seeds of hashes. Keep them as you would a password.
    ///
    /// # Consistency
    /// Requests are decided during the call, and no request waits for it. Each key's state is one that the key had at some
    /// time during the call. Without requests, the snapshot is exact. Holds that begin or end during the call are left out;
    /// their units stay charged until time has paid them.
    ///
    /// After a [reload](Rules::reload) that changed the store of a rule, the usage that is still in a compact store of
    /// another size, or that was spilled, is left out.
    ///
    /// # Errors
    /// If `to` returns an error. It has then received a part of the snapshot, which cannot be restored.
    ///
    /// # Complexity
    /// O(states) time. The memory is that of one shard of a keyed store, or about twice that of the largest compact store.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Config, Descriptor, Rules, RulesSnapshot};
    ///
    /// let text = "{ domain: shop, descriptors: [ { key: user, rate_limit: { unit: day, requests_per_unit: 2 } } ] }";
    /// let config = || Config::from_yaml("limits.yaml", text);
    /// let request = [Descriptor::new(&[("user", "alice")])];
    /// let before = Rules::builder().load([config()?])?;
    /// assert!(before.check("shop", &request).is_allowed());
    /// let mut bytes = Vec::new();
    /// before.snapshot(&mut bytes)?;
    ///
    /// // In the next process:
    /// let after = Rules::builder().restore(RulesSnapshot::read(bytes)?).load([config()?])?;
    /// assert!(after.check("shop", &request).is_allowed() && after.check("shop", &request).is_denied());
    /// assert_eq!(after.restored().map(|report| report.counters), Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshot(&self, mut to: impl io::Write) -> io::Result<()> {
        let when = CheckTime::read(&self.clock);
        let rules = {
            let _no_load = self.loading();
            let rules = self.in_force.load();
            rules.counters().for_each(|(_, _, counter)| counter.take_over_all(when));
            rules
        };
        write_snapshot(&mut to, MAGIC, VERSION, |put| {
            let mut head = Vec::new();
            self.seeds.iter().for_each(|seed| put_u64(*seed, &mut head));
            let probe = self.hasher.hash_one(PROBE);
            [probe, when.ns(), rules.number()].into_iter().for_each(|number| put_u64(number, &mut head));
            put(&head)?;
            rules.save(when, put)?;
            put(&[END])
        })
    }

    /// Returns what the first load with rules has taken over from a snapshot. `None` if there was none, or as long as no
    /// rules are in force.
    #[must_use]
    pub fn restored(&self) -> Option<RestoreReport> {
        self.loading().report
    }
}

impl RuleSet {
    /// Returns the counters of this process, with their domains and identities. Those of limits that requests set have no
    /// domain.
    fn counters(&self) -> impl Iterator<Item = (&str, &ActiveRule, &LocalCounter)> {
        let of_rules = self.domains.iter().flat_map(|domain| {
            let mut classes = HashSet::new();
            let first = domain
                .rules
                .iter()
                .filter(move |active| active.rule.class.is_none() || classes.insert(active.rule.counter()));
            first.map(|active| (&*domain.name, active))
        });
        let of_requests = self.overrides().map(|active| ("", active));
        of_rules
            .chain(of_requests)
            .filter_map(|(domain, active)| Some((domain, active, active.counter.last_local()?)))
    }

    fn save(&self, when: CheckTime, put: &mut PutBytes<'_>) -> io::Result<()> {
        let mut before = HashSet::new();
        if let Some(book) = &self.book {
            book.for_each(|_, id, _| {
                before.insert(id);
            });
        }
        let mut numbers = HashMap::new();
        for (domain, active, counter) in self.counters() {
            let Some(parameters) = parameters(&counter.made_of) else { continue };
            numbers.insert(Arc::as_ptr(&counter.generation), numbers.len() as u64);
            let mut head = vec![COUNTER];
            put_text(domain, &mut head);
            put_text(active.rule.counter(), &mut head);
            head.extend_from_slice(&parameters);
            [counter.spare, counter.lineage].into_iter().for_each(|number| put_u64(number, &mut head));
            put(&head)?;
            counter.generation.store().save(when.ns(), put)?;
            if let Some(values) = &active.values {
                put(&values_of(domain, &active.rule, values, when))?;
            }
        }
        let mut holds = Vec::new();
        if let Some(book) = &self.book {
            book.for_each(|hash, id, held| {
                if before.contains(&id) {
                    save_hold((hash, id), held, &numbers, &mut holds);
                }
            });
        }
        put(&holds)
    }
}

fn values_of(domain: &str, rule: &Rule, values: &SeenValues, when: CheckTime) -> Vec<u8> {
    let mut bytes = vec![VALUES];
    put_text(domain, &mut bytes);
    put_text(rule.counter(), &mut bytes);
    [rule.counted_by, rule.counted_by_key].into_iter().for_each(|by| put_u64(by.into(), &mut bytes));
    values.save(when, &mut bytes);
    bytes
}

/// Returns the parameters of a counter as bytes. `None` for a store of a size that no file of rules sets.
fn parameters(made_of: &Parameters) -> Option<Vec<u8>> {
    let Parameters { limit, most, store, charging, overdraft, counted_by } = *made_of;
    let mut bytes = Vec::new();
    put_text(&limit.to_string(), &mut bytes);
    let charging = match charging {
        Charging::AllOrNothing => 0,
        Charging::CountFirst => 1,
        Charging::CountDenials => 2,
    };
    let (kind, size) = match store {
        None => (0, 0),
        Some(Store::Compact(memory)) => (1, memory.bytes()?),
        Some(Store::Keyed { max_keys: None }) => (2, 0),
        Some(Store::Keyed { max_keys: Some(most) }) => (3, most),
        Some(Store::Sketch(memory)) => (4, memory.bytes()?),
        Some(Store::Redis(_)) => return None,
    };
    let [by_value, by_key] = counted_by.map(u64::from);
    let numbers = [most, charging, overdraft, by_value, by_key, kind, size as u64];
    numbers.into_iter().for_each(|number| put_u64(number, &mut bytes));
    Some(bytes)
}

/// Reads the parameters of a counter. A calendar has no text that can be read, so the rule must have the same one.
fn read_parameters(
    reader: &mut SnapshotReader<'_>,
    rule: Option<&Rule>,
) -> Result<Option<Parameters>, SnapshotError> {
    let text = reader.text()?;
    let mut numbers = [0; 7];
    for number in &mut numbers {
        *number = reader.u64()?;
    }
    let Some(rule) = rule else { return Ok(None) };
    let own = match &rule.limit {
        Amount::Limited { limit, .. } if limit.to_string() == text => Some(*limit),
        _ => None,
    };
    let wrong = SnapshotError::content("limit of a rule");
    let [most, charging, overdraft, by_value, by_key, kind, size] = numbers;
    let size = usize::try_from(size).map_err(|_| wrong.clone())?;
    let by = |by| u32::try_from(by).map_err(|_| wrong.clone());
    Ok(Some(Parameters {
        limit: own.map_or_else(|| text.parse::<Limit>(), Ok).map_err(|_| wrong.clone())?,
        most,
        store: match kind {
            0 => None,
            1 => Some(Store::Compact(Capacity::memory(size))),
            2 => Some(Store::Keyed { max_keys: None }),
            3 => Some(Store::Keyed { max_keys: Some(size) }),
            4 => Some(Store::Sketch(Capacity::memory(size))),
            _ => return Err(wrong),
        },
        charging: match charging {
            0 => Charging::AllOrNothing,
            1 => Charging::CountFirst,
            2 => Charging::CountDenials,
            _ => return Err(wrong),
        },
        overdraft,
        counted_by: [by(by_value)?, by(by_key)?],
    }))
}

type CounterNumbers = HashMap<*const Generation<AnyStore>, u64>;

fn save_hold(
    (hash, id): (u64, HoldId),
    held: &Held<Option<HeldCharge>>,
    numbers: &CounterNumbers,
    into: &mut Vec<u8>,
) {
    // The charge of a counter that a load has replaced cannot be refunded: its units stay charged until time pays them.
    let charge = held.charge.as_ref();
    let charge = charge.and_then(|held| Some((*numbers.get(&Arc::as_ptr(&held.generation))?, held)));
    into.push(HOLD);
    put_u64(charge.map_or(u64::MAX, |(number, _)| number), into);
    put_u64(hash, into);
    into.extend_from_slice(&id.to_bytes());
    put_u64(held.units, into);
    put_u64(held.paid_ns, into);
    let Some((_, held)) = charge else { return };
    let (kind, figures) = match *held.charge.facts() {
        Facts::Pace { ahead, interval, capacity, scale, queued, mark } => {
            (0, [ahead, interval, capacity, scale.into(), queued.into(), mark.into()])
        }
        Facts::Ticks { ahead, interval, remainder, num, den, queued } => {
            (1, [ahead, interval, remainder, num, den, queued.into()])
        }
        Facts::Batch { used, raised, batch, to_boundary_ns, period_ns } => {
            (2, [used, raised, batch, to_boundary_ns, period_ns, 0])
        }
        Facts::Blend { previous, current, left_ns, to_end_ns, window_ns, ceil } => {
            (3, [previous, current, left_ns, to_end_ns, window_ns, ceil.into()])
        }
        Facts::Plain { remaining, retry_ns, reset_ns, delay_ns } => {
            (4, [remaining, retry_ns, reset_ns, delay_ns, 0, 0])
        }
    };
    let numbers = [held.charge.charged(), held.charge.limit(), held.charge.at_ns(), kind];
    numbers.into_iter().chain(figures).for_each(|number| put_u64(number, into));
}

/// Reads the charge of a hold. The caller's clock may be behind the snapshot's.
fn read_charge(reader: &mut SnapshotReader<'_>, back_ns: u64) -> Result<Decision, SnapshotError> {
    let mut numbers = [0; 10];
    for number in &mut numbers {
        *number = reader.u64()?;
    }
    let [cost, limit, at_ns, kind, a, b, c, d, e, f] = numbers;
    let wrong = SnapshotError::content("charge of a hold");
    // Divisors.
    let is_sound = match kind {
        0 => d > 0 && b > 0,
        1 => d > 0 && e > 0 && b > 0,
        2 => c > 0 && e > 0,
        3 => e > 0,
        _ => true,
    };
    let facts = match kind {
        _ if !is_sound => return Err(wrong),
        0 => {
            let (Ok(scale), Ok(mark)) = (u32::try_from(d), u8::try_from(f)) else { return Err(wrong) };
            Facts::Pace { ahead: a, interval: b, capacity: c, scale, queued: e != 0, mark }
        }
        1 => Facts::Ticks { ahead: a, interval: b, remainder: c, num: d, den: e, queued: f != 0 },
        2 => Facts::Batch { used: a, raised: b, batch: c, to_boundary_ns: d, period_ns: e },
        3 => Facts::Blend { previous: a, current: b, left_ns: c, to_end_ns: d, window_ns: e, ceil: f != 0 },
        4 => Facts::Plain { remaining: a, retry_ns: b, reset_ns: c, delay_ns: d },
        _ => return Err(wrong),
    };
    Ok(Decision::new(Outcome::Allowed, cost, limit, at_ns.saturating_sub(back_ns), facts))
}

/// The state of rules that [`Rules::snapshot`] wrote, for [`RulesBuilder::restore`](crate::rules::RulesBuilder::restore).
///
/// Its [`Debug`](std::fmt::Debug) shows no keys of clients.
pub struct RulesSnapshot {
    bytes: Vec<u8>,
    pub(super) seeds: [u64; 4],
    then_ns: u64,
    /// The number of the load that was in force.
    pub(super) load: u64,
    /// Where the parts after the names begin, by kind, domain and identity; and the number of the counter.
    parts: HashMap<(u8, Box<str>), (usize, u64)>,
    holds: Vec<usize>,
}

/// The counters that a load takes over, by their numbers.
#[derive(Default)]
pub(super) struct Restored {
    counters: HashMap<u64, LocalCounter>,
    unusable: u64,
}

/// Returns the hasher with these seeds.
pub(super) fn hasher_of([a, b, c, d]: [u64; 4]) -> Hasher {
    Hasher::with_seeds(a, b, c, d)
}

/// Returns seeds that nobody else knows.
pub(super) fn new_seeds() -> [u64; 4] {
    let secret = std::hash::RandomState::new();
    [0, 1, 2, 3].map(|number: u64| secret.hash_one(number))
}

fn name_of(domain: &str, identity: &str) -> Box<str> {
    // A length in front, so that two pairs never have the same name.
    format!("{}:{domain}{identity}", domain.len()).into()
}

impl RulesSnapshot {
    /// Reads a snapshot and checks it.
    ///
    /// The checksum finds damage, but no forgery. Bytes that were forged can set usage, but cause no panic, and the memory
    /// that they take is in proportion to their own number.
    ///
    /// # Errors
    /// If the bytes are not a snapshot of rules, were cut or changed, have another version, or were written by a program
    /// that computes other hashes.
    ///
    /// # Complexity
    /// O(bytes).
    pub fn read(bytes: Vec<u8>) -> Result<Self, SnapshotError> {
        let mut reader = SnapshotReader::begin(&bytes, MAGIC, VERSION)?;
        reader.verify()?;
        let seeds = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        if reader.u64()? != hasher_of(seeds).hash_one(PROBE) {
            return Err(SnapshotError(Problem::Build));
        }
        let [then_ns, load] = [reader.u64()?, reader.u64()?];
        let (mut parts, mut holds, mut counters) = (HashMap::new(), Vec::new(), 0);
        loop {
            let [kind] = reader.take()?;
            match kind {
                END => break,
                COUNTER | VALUES => {
                    let name = name_of(reader.text()?, reader.text()?);
                    parts.insert((kind, name), (reader.position(), counters));
                    if kind == COUNTER {
                        counters += 1;
                        read_parameters(&mut reader, None)?;
                        reader.slice(2 * size_of::<u64>())?;
                        saved::skip(&mut reader)?;
                    } else {
                        reader.slice(5 * size_of::<u64>())?;
                        while reader.u64()? != u64::MAX {
                            reader.u64()?;
                        }
                    }
                }
                HOLD => {
                    holds.push(reader.position());
                    read_hold(&mut reader, 0)?;
                }
                _ => return Err(SnapshotError::content("kind of part")),
            }
        }
        reader.done()?;
        Ok(Self { seeds, then_ns, load, parts, holds, bytes })
    }

    /// Returns the time of the snapshot, by the clock of the rules that wrote it.
    #[must_use]
    pub const fn made_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.then_ns)
    }

    fn times(&self, now: CheckTime) -> SnapshotTimes {
        SnapshotTimes { then_ns: self.then_ns, now_ns: now.ns() }
    }

    fn part(&self, kind: u8, domain: &str, rule: &Rule) -> Option<(SnapshotReader<'_>, u64)> {
        let &(at, number) = self.parts.get(&(kind, name_of(domain, rule.counter())))?;
        Some((SnapshotReader::at(&self.bytes, at), number))
    }

    /// Returns the counter that a rule had.
    pub(super) fn counter(
        &self,
        domain: &str,
        rule: &Rule,
        (hasher, now): (&Hasher, CheckTime),
        restored: &mut Restored,
    ) -> Option<Counter> {
        let (mut reader, number) = self.part(COUNTER, domain, rule)?;
        match self.read_counter(&mut reader, rule, hasher, now) {
            Ok(counter) => {
                restored.counters.insert(number, counter.clone());
                Some(Counter::Local(counter))
            }
            Err(_) => {
                restored.unusable += 1;
                None
            }
        }
    }

    fn read_counter(
        &self,
        reader: &mut SnapshotReader<'_>,
        rule: &Rule,
        hasher: &Hasher,
        now: CheckTime,
    ) -> Result<LocalCounter, SnapshotError> {
        let wrong = || SnapshotError::content("limit of a rule");
        let made_of = read_parameters(reader, Some(rule))?.ok_or_else(wrong)?;
        let [spare, lineage] = [reader.u64()?, reader.u64()?];
        let bytes = |store: &Option<Store>| match store {
            Some(Store::Compact(memory) | Store::Sketch(memory)) => memory.bytes().unwrap_or_default(),
            _ => 0,
        };
        let own = if let Amount::Limited { store, .. } = &rule.limit { bytes(store) } else { 0 };
        if bytes(&made_of.store) > own.max(LARGEST) {
            return Err(wrong());
        }
        let store = made_of.store(spare, hasher).map_err(|_| wrong())?;
        store.load(reader, self.times(now))?;
        Ok(LocalCounter::restored(store, now.ns(), (spare, lineage), made_of))
    }

    /// Takes over the values that a rule had admitted.
    pub(super) fn values(&self, domain: &str, rule: &Rule, values: &SeenValues, now: CheckTime) {
        let Some((mut reader, _)) = self.part(VALUES, domain, rule) else { return };
        let counted_by = [rule.counted_by, rule.counted_by_key].map(u64::from);
        if [reader.u64(), reader.u64()] == counted_by.map(Ok) {
            // `read` has checked the structure, so there is no error.
            let _ = values.load(&mut reader, self.times(now));
        }
    }

    /// Takes over the holds, and returns what was taken over.
    pub(super) fn finish(
        &self,
        restored: &Restored,
        book: Option<&RuleBook>,
        now: CheckTime,
    ) -> RestoreReport {
        let back_ns = self.times(now).back_ns();
        let mut holds = 0;
        for &at in &self.holds {
            let Ok(hold) = read_hold(&mut SnapshotReader::at(&self.bytes, at), back_ns) else { continue };
            let SavedHold { counter, hash, id, units, paid_ns, charge } = hold;
            let counter = restored.counters.get(&counter);
            let charge = charge.zip(counter).map(|(charge, counter)| HeldCharge {
                generation: Arc::clone(&counter.generation),
                lineage: counter.lineage,
                charge,
            });
            let held = Held { units, paid_ns, charge };
            let kept = book.map(|book| book.keep((hash, id), held, (u64::MAX, now.ns())));
            holds += u64::from(matches!(kept, Some(Ok(_))));
        }
        let counters = restored.counters.len() as u64;
        let all = self.parts.keys().filter(|(kind, _)| *kind == COUNTER).count() as u64;
        RestoreReport {
            made_at: self.made_at(),
            counters,
            dropped: all.saturating_sub(counters + restored.unusable),
            unusable: restored.unusable,
            holds,
        }
    }
}

/// A hold of a snapshot.
struct SavedHold {
    /// The number of its counter.
    counter: u64,
    hash: u64,
    id: HoldId,
    units: u64,
    paid_ns: u64,
    charge: Option<Decision>,
}

fn read_hold(reader: &mut SnapshotReader<'_>, back_ns: u64) -> Result<SavedHold, SnapshotError> {
    let [counter, hash] = [reader.u64()?, reader.u64()?];
    let id = HoldId::from_bytes(reader.take()?);
    let id = HoldId::new(id.end_ns().saturating_sub(back_ns), id.random());
    let [units, paid_ns] = [reader.u64()?, reader.u64()?.saturating_sub(back_ns)];
    let charge = if counter == u64::MAX { None } else { Some(read_charge(reader, back_ns)?) };
    Ok(SavedHold { counter, hash, id, units, paid_ns, charge })
}

/// Omits the content, which has keys of clients.
impl std::fmt::Debug for RulesSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesSnapshot").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
