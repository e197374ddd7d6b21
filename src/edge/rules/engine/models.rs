//! Loom models of rules that are loaded during checks.

use std::sync::OnceLock;

use crate::base::check_time::CheckTime;
use crate::base::sync::Arc;
use crate::base::sync::thread;

use super::check::RequestCheck;
use super::decided::Few;
use super::route::{Here, Request, Route};
use super::*;
use crate::base::clock::models::SharedTime;
use crate::base::decision::Outcome;
use crate::base::sync::{explore, explore_heavy, fence_after_rmw};
use crate::edge::rules::counting::ready;
use crate::edge::rules::rule::Unit;
use crate::store::op::{Operation, Store};

/// A clock that does not advance.
struct Still;

impl Clock for Still {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(100)
    }
}

type Shared = Rules<Still>;

/// Parsed once, because parsing has no interleavings to explore.
fn config(of: &'static OnceLock<Config>, limits: &str) -> Config {
    config_with(of, "", limits)
}

fn config_with(of: &'static OnceLock<Config>, settings: &str, limits: &str) -> Config {
    let read = || {
        Config::from_yaml(
            "model.yaml",
            &format!("{{ domain: d, tollgate: {{ {settings} }}, descriptors: [ {limits} ] }}"),
        )
        .expect("the model's rules are valid")
    };
    of.get_or_init(read).clone()
}

/// A limit of one unit per day for `a`.
fn window() -> Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    config(&CONFIG, "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }")
}

/// The same limit with another algorithm.
fn bucket() -> Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    config(&CONFIG, "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1, algorithm: gcra } }")
}

/// The same bucket in another store.
fn keyed_bucket() -> Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    config(
        &CONFIG,
        "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1, algorithm: gcra, store: keyed } }",
    )
}

fn rules() -> Arc<Shared> {
    loaded(window())
}

fn loaded(config: Config) -> Arc<Shared> {
    let mut rules = Rules::builder().clock(Still).load([config]).expect("the model's rules are valid");
    // With a fixed seed, each exploration finds keys at the same places.
    rules.hasher = Hasher::with_seeds(1, 2, 3, 4);
    Arc::new(rules)
}

fn check(rules: &Shared) -> bool {
    rules.check("d", &[Descriptor::new(&[("a", "x")])]).is_allowed()
}

/// A check without the second read of the rules pointer.
fn check_carelessly(rules: &Shared) -> bool {
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let entries = [("a", "x")];
    let descriptors = [Descriptor::new(&entries)];
    let when = CheckTime::read(&rules.clock);
    let mut decided = Few::new();
    let mut check = RequestCheck::new(&mut decided);
    check.find(domain, &one_unit(&descriptors), when.ns(), &rules.hasher);
    let mut route = Route { check, asker: &mut Here(when) };
    ready(route.decide(domain.charging)) == Outcome::Allowed
}

/// A request for one unit.
fn one_unit<'d, 'r>(descriptors: &'d [Descriptor<'r>]) -> Request<'d, 'r> {
    Request { descriptors, searched: &[], hits: 1 }
}

/// Peeks at all rules, without a charge.
fn peek_together(checks: &mut RequestCheck<'_>, when: CheckTime) {
    (0..checks.rules.len()).for_each(|place| checks.peek_at(place, when));
}

/// Asserts that two threads together admit at most one unit. One thread checks; the other loads rules and then checks.
fn admitted_by_two(check: fn(&Shared) -> bool) {
    let rules = rules();
    let other = Arc::clone(&rules);
    let checker = thread::spawn(move || check(&other));
    rules.replace([bucket()]).expect("the model's rules are valid");
    let here = check(&rules);
    let admitted = u32::from(here) + u32::from(checker.join().unwrap());
    assert!(admitted <= 1, "one unit is admitted, under the old rules or the new: {admitted}");
}

#[test]
fn reload_loses_no_charge() {
    explore(2, || admitted_by_two(check));
}

#[test]
#[should_panic(expected = "one unit is admitted")]
fn control_without_reread_loses_charge() {
    explore(2, || admitted_by_two(check_carelessly));
}

/// An unchanged rule keeps its counter: a check during the load charges it once.
#[test]
fn unchanged_rule_is_charged_once() {
    explore(2, || {
        let rules = rules();
        let other = Arc::clone(&rules);
        let checker = thread::spawn(move || check(&other));
        rules.replace([window()]).expect("the model's rules are valid");
        assert!(checker.join().unwrap(), "a load that changes nothing denies no request");
        assert!(!check(&rules), "a load that changes nothing keeps the charge");
    });
}

/// Rules with a clock that other threads advance.
type Timed = Rules<SharedTime>;

/// Two full limits are paid sooner.
const LATER_SECS: u64 = 3 * 86_400;

fn check_by_clock(rules: &Timed) -> Option<u64> {
    let answer = rules.check("d", &[Descriptor::new(&[("a", "x")])]);
    let decision = answer.decided.first().and_then(|decided| decided.decision);
    answer.is_allowed().then(|| decision.map_or(0, |decision| decision.at_ns()))
}

/// A check that looks at the rules in force after its charge, and does not record its time.
fn check_without_record(rules: &Timed) -> Option<u64> {
    let when = CheckTime::read(&rules.clock);
    loop {
        let in_force = rules.in_force.load();
        let domain = in_force.domain("d").expect("there are rules");
        let counter = domain.rules[0].counter.local().expect("this process counts the rule");
        let charge = counter.generation.apply("", Operation::Check, when, 1);
        if charge.is_denied() {
            return None;
        }
        fence_after_rmw();
        if rules.in_force.is_present(&in_force) {
            return Some(when.ns());
        }
        counter.generation.store().refund("", when, &charge, 1);
    }
}

/// Asserts that one unit is admitted at one time. One thread advances the clock and checks; the other loads rules and
/// then checks.
fn one_unit_at_one_time(check: fn(&Timed) -> Option<u64>) {
    let clock = SharedTime::new(100);
    let mut rules = Rules::builder().clock(clock).load([bucket()]).expect("the model's rules are valid");
    rules.hasher = Hasher::with_seeds(1, 2, 3, 4);
    let rules = Arc::new(rules);
    let other = Arc::clone(&rules);
    let checker = thread::spawn(move || {
        other.clock.advance(LATER_SECS);
        check(&other)
    });
    rules.replace([keyed_bucket()]).expect("the model's rules are valid");
    let here = check_by_clock(&rules);
    let there = checker.join().unwrap();
    assert!(here.is_none() || here != there, "one unit is admitted at one time: {here:?}");
}

/// The clock can stop between its reading and the publication.
#[test]
fn charge_between_reading_and_load_counts() {
    explore(2, || one_unit_at_one_time(check_by_clock));
}

#[test]
#[should_panic(expected = "one unit is admitted at one time")]
fn control_without_record_loses_late_charge() {
    explore(2, || one_unit_at_one_time(check_without_record));
}

fn check_with_own_limit(rules: &Shared) -> bool {
    rules.check("d", &[Descriptor::new(&[("a", "x")]).limit(1, Unit::Day)]).is_allowed()
}

/// A check that reads both counters before its charge, and not after it.
fn check_counters_without_reread(rules: &Shared, descriptor: &Descriptor<'_>) -> bool {
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let when = CheckTime::read(&rules.clock);
    let mut decided = Few::new();
    let mut checks = RequestCheck::new(&mut decided);
    checks.find(domain, &one_unit(std::slice::from_ref(descriptor)), when.ns(), &rules.hasher);
    peek_together(&mut checks, when);
    checks.outcome() == Outcome::Allowed
        && checks.each(|_| true).all(|(check, _)| {
            let counter = check.active.counter.local().expect("this process counts the rule");
            counter.generation.apply(check.key.as_str(), Operation::Check, when, 1).is_allowed()
        })
}

/// Asserts that two threads together admit at most one unit. One of them checks with its own limit.
fn admitted_with_own_limit(check: fn(&Shared) -> bool, own: fn(&Shared) -> bool) {
    let rules = rules();
    let other = Arc::clone(&rules);
    let checker = thread::spawn(move || check(&other));
    let here = own(&rules);
    let admitted = u32::from(here) + u32::from(checker.join().unwrap());
    assert!(admitted <= 1, "the rule and the request's own limit share one counter: {admitted}");
}

#[test]
fn rule_and_request_limit_share_count() {
    explore(2, || admitted_with_own_limit(check, check_with_own_limit));
}

#[test]
#[should_panic(expected = "share one counter")]
fn control_without_reread_both_are_admitted() {
    let check = |rules: &Shared| check_counters_without_reread(rules, &Descriptor::new(&[("a", "x")]));
    let own = |rules: &Shared| {
        let entries = [("a", "x")];
        check_counters_without_reread(rules, &Descriptor::new(&entries).limit(1, Unit::Day))
    };
    explore(2, move || admitted_with_own_limit(check, own));
}

/// A limit of one unit for `a` and of two for `b`, each counting the requests that it denies.
fn counting_denials() -> Config {
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let limits = "{ key: a, value: x, rate_limit: { unit: day, requests_per_unit: 1 } }, \
                  { key: b, value: x, rate_limit: { unit: day, requests_per_unit: 2 } }";
    config_with(&CONFIG, "charging: count-denials", limits)
}

fn check_both(rules: &Shared) -> bool {
    rules.check("d", &[Descriptor::new(&[("b", "x")]), Descriptor::new(&[("a", "x")])]).is_allowed()
}

/// Decides a request for both limits in another way.
fn check_both_by(rules: &Shared, decide: impl FnOnce(&mut RequestCheck<'_>, CheckTime) -> bool) -> bool {
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let (one, other) = ([("b", "x")], [("a", "x")]);
    let descriptors = [Descriptor::new(&one), Descriptor::new(&other)];
    let when = CheckTime::read(&rules.clock);
    let mut decided = Few::new();
    let mut checks = RequestCheck::new(&mut decided);
    checks.find(domain, &one_unit(&descriptors), when.ns(), &rules.hasher);
    decide(&mut checks, when)
}

/// Asserts the law of [`count_denials`](super::count_denials) for two threads.
fn denials_are_charged_once(check: fn(&Shared) -> bool) {
    let rules = loaded(counting_denials());
    let other = Arc::clone(&rules);
    let checker = thread::spawn(move || check(&other));
    let here = check(&rules);
    let admitted = u64::from(here) + u64::from(checker.join().unwrap());
    assert!(admitted == 1, "the last unit of a is admitted once: {admitted}");
    let in_force = rules.in_force.load();
    let domain = in_force.domain("d").expect("there are rules");
    let used = |rule: usize| {
        let counter = domain.rules[rule].counter.local().expect("this process counts the rule");
        counter.generation.peek("", CheckTime::read(&rules.clock), 0).owed()
    };
    assert!(used(0) == 2, "the denied request is charged to the rule that denies it: {}", used(0));
    assert!(used(1) == 1, "the denied request is not charged to another rule: {}", used(1));
}

#[test]
fn denied_request_is_charged_to_its_denier() {
    explore_heavy(2, || denials_are_charged_once(check_both));
}

/// Reads all limits and then adds to them, in two steps.
#[test]
#[should_panic(expected = "is admitted once")]
fn control_read_before_add_admits_both() {
    let check = |rules: &Shared| {
        check_both_by(rules, |checks, when| {
            peek_together(checks, when);
            let admitted = checks.outcome() == Outcome::Allowed;
            checks.count(when);
            admitted
        })
    };
    explore(2, move || denials_are_charged_once(check));
}

/// Charges a denied request without a refund of the charges before it.
#[test]
#[should_panic(expected = "not charged to another rule")]
fn control_without_refund_charges_others() {
    let check = |rules: &Shared| {
        check_both_by(rules, |checks, when| {
            peek_together(checks, when);
            let admitted = checks.outcome() == Outcome::Allowed && checks.charge_all(when);
            checks.count_denials(admitted, when);
            admitted
        })
    };
    explore(2, move || denials_are_charged_once(check));
}
