//! Reads the state of rules from a snapshot, for the first load. `saved` describes the bytes, and writes them.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use tollgate::holds::HoldId;
use tollgate::internals::holding::Held;
use tollgate::internals::holding::saved::read_charge;
use tollgate::internals::op::Store as _;
use tollgate::internals::snapshot::{PROBE, Problem, SnapshotReader, SnapshotTimes};
use tollgate::internals::{CheckTime, saved};
use tollgate::stores::SnapshotError;
use tollgate::{Decision, Limit, StoreConfig, Timestamp};
use tollgate_config::{Amount, Charging, Rule, Store};

use super::counter::{Counter, LocalCounter, OlderStore, Parameters};
use super::held::{CounterCharge, CounterName, RuleBook};
use super::values::SeenValues;
use crate::counting::Hasher;

pub(super) const MAGIC: &[u8; 8] = b"TOLLRULE";
pub(super) const VERSION: u32 = 2;

pub(super) const END: u8 = 0;
pub(super) const COUNTER: u8 = 1;
pub(super) const VALUES: u8 = 2;
pub(super) const HOLD: u8 = 3;
pub(super) const OLDER: u8 = 4;

/// What a load has taken over from a snapshot: see [`RulesBuilder::restore`](crate::RulesBuilder::restore).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The time of the snapshot, by the clock of the rules that wrote it.
    pub made_at: Timestamp,
    /// The counters of the snapshot that rules of the load use, or take usage over from.
    pub counters: u64,
    /// The counters of the snapshot that no rule of the load has.
    pub dropped: u64,
    /// The identities of rules whose counters cannot be used although the checksum is right, and the reasons. These rules
    /// start without usage.
    pub unusable: Vec<(Box<str>, SnapshotError)>,
    /// The holds and requests in progress.
    pub holds: u64,
}

/// Reads the parameters of a counter. A calendar has no text that can be read, so the rule must have the same one; its number
/// may differ.
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
    let wrong = Problem::content("limit of a rule");
    let other_calendar = Problem::content("calendar, which is not the rule's any more,");
    let [most, charging, overdraft, by_value, by_key, kind, size] = numbers;
    let own = match &rule.limit {
        Amount::Limited { limit, .. } => limit.with_most(most).ok().filter(|limit| limit.to_string() == text),
        _ => None,
    };
    let by = |by| u32::try_from(by).map_err(|_| wrong.clone());
    Ok(Some(Parameters {
        limit: own.map_or_else(|| text.parse::<Limit>(), Ok).map_err(|_| other_calendar)?,
        most,
        store: match kind {
            0 => None,
            _ => Some(Store::Local(StoreConfig::of_saved([kind, size]).ok_or_else(|| wrong.clone())?)),
        },
        charging: match charging {
            0 => Charging::AllOrNothing,
            1 => Charging::CountFirst,
            2 => Charging::CountDenials,
            _ => return Err(wrong),
        },
        has_overdraft: overdraft != 0,
        counted_by: [by(by_value)?, by(by_key)?],
    }))
}

/// The state of rules that [`Rules::snapshot`](crate::Rules::snapshot) wrote, for [`RulesBuilder::restore`](crate::RulesBuilder::restore).
///
/// Its [`Debug`](std::fmt::Debug) shows no keys of clients.
pub struct RulesSnapshot {
    pub(super) bytes: Vec<u8>,
    pub(in crate::engine) seeds: [u64; 4],
    then_ns: u64,
    /// The number of the load that was in force.
    pub(in crate::engine) load: u64,
    /// Where the parts after the names begin, by kind, domain and identity; and the number of the counter.
    parts: HashMap<(u8, Box<str>), (usize, u64)>,
    holds: Vec<usize>,
}

/// What the first load with rules takes over, and what it took over.
#[derive(Debug)]
pub(in crate::engine) struct Restoring {
    pub(in crate::engine) snapshot: Option<Arc<RulesSnapshot>>,
    pub(in crate::engine) report: Option<RestoreReport>,
}

/// The counters that were taken over, by their numbers in the snapshot.
type Counters = HashMap<u64, (Arc<CounterName>, LocalCounter)>;

/// The counters that a load takes over, by their numbers, with their names.
#[derive(Default)]
pub(super) struct Restored {
    counters: Counters,
    unusable: Vec<(Box<str>, SnapshotError)>,
}

/// Returns the hasher with these seeds.
pub(in crate::engine) fn hasher_of([a, b, c, d]: [u64; 4]) -> Hasher {
    Hasher::with_seeds(a, b, c, d)
}

/// Returns secret seeds.
pub(in crate::engine) fn new_seeds() -> [u64; 4] {
    let secret = std::hash::RandomState::new();
    [0, 1, 2, 3].map(|number: u64| secret.hash_one(number))
}

fn name_of(domain: &str, identity: &str) -> Box<str> {
    // The length of the domain comes first, because two pairs could have the same name otherwise.
    format!("{}:{domain}{identity}", domain.len()).into()
}

impl RulesSnapshot {
    /// Reads a snapshot and checks it.
    ///
    /// The checksum finds damage, but no forgery. Bytes that were forged can set usage, but cause no panic, and the memory
    /// that becomes resident is in proportion to their own number.
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
            return Err(Problem::Build.error());
        }
        let [then_ns, load] = [reader.u64()?, reader.u64()?];
        // Each load counts on from here.
        if load > u64::MAX / 2 {
            return Err(Problem::content("number of loads"));
        }
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
                    read_hold(&mut reader, &Counters::new(), 0)?;
                }
                OLDER => {
                    read_parameters(&mut reader, None)?;
                    reader.slice(2 * size_of::<u64>())?;
                    saved::skip(&mut reader)?;
                }
                _ => return Err(Problem::content("kind of part")),
            }
        }
        reader.done()?;
        Ok(Self { seeds, then_ns, load, parts, holds, bytes })
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
                restored.counters.insert(number, (CounterName::of(domain, rule), counter.clone()));
                Some(Counter::Local(counter))
            }
            Err(error) => {
                restored.unusable.push((rule.counter().into(), error));
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
        let wrong = || Problem::content("limit of a rule");
        // A large store takes addresses, but memory only as far as the snapshot fills it.
        let no_memory = |_| Problem::content("store, which takes more memory than there is,");
        let read = |times: Option<SnapshotTimes>, reader: &mut SnapshotReader<'_>| {
            let parameters = read_parameters(reader, Some(rule))?.ok_or_else(wrong)?;
            let [spare, number] = [reader.u64()?, reader.u64()?];
            let store = parameters.store(spare, hasher).map_err(no_memory)?;
            // An older store is as it was when a load replaced it, at the time `number`.
            let back_ns = self.times(now).back_ns();
            let replaced = SnapshotTimes { then_ns: number, now_ns: number.saturating_sub(back_ns) };
            store.load(reader, times.unwrap_or(replaced))?;
            Ok((store, parameters, spare, number))
        };
        let (store, parameters, spare, lineage) = read(Some(self.times(now)), reader)?;
        let mut older = Vec::new();
        while let [OLDER] = reader.clone().take()? {
            let [_] = reader.take()?;
            let (store, parameters, spare, replaced_ns) = read(None, reader)?;
            let at_ns = replaced_ns.saturating_sub(self.times(now).back_ns());
            older.push(OlderStore { store, parameters: (parameters, spare), at_ns });
        }
        Ok(LocalCounter::restored(store, now.ns(), (spare, lineage), parameters, older))
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
        restored: Restored,
        book: Option<&RuleBook>,
        now: CheckTime,
    ) -> RestoreReport {
        let back_ns = self.times(now).back_ns();
        let (mut holds, mut known) = (0, HashSet::new());
        for &at in &self.holds {
            let hold = read_hold(&mut SnapshotReader::at(&self.bytes, at), &restored.counters, back_ns);
            let Ok((hash, id, held)) = hold else { continue };
            if !known.insert((hash, id.random())) {
                continue;
            }
            let release = |_, held: &Held<Option<CounterCharge>>| {
                if let Some(CounterCharge { key, generation, charge, .. }) = &held.charge {
                    generation.store().refund(&**key, now, charge, held.units);
                }
            };
            let kept = book.map(|book| book.keep((hash, id), held, (u64::MAX, now.ns()), release));
            holds += u64::from(matches!(kept, Some(Ok(_))));
        }
        let counters = restored.counters.len() as u64;
        let all = self.parts.keys().filter(|(kind, _)| *kind == COUNTER).count() as u64;
        RestoreReport {
            made_at: Timestamp::from_nanos(self.then_ns),
            counters,
            dropped: all.saturating_sub(counters + restored.unusable.len() as u64),
            unusable: restored.unusable,
            holds,
        }
    }
}

/// Reads a hold, whose counter has been read before. A hold of a counter that was not taken over has no charge.
fn read_hold(
    reader: &mut SnapshotReader<'_>,
    counters: &Counters,
    back_ns: u64,
) -> Result<(u64, HoldId, Held<Option<CounterCharge>>), SnapshotError> {
    let [counter, hash] = [reader.u64()?, reader.u64()?];
    let id = HoldId::from_bytes(reader.take()?);
    let id = HoldId::new(id.end_ns().saturating_sub(back_ns), id.random());
    let units = reader.u64()?;
    let saved: Option<(Box<str>, Decision)> = match counter {
        u64::MAX => None,
        _ => Some((reader.text()?.into(), read_charge(reader, back_ns)?)),
    };
    let charge = saved.zip(counters.get(&counter)).map(|((key, charge), (name, counter))| CounterCharge {
        key,
        name: Arc::clone(name),
        generation: Arc::clone(&counter.generation),
        lineage: counter.lineage,
        charge,
    });
    Ok((hash, id, Held { units, charge }))
}

/// Omits the content, which has keys of clients.
impl std::fmt::Debug for RulesSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RulesSnapshot").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}
