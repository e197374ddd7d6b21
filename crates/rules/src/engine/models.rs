//! Loom models of rules that are loaded during checks.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tollgate::holds::HoldId;
use tollgate::internals::migrate::Generation;
use tollgate::internals::op::{Operation, Store};
use tollgate::internals::sync::{Arc, explore, explore_heavy, thread};
use tollgate::internals::{CheckTime, SharedTime};
use tollgate::stores::AnyStore;
use tollgate::{Clock, Decision, Outcome, Timestamp};
use tollgate_config::{Charging, Config, TimeUnit};

use super::request::{DecidedList, Request, RequestCheck};
use super::state::{ActiveRule, RuleSet, Rules};
use crate::counting::Hasher;
use crate::descriptor::Descriptor;

/// A clock that does not advance.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(100)
    }
}

type Shared = Rules<Still>;

/// Reads a file once, because parsing has no interleavings to explore.
fn file(settings: &str, limits: &str) -> Config {
    static READ: Mutex<BTreeMap<String, Config>> = Mutex::new(BTreeMap::new());
    let text = format!("{{ domain: d, tollgate: {{ {settings} }}, descriptors: [ {limits} ] }}");
    let read = |text: &String| Config::from_yaml("model.yaml", text).expect("the model's rules are valid");
    READ.lock().expect("no reader panics").entry(text).or_insert_with_key(read).clone()
}

/// A limit of one unit per day for `a`.
fn window() -> Config {
    one_per_day("")
}

/// The same limit with another algorithm.
fn bucket() -> Config {
    one_per_day(", algorithm: gcra")
}

fn one_per_day(more: &str) -> Config {
    file("", &format!("{{ key: a, value: x, rate_limit: {{ unit: day, requests_per_unit: 1{more} }} }}"))
}

fn loaded<C: Clock>(clock: C, config: Config) -> Arc<Rules<C>> {
    let mut rules = Rules::builder().clock(clock).load([config]).expect("the model's rules are valid");
    // With a fixed seed, each exploration finds keys at the same places.
    rules.hasher = Hasher::with_seeds(1, 2, 3, 4);
    Arc::new(rules)
}

/// Returns the results of another thread and of this one.
fn together<C: Clock + Send + Sync + 'static, T: Send + 'static>(
    rules: &Arc<Rules<C>>,
    there: impl FnOnce(&Rules<C>) -> T + Send + 'static,
    here: impl FnOnce(&Rules<C>) -> T,
) -> [T; 2] {
    let other = Arc::clone(rules);
    let there = thread::spawn(move || there(&other));
    let here = here(rules);
    [there.join().unwrap(), here]
}

/// Loads other rules.
fn load<C: Clock>(rules: &Rules<C>, config: Config) {
    rules.replace([config]).expect("the model's rules are valid");
}

fn count(admitted: [bool; 2]) -> u32 {
    admitted.map(u32::from).iter().sum()
}

fn check(rules: &Shared) -> bool {
    rules.check("d", &[Descriptor::new(&[("a", "x")])]).is_allowed()
}

/// Decides a request for one unit in another way.
fn check_by(
    rules: &Shared,
    descriptors: &[Descriptor<'_>],
    decide: impl FnOnce(RequestCheck<'_>, Charging, CheckTime) -> bool,
) -> bool {
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let when = CheckTime::read(&rules.clock);
    let mut decided = DecidedList::new();
    let mut check = RequestCheck::new(&mut decided);
    check.find((&in_force, domain), &Request::of(descriptors, 1), when.ns(), &rules.hasher);
    decide(check, domain.charging, when)
}

/// A check without the second read of the rules pointer.
fn check_carelessly(rules: &Shared) -> bool {
    check_by(rules, &[Descriptor::new(&[("a", "x")])], |mut check, charging, when| {
        check.decide(charging, when) == Outcome::Allowed
    })
}

/// Peeks at all rules, without a charge. Returns whether they admit the request.
fn peek_together(checks: &mut RequestCheck<'_>, when: CheckTime) -> bool {
    (0..checks.rules.len()).for_each(|place| checks.peek_at(place, when));
    checks.outcome() == Outcome::Allowed
}

fn generation(rule: &ActiveRule) -> &Generation<AnyStore> {
    &rule.counter.local().expect("this process counts the rule").generation
}

/// Asserts that two threads together admit at most one unit. One thread checks; the other loads rules and then checks.
fn admitted_by_two(check: fn(&Shared) -> bool) {
    let admitted = count(together(&loaded(Still, window()), check, |rules| {
        load(rules, bucket());
        check(rules)
    }));
    assert!(admitted <= 1, "one unit is admitted, under the old rules or the new: {admitted}");
}

// G65
#[test]
fn reload_loses_no_charge() {
    explore(2, || admitted_by_two(check));
}

// G65
#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_without_reread_loses_charge() {
    explore(2, || admitted_by_two(check_carelessly));
}

/// An unchanged rule keeps its counter: a check during the load charges it once.
// G65
#[test]
fn unchanged_rule_is_charged_once() {
    explore(2, || {
        let rules = loaded(Still, window());
        let [admitted, _] = together(&rules, check, |rules| {
            load(rules, window());
            true
        });
        assert!(admitted, "a load that changes nothing denies no request");
        assert!(!check(&rules), "a load that changes nothing keeps the charge");
    });
}

type Timed = Rules<SharedTime>;

/// Two full limits are paid sooner.
const LATER_SECS: u64 = 3 * 86_400;

fn check_by_clock(rules: &Timed) -> Option<u64> {
    let answer = rules.check("d", &[Descriptor::new(&[("a", "x")])]);
    let decision = answer.decided.first().and_then(|decided| decided.decision);
    answer.is_allowed().then(|| decision.as_ref().map_or(0, Decision::at_ns))
}

/// A check that looks at the rules in force after its charge, and does not record its time.
fn check_without_record(rules: &Timed) -> Option<u64> {
    let when = CheckTime::read(&rules.clock);
    loop {
        let in_force = rules.in_force.load();
        let domain = in_force.domain("d").expect("there are rules");
        let generation = generation(&domain.rules[0]);
        let charge = generation.apply("", Operation::Check, when, 1);
        if charge.is_denied() {
            return None;
        }
        if rules.in_force.counts_charge(&in_force, || false, |_| false) {
            return Some(when.ns());
        }
        generation.store().refund("", when, &charge, 1);
    }
}

/// Asserts that one unit is admitted at one time. One thread advances the clock and checks; the other loads rules and
/// then checks.
fn one_unit_at_one_time(check: fn(&Timed) -> Option<u64>) {
    let there = move |rules: &Timed| {
        rules.clock.advance(LATER_SECS);
        check(rules)
    };
    let [there, here] = together(&loaded(SharedTime::new(100), bucket()), there, |rules| {
        load(rules, one_per_day(", algorithm: gcra, store: keyed"));
        check_by_clock(rules)
    });
    assert!(here.is_none() || here != there, "one unit is admitted at one time: {here:?}");
}

/// The clock can stop between its reading and the publication.
// G65
#[test]
fn charge_between_reading_and_load_counts() {
    explore(2, || one_unit_at_one_time(check_by_clock));
}

// G65
#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_without_record_loses_late_charge() {
    explore(2, || one_unit_at_one_time(check_without_record));
}

fn check_with_own_limit(rules: &Shared) -> bool {
    rules.check("d", &[Descriptor::new(&[("a", "x")]).limit(1, TimeUnit::Day)]).is_allowed()
}

/// A check that reads both counters before its charge, and not after it.
fn check_counters_without_reread(rules: &Shared, descriptor: Descriptor<'_>) -> bool {
    check_by(rules, &[descriptor], |mut checks, _, when| {
        peek_together(&mut checks, when)
            && checks.each(|_| true).all(|(check, _)| {
                let generation = generation(check.active);
                generation.apply(check.key.as_str(), Operation::Check, when, 1).is_allowed()
            })
    })
}

/// Asserts that two threads together admit at most one unit. One of them checks with its own limit.
fn admitted_with_own_limit(check: fn(&Shared) -> bool, own: fn(&Shared) -> bool) {
    let admitted = count(together(&loaded(Still, window()), check, own));
    assert!(admitted <= 1, "the rule and the request's own limit share one counter: {admitted}");
}

// G67
#[test]
fn rule_and_request_limit_share_count() {
    explore(2, || admitted_with_own_limit(check, check_with_own_limit));
}

// G67
#[test]
#[should_panic(expected = "share one counter")]
fn control_without_reread_both_are_admitted() {
    let check = |rules: &Shared| check_counters_without_reread(rules, Descriptor::new(&[("a", "x")]));
    let own = |rules: &Shared| {
        let descriptor = Descriptor::new(&[("a", "x")]).limit(1, TimeUnit::Day);
        check_counters_without_reread(rules, descriptor)
    };
    explore(2, move || admitted_with_own_limit(check, own));
}

/// A request for both limits of [`denials_are_charged_once`].
const BOTH: [Descriptor<'static>; 2] = [Descriptor::new(&[("b", "x")]), Descriptor::new(&[("a", "x")])];

/// Asserts the law of [`count_denials`](super::request) for two threads, with a limit of one unit for `a` and of
/// two for `b`, each counting the requests that it denies.
fn denials_are_charged_once(check: fn(&Shared) -> bool) {
    let limits = "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }, \
                  { key: b, value: x, rate_limit: { unit: day, requests_per_unit: 2 } }";
    let rules = loaded(Still, file("charging: count-denials", limits));
    let admitted = count(together(&rules, check, check));
    assert!(admitted == 1, "the last unit of a is admitted once: {admitted}");
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let used =
        |rule: usize| generation(&domain.rules[rule]).peek("", CheckTime::read(&rules.clock), 0).owed();
    assert!(used(0) == 2, "the denied request is charged to the rule that denies it: {}", used(0));
    assert!(used(1) == 1, "the denied request is not charged to another rule: {}", used(1));
}

// G102
#[test]
fn denied_request_is_charged_to_its_denier() {
    explore_heavy(2, || denials_are_charged_once(|rules| rules.check("d", &BOTH).is_allowed()));
}

/// Asserts that two threads together are admitted once by a limit of one unit for `a` and of two for `b`, and that the denied
/// request charges nothing.
fn charged_together(check: fn(&Shared) -> bool) {
    let limits = "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }, \
                  { key: b, value: x, rate_limit: { unit: day, requests_per_unit: 2 } }";
    let rules = loaded(Still, file("", limits));
    let admitted = count(together(&rules, check, check));
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let used =
        |rule: usize| generation(&domain.rules[rule]).peek("", CheckTime::read(&rules.clock), 0).owed();
    // A request that loses the race may see the charge of `b` that the other one gives back.
    assert!(admitted <= 1, "the last unit of a is admitted once: {admitted}");
    assert!(used(0) == u64::from(admitted), "a is charged for the admitted request: {}", used(0));
    assert!(used(1) == u64::from(admitted), "b is charged for the admitted request: {}", used(1));
}

// G67
#[test]
fn plain_rules_are_charged_together() {
    explore_heavy(3, || charged_together(|rules| rules.check("d", &BOTH).is_allowed()));
}

/// Charges the rules without a refund when the second one denies.
// G67
#[test]
#[should_panic(expected = "is charged for the admitted request")]
fn control_without_refund_keeps_first_charge() {
    let check = |rules: &Shared| {
        check_by(rules, &BOTH, |mut checks, _, when| {
            peek_together(&mut checks, when) && checks.charge_all(when)
        })
    };
    explore(2, move || charged_together(check));
}

/// Reads all limits and then adds to them, in two steps.
// G102
#[test]
#[should_panic(expected = "is admitted once")]
fn control_read_before_add_admits_both() {
    let check = |rules: &Shared| {
        check_by(rules, &BOTH, |mut checks, _, when| {
            let admitted = peek_together(&mut checks, when);
            checks.count(when);
            admitted
        })
    };
    explore(2, move || denials_are_charged_once(check));
}

/// Charges a denied request without a refund of the charges before it.
// G102
#[test]
#[should_panic(expected = "not charged to another rule")]
fn control_without_refund_charges_others() {
    let check = |rules: &Shared| {
        check_by(rules, &BOTH, |mut checks, _, when| {
            let admitted = peek_together(&mut checks, when) && checks.charge_all(when);
            checks.count_denials(admitted, when);
            admitted
        })
    };
    explore(2, move || denials_are_charged_once(check));
}

/// A rule of three units per day, whose units requests hold.
fn with_holds(more: &str) -> Config {
    let limit = format!("unit: day, requests_per_unit: 3, hold: {{}}{more}");
    file("", &format!("{{ key: a, value: x, rate_limit: {{ {limit} }} }}"))
}

const HELD: [Descriptor<'static>; 1] = [Descriptor::new(&[("a", "x")])];

/// A request that held two units has used three. It settles them while a load replaces the rule's counter.
fn settled_during_a_load(commit: fn(&Shared, HoldId)) {
    let rules = loaded(Still, with_holds(""));
    let (_, id) = rules.hold("d", &HELD, 2, std::time::Duration::MAX);
    let id = id.expect("three units are free");
    let [_, in_force] = together(
        &rules,
        move |rules| {
            commit(rules, id);
            None
        },
        |rules| {
            load(rules, with_holds(", algorithm: gcra"));
            let in_force = rules.in_force.load();
            // From then on, the new counter has the key.
            let _ = used_units(&in_force);
            Some(in_force)
        },
    );
    let used = used_units(&in_force.expect("rules are in force"));
    assert!(used >= 3, "no unit that was used is lost: {used}");
}

fn used_units(in_force: &RuleSet) -> u64 {
    let domain = in_force.domain("d").expect("there are rules");
    generation(&domain.rules[0]).peek("", CheckTime::read(&Still), 0).owed()
}

// G135
#[test]
fn load_loses_no_settled_unit() {
    explore(2, || {
        settled_during_a_load(|rules, id| {
            rules.commit("d", &HELD, id, 3);
        });
    });
}

/// Charges the third unit without looking at the rules again.
// G135
#[test]
#[should_panic(expected = "no unit that was used is lost")]
fn control_settled_without_reread_loses_unit() {
    explore(2, || {
        settled_during_a_load(|rules, id| {
            let in_force = rules.in_force.load();
            let when = CheckTime::read(&rules.clock);
            rules.commit("d", &HELD, id, 2);
            let domain = in_force.domain("d").expect("there are rules");
            generation(&domain.rules[0]).apply("", Operation::Force, when, 1);
        });
    });
}

/// Two requests want two of three units each.
// G135
#[test]
fn racing_holds_of_rules_take_no_unit_twice() {
    explore(2, || {
        let rules = loaded(Still, with_holds(""));
        let hold = |rules: &Shared| rules.hold("d", &HELD, 2, std::time::Duration::MAX).1.is_some();
        assert_eq!(count(together(&rules, hold, hold)), 1, "two of three units are held once");
    });
}
