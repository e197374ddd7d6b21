//! The state of rules in a snapshot, and what a load takes over from it.
//!
//! ```text
//! magic 8 | version u32 | seeds 4 × u64 | a hash u64 | time ns u64 | number of the load u64
//! for each counter:  1 | domain | identity | parameters | spare u64, lineage u64 | the states of its store
//!   each older store:  4 | parameters | spare u64, time of the load that replaced it ns u64 | its states
//! for each filter:   2 | domain | identity | counted by 2 × u64 | the values of the window
//! for each hold:     3 | number of its counter u64 | hash, end, random 2 ×, units: u64 each | key | its charge
//! 0 | checksum u64
//! ```
//! A restore is a load after the load of the snapshot: the rules of the snapshot are those in force before it. So a
//! rule keeps its counter, a changed rule takes the usage over, and the usage of a removed rule is dropped.
//!
//! *Older stores.* A compact store cannot list its keys, so a load that replaces it by a keyed store, or by a compact one of
//! another size, leaves the usage in it until a request asks for the key. Such stores follow their counter, the latest first.
//! A key that moves on while they are saved is in both, and then only its usage in the counter counts.
//!
//! *Holds.* A hold is saved if it was there before the first store was saved and still is after the last one. Then its
//! charge was in its store all the time. A hold that comes or goes meanwhile is left out, so that no refund returns units
//! that the saved store does not have.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use tollgate::Clock;
use tollgate::holds::HoldId;
use tollgate::internals::CheckTime;
use tollgate::internals::holding::Held;
use tollgate::internals::holding::saved::put_charge;
use tollgate::internals::migrate::{Generation, Numbered as _};
use tollgate::internals::snapshot::{PROBE, PutBytes, put_text, put_u64, write_snapshot};
use tollgate::stores::AnyStore;
use tollgate_config::{Charging, Rule, Store};

use super::Rules;
use super::counter::{LocalCounter, Parameters};
use super::held::CounterCharge;
use super::restore::{COUNTER, END, HOLD, MAGIC, OLDER, RestoreReport, VALUES, VERSION};
use super::rule_set::{ActiveRule, RuleSet};
use super::values::SeenValues;

impl<C: Clock> Rules<C> {
    /// Writes the state of all rules that this process counts, for
    /// [`RulesBuilder::restore`](crate::RulesBuilder::restore) in another process: the usage of all keys, blocks,
    /// holds and requests in progress, the admitted values of rules with `distinct`, and limits that requests set.
    /// It has no usage of sketches and of rules with `store: redis`.
    ///
    /// The bytes contain keys of clients and the secret seeds of hashes. Keep them as you would a password.
    ///
    /// # Consistency
    /// Requests are decided during the call, and no request waits for it. The call waits for no load. Each key's state is one that the key had at some
    /// time during the call. Without requests, the snapshot is exact. Holds that begin or end during the call are left out;
    /// their units stay charged until time has paid them.
    ///
    /// Until the first load with rules, the snapshot to [restore](crate::RulesBuilder::restore) is written again.
    ///
    /// # Errors
    /// If `to` returns an error. It has then received a part of the snapshot, which cannot be restored.
    ///
    /// # Complexity
    /// O(states) time. The memory is that of one of 512 shards of a keyed store, or at most four times that of the largest
    /// compact store, if all of its slots are in use.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Descriptor, Rules, RulesSnapshot};
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
        let waiting = self.restoring().snapshot.clone();
        if let Some(waiting) = waiting {
            return to.write_all(&waiting.bytes);
        }
        let (when, rules) = (CheckTime::read(&self.clock), self.in_force.load());
        rules.counters().for_each(|(_, _, counter)| counter.take_over_all(when));
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
        self.restoring().report.clone()
    }
}

impl RuleSet {
    /// Returns the counters of this process, with their domains and identities. Those of limits that requests set have no
    /// domain.
    pub(in crate::engine) fn counters(&self) -> impl Iterator<Item = (&str, &ActiveRule, &LocalCounter)> {
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
            book.for_each(|_, id, _| _ = before.insert(id));
        }
        let mut numbers = HashMap::new();
        for (domain, active, counter) in self.counters() {
            let Some(written) = bytes_of(&counter.parameters) else { continue };
            numbers.insert(Arc::as_ptr(&counter.generation), numbers.len() as u64);
            let mut head = vec![COUNTER];
            put_text(domain, &mut head);
            put_text(active.rule.counter(), &mut head);
            head.extend_from_slice(&written);
            [counter.spare, counter.lineage].into_iter().for_each(|number| put_u64(number, &mut head));
            put(&head)?;
            counter.generation.store().save(when.ns(), put)?;
            let older = counter.generation.older_stores(when.ns());
            for ((store, at_ns), (parameters, spare)) in older.into_iter().zip(&*counter.past) {
                let Some(written) = bytes_of(parameters) else { break };
                let mut head = vec![OLDER];
                head.extend_from_slice(&written);
                [*spare, at_ns].into_iter().for_each(|number| put_u64(number, &mut head));
                put(&head)?;
                // What a key owed when the load replaced the store.
                store.save(at_ns, put)?;
            }
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
fn bytes_of(parameters: &Parameters) -> Option<Vec<u8>> {
    let Parameters { limit, most, store, charging, has_overdraft, counted_by } = *parameters;
    let mut bytes = Vec::new();
    put_text(&limit.to_string(), &mut bytes);
    let charging = match charging {
        Charging::AllOrNothing => 0,
        Charging::CountFirst => 1,
        Charging::CountDenials => 2,
    };
    let [kind, size] = match store {
        None => [0; 2],
        Some(Store::Local(config)) => config.saved()?,
        Some(Store::Redis(_)) => return None,
    };
    let [by_value, by_key] = counted_by.map(u64::from);
    let numbers = [most, charging, has_overdraft.into(), by_value, by_key, kind, size];
    numbers.into_iter().for_each(|number| put_u64(number, &mut bytes));
    Some(bytes)
}

type CounterNumbers = HashMap<*const Generation<AnyStore>, u64>;

fn save_hold(
    (hash, id): (u64, HoldId),
    held: &Held<Option<CounterCharge>>,
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
    let Some((_, held)) = charge else { return };
    put_text(&held.key, into);
    put_charge(&held.charge, into);
}
