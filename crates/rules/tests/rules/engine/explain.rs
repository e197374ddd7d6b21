//! `Rules::explain`: the reasons, and that it decides as a check does and charges nothing.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate_rules::{Charging, Descriptor, Explanation, FileEntry, Mismatch, Reason, Rules, Verdict};
use tollgate_testing::naive::glob;

use super::{Scene, config};

const TEXT: &[&str] = &["
  - { key: address, rate_limit: { unit: hour, requests_per_unit: 10 } }
  - { key: address, value: 10.0.0.1, rate_limit: { unit: hour, requests_per_unit: 99 } }
  - { key: address, value: 10.*, rate_limit: { unit: hour, requests_per_unit: 50 } }
  - key: path
    value: /login
    rate_limit: { unit: hour, requests_per_unit: 7 }
    descriptors:
      - { key: address, rate_limit: { unit: minute, requests_per_unit: 5 } }
      - { key: user, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - key: tenant
    rate_limit: { unit: hour, requests_per_unit: 1, enforced: 0% }
    tiers:
      gold: { members: [acme], rate_limit: { unit: hour, requests_per_unit: 100 } }
  - key: model
    rate_limits:
      - { unit: minute, requests_per_unit: 3, name: strict, replaces: [{ name: loose }] }
      - { unit: hour, requests_per_unit: 30, name: loose }
"];

type Entries<'a> = &'a [(&'a str, &'a str)];

fn explain(scene: &Scene, entries: Entries<'_>) -> Explanation {
    scene.rules.explain("d", &[Descriptor::new(entries)], 1)
}

/// Checks why rules apply or not. A line `KEY=VALUE ...` is a request, and the lines below it are rules, each with its reason.
#[track_caller]
fn reasons(scene: &Scene, rows: &str) {
    let mut request = Vec::new();
    for row in rows.lines().map(str::trim).filter(|row| !row.is_empty()) {
        match row.split_once(": ") {
            None => request = row.split(' ').filter_map(|entry| entry.split_once('=')).collect(),
            Some((rule, reason)) => {
                let explanation = explain(scene, &request);
                let one = explanation.rules().find(|one| *one.rule().identity == *rule);
                let said = one.map(|one| one.reason().to_string());
                assert_eq!(said.as_deref(), Some(reason), "{request:?}: {row}");
            }
        }
    }
}

// G121
#[test]
fn each_reason_is_named() {
    let scene = Scene::of(TEXT);
    // A rule that is not found at the first entry is listed with the rules below it.
    let rows = r#"
        address=10.0.0.1
            d|address=10.0.0.1: enforced
            d|address: entry 1 belongs to the descriptor with key "address" and value "10.0.0.1", which comes first
            d|address=10.*: entry 1 belongs to the descriptor with key "address" and value "10.0.0.1", which comes first
            d|tenant: the key of entry 1 is not "tenant"
        address=192.0.2.1
            d|address: enforced
            d|address=10.*: the value of entry 1 is not "10.*"
        path=/login
            d|path=/login: enforced
            d|path=/login|user: the request has no further entry, and the rule needs "user"
        path=/login user=ann
            d|path=/login: the request has more entries: 2 is one too many
            d|path=/login|user: shadow_mode: only reports
            d|path=/login|address: the key of entry 2 is not "address"
        path=/Login user=ann
            d|path=/login|user: the value of entry 1 is not "/login"
        tenant=acme
            d|tenant#tier=gold: enforced
            d|tenant: another tier applies
        tenant=globex
            d|tenant: enforced for 0 % of keys, and this key is not: only reports
            d|tenant#tier=gold: another tier applies
        model=m
            d|model#name=loose: replaced by "strict"
    "#;
    reasons(&scene, rows);
    let misspelt = explain(&scene, &[("path", "/Login"), ("user", "ann")]);
    assert_eq!(misspelt.rules().filter(|one| one.reason().applies()).count(), 0);
    let member = explain(&scene, &[("tenant", "acme")]);
    assert_eq!(member.rules().next().unwrap().rule().tier().as_deref(), Some("gold"));
    assert_eq!(explain(&scene, &[("model", "m")]).others(), 0);
    let own = Descriptor::new(&[("address", "192.0.2.1")]).limit(4, tollgate_rules::TimeUnit::Hour);
    let own = scene.rules.explain("d", &[own], 5);
    assert!(own.answer().is_never() && own.rules().any(|one| one.reason() == Reason::RequestLimit));
}

/// Ranges inside ranges, beside prefixes, tiers and classes.
const ADDRESSES: &[&str] = &["
  - key: ip
    prefixes:
      ipv4: { 32: { unit: hour, requests_per_unit: 3 }, 24: { unit: hour, requests_per_unit: 9 } }
      ipv6: { 64: { unit: hour, requests_per_unit: 3 }, 48: { unit: hour, requests_per_unit: 9 } }
    tiers:
      partner: { ranges: [192.0.2.0/24], rate_limit: { unit: hour, requests_per_unit: 50 } }
  - { key: ip, ranges: [10.0.0.0/8, 172.16.0.0/12], rate_limit: { unit: hour, requests_per_unit: 7 } }
  - key: ip
    ranges: [10.1.0.0/16]
    share_threshold: true
    descriptors:
      - { key: class, classes: { high: 100%, low: 50% }, rate_limit: { unit: hour, requests_per_unit: 8 } }
"];

/// A pattern that comes first hides others also if it is in capital letters.
#[test]
fn patterns_of_addresses_are_explained_in_any_case() {
    let scene = Scene::of(&[
        "key: ip, value: '2001:db8:a::1', rate_limit: { unit: hour, requests_per_unit: 7 }",
        "key: ip, value: '2001:DB8:A:*', rate_limit: { unit: hour, requests_per_unit: 7 }",
        "key: ip, ranges: [10.0.0.0/8]",
    ]);
    let rows = r#"
        ip=2001:db8:a::1
            d|ip=2001:DB8:A:*: entry 1 belongs to the descriptor with key "ip" and value "2001:db8:a::1", which comes first
    "#;
    reasons(&scene, rows);
}

// G121
#[test]
fn ranges_and_prefixes_are_explained() {
    let scene = Scene::of(ADDRESSES);
    let outside = explain(&scene, &[("ip", "198.51.100.7")]);
    assert_eq!(outside.others(), 0);
    let keys: Vec<_> = outside.rules().filter_map(|one| one.key()).collect();
    assert_eq!(keys, ["198.51.100.7/32", "198.51.100.0/24"]);
    // The longest prefix of each kind applies to a text that is no address.
    let rows = r#"
        ip=198.51.100.7
            d|ip#prefix=ipv6/64: the value of entry 1 is not an IPv6 address
            d|ip#tier=partner: another tier applies
            d|ip==10.0.0.0/8: the value of entry 1 is not in the ranges 10.0.0.0/8 and 1 more
            d|ip==10.1.0.0/16|class=low: the value of entry 1 is not in the range 10.1.0.0/16
        ip=2001:db8::7
            d|ip#prefix=ipv4/24: the value of entry 1 is not an IPv4 address
        ip=localhost
            d|ip#prefix=ipv4/32: enforced
            d|ip#prefix=ipv6/64: enforced
            d|ip#prefix=ipv4/24: the value of entry 1 is not an IPv4 address
            d|ip#prefix=ipv6/48: the value of entry 1 is not an IPv6 address
        ip=192.0.2.9
            d|ip#tier=partner: enforced
            d|ip#prefix=ipv4/32: another tier applies
            d|ip#prefix=ipv6/48: another tier applies
        ip=10.1.2.3 class=low
            d|ip==10.1.0.0/16|class=low: enforced
        ip=10.1.2.3
            d|ip==10.0.0.0/8: entry 1 belongs to the descriptor with key "ip" and the range 10.1.0.0/16, which comes first
            d|ip#prefix=ipv4/32: entry 1 belongs to the descriptor with key "ip" and the range 10.1.0.0/16, which comes first
        ip=192.0.2.9 class=low
            d|ip#prefix=ipv4/32: the request has more entries: 2 is one too many
            d|ip#prefix=ipv6/64: the request has more entries: 2 is one too many
            d|ip#tier=partner: the request has more entries: 2 is one too many
    "#;
    reasons(&scene, rows);
}

/// Explanations of addresses decide as checks, list each rule once, and give true reasons.
// G121
#[test]
fn explanation_of_addresses_agrees_with_check() {
    let scene = Scene::of(ADDRESSES);
    let values = ["10.1.2.3", "10.2.2.3", "192.0.2.9", "198.51.100.7", "::ffff:10.1.2.3", "2001:db8::7", "x"];
    for (round, value) in (0..8).flat_map(|round| values.map(|value| (round, value))) {
        let entries = [("ip", value), ("class", if round % 3 == 0 { "low" } else { "high" })];
        let entries = &entries[..1 + round % 2];
        let descriptor = Descriptor::new(entries);
        let descriptors = [if round % 4 == 3 { descriptor.tier("partner") } else { descriptor }];
        let explanation = scene.rules.explain("d", &descriptors, 1);
        let answer = scene.rules.check("d", &descriptors);
        assert_eq!(explanation.answer().outcome(), answer.outcome(), "{explanation:?}");
        let applied: Vec<_> =
            explanation.rules().filter_map(|one| Some(one.applied()?.name().to_owned())).collect();
        let found: Vec<_> = answer.limits().map(|limit| limit.name().to_owned()).collect();
        assert_eq!(applied, found, "{explanation:?}");
        assert_eq!(explanation.rules().count() + explanation.others(), 8, "{explanation:?}");
        let address = value.parse::<std::net::IpAddr>().map(|address| address.to_canonical());
        let is_in = |entry: FileEntry<'_>| {
            entry.ranges.iter().any(|range| address.as_ref().is_ok_and(|address| range.contains(address)))
        };
        for one in explanation.rules() {
            let is_true = match one.reason() {
                Reason::Misses(Mismatch::Family { is_ipv6, .. }) => {
                    let kind = if is_ipv6 { "#prefix=ipv6/" } else { "#prefix=ipv4/" };
                    let is_other = address.as_ref().map_or(true, |address| address.is_ipv6() != is_ipv6);
                    one.rule().identity.contains(kind) && is_other
                }
                Reason::Misses(Mismatch::Value { entry: 0, wanted }) => !is_in(wanted),
                Reason::Misses(Mismatch::Hidden { entry: 0, by }) => is_in(by),
                _ => true,
            };
            assert!(is_true, "{one:?} for {value}");
        }
    }
}

// G121
#[test]
fn explanation_has_figures_and_charges_nothing() {
    let scene = Scene::of(TEXT);
    let entries = [("address", "192.0.2.1")];
    let _ = scene.ask_n(&entries, 3);
    for _ in 0..20 {
        let explanation = scene.rules.explain("d", &[Descriptor::new(&entries)], 8);
        let first = explanation.rules().next().unwrap();
        let applied = first.applied().unwrap();
        assert_eq!((first.key(), applied.remaining(), applied.quota()), (Some("192.0.2.1"), 7, 10));
        assert_eq!((applied.verdict(), first.index(), first.descriptor()), (Verdict::Denied, 0, 0));
        assert!(explanation.answer().is_denied() && explanation.answer().retry_after().is_some());
    }
    assert!(scene.ask_n(&entries, 7).is_allowed(), "nothing was charged");
    let mut counts = Vec::new();
    scene.rules.for_each(|_, _, counted| counts.push(counted.requests()));
    assert_eq!(counts.iter().sum::<u64>(), 2, "nothing was counted");
}

#[test]
fn unknown_domain_is_explained() {
    let scene = Scene::of(TEXT);
    let explanation = scene.rules.explain("nope", &[Descriptor::new(&[("a", "b")])], 1);
    assert!(!explanation.answer().has_domain() && explanation.answer().is_allowed());
    assert_eq!((explanation.rules().count(), explanation.others()), (0, 0));
    assert_eq!(scene.rules.reloads().unknown_domains, 0, "no request asked");
}

// G121
#[test]
fn long_files_are_cut() {
    let values: Vec<String> = (0..5_000)
        .map(|at| {
            format!("  - {{ key: a, value: v{at}, rate_limit: {{ unit: hour, requests_per_unit: 1 }} }}\n")
        })
        .collect();
    let scene = Scene::new(&format!("domain: d\ndescriptors:\n{}", values.concat()));
    let explanation = explain(&scene, &[("a", "v7")]);
    assert_eq!(explanation.rules().count(), 21);
    assert_eq!(explanation.others(), 5_000 - 21);
    reasons(&scene, "a=v7\nd|a=v7: enforced");
}

/// A file with every option that changes a decision, in words that collide often.
const MIXED: &str = "
domain: d
tollgate: { CHARGING }
descriptors:
  - { key: k, rate_limit: { unit: hour, requests_per_unit: 6, name: one } }
  - key: k
    value: a*
    share_threshold: true
    rate_limit: { unit: hour, requests_per_unit: 4, algorithm: gcra, enforced: 50% }
  - key: k
    value: b
    quota_mode: true
    rate_limit: { unit: hour, requests_per_unit: 3, replaces: [{ name: one }] }
    descriptors:
      - { key: l, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: sliding-log } }
      - key: k
        shadow_mode: true
        rate_limit: { unit: minute, requests_per_unit: 2, algorithm: token-bucket }
  - key: l
    quota_mode: true
    rate_limits:
      - { unit: hour, requests_per_unit: 5, algorithm: sliding-window }
      - { unit: day, requests_per_unit: 8, soft: 2 }
    tiers:
      t: { members: [ab], rate_limit: { unit: hour, requests_per_unit: 0 } }
";

/// A descriptor of a request: its entries, tier and cost.
type Asked = (Vec<(&'static str, &'static str)>, Option<&'static str>, u64);

fn requests() -> impl Strategy<Value = Vec<Asked>> {
    let entry = (select(vec!["k", "l"]), select(vec!["a", "b", "ab", "c"]));
    let descriptor =
        (prop::collection::vec(entry, 1..3), prop::option::weighted(0.2, select(vec!["t", "u"])), 0_u64..6);
    prop::collection::vec(descriptor, 1..4)
}

proptest! {
    #![proptest_config(tollgate_testing::operations::config(96))]

    /// An explanation decides as the check that follows it, and lists the same rules. Each reason for a rule that does
    /// not apply is true of the rule's path.
    // G121
    #[test]
    fn explanation_agrees_with_check(
        charging in select(vec!["", "charging: count-first", "charging: count-denials"]),
        all in prop::collection::vec(requests(), 1..20),
    ) {
        let text = MIXED.replace("CHARGING", charging);
        let scene = Scene::new(&text);
        for request in &all {
            let each = request.iter().map(|(entries, tier, hits)| {
                let descriptor = Descriptor::new(entries).hits(*hits);
                tier.map_or(descriptor, |tier| descriptor.tier(tier))
            });
            let descriptors: Vec<_> = each.collect();
            let explanation = scene.rules.explain("d", &descriptors, 1);
            let again = scene.rules.explain("d", &descriptors, 1);
            prop_assert_eq!(format!("{explanation:?}"), format!("{again:?}"));
            let answer = scene.rules.check("d", &descriptors);
            prop_assert_eq!(explanation.answer().outcome(), answer.outcome(), "{:?} {:?}", explanation, answer);
            let applied: Vec<_> = explanation
                .rules()
                .filter_map(|one| Some((one.descriptor(), one.applied()?.name().to_owned())))
                .collect();
            let found: Vec<_> =
                answer.limits().map(|limit| (limit.descriptor(), limit.name().to_owned())).collect();
            prop_assert_eq!(applied, found);
            for one in explanation.rules() {
                let (entries, path) = (&request[one.descriptor()].0, one.rule().path());
                let fits = |at: usize| {
                    let ((key, value), (is_key, is_value)) = (&path[at], entries[at]);
                    (glob(key, is_key), value.as_ref().is_none_or(|value| glob(value, is_value)))
                };
                let is_true = match one.reason() {
                    Reason::Misses(Mismatch::Key { entry, .. }) => !fits(entry).0,
                    Reason::Misses(Mismatch::Value { entry, .. }) => fits(entry) == (true, false),
                    Reason::Misses(Mismatch::Hidden { entry, .. }) => fits(entry) == (true, true),
                    Reason::Misses(Mismatch::Missing { .. }) => path.len() > entries.len(),
                    Reason::Misses(Mismatch::Deeper { entry }) => path.len() == entry && entry < entries.len(),
                    _ => path.len() == entries.len() && (0..path.len()).all(|at| fits(at) == (true, true)),
                };
                prop_assert!(is_true, "{:?} of {:?} for {:?}", one.reason(), path, entries);
            }
        }
    }
}

/// A query with a cost of 0 is denied while the limit is exceeded, and the explanation must say so. It decided such queries as
/// `all-or-nothing` does, which admits them always.
// G121
#[test]
fn queries_are_explained_as_they_are_decided_if_requests_are_counted_first() {
    let text = "
domain: d
tollgate: { charging: count-first }
descriptors: [ { key: a, rate_limit: { unit: day, requests_per_unit: 2 } } ]
";
    let scene = Scene::new(text);
    let request = [Descriptor::new(&[("a", "x")])];
    for (used, cost, outcome) in [(0, 0, true), (1, 2, false), (1, 0, true), (0, 1, false), (1, 0, false)] {
        let _ = scene.rules.check_n("d", &request, used);
        let explained = scene.rules.explain("d", &request, cost);
        assert_eq!(explained.answer().is_allowed(), outcome, "{used} {cost}");
        let again = scene.rules.explain("d", &request, cost);
        assert_eq!(again.answer().is_allowed(), outcome, "an explanation charges nothing");
        let decided = if cost == 0 { scene.rules.check_n("d", &request, 0) } else { continue };
        assert_eq!(decided.is_allowed(), outcome, "{used} {cost}");
    }
    // Two descriptors of one key: the first one uses the last unit, and the second one exceeds the limit.
    let both = [Descriptor::new(&[("a", "y")]), Descriptor::new(&[("a", "y")])];
    let _ = scene.rules.check_n("d", &both[..1], 1);
    assert!(scene.rules.explain("d", &both, 1).answer().is_denied());
    assert!(scene.rules.check("d", &both).is_denied());
}

#[test]
fn dry_run_is_a_reason() {
    let text = "
domain: d
tollgate: { shadow: true }
descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ]
";
    let rules = Rules::builder().charging(Charging::AllOrNothing).load([config(text)]).unwrap();
    let explanation = rules.explain("d", &[Descriptor::new(&[("a", "x")])], 2);
    let first = explanation.rules().next().unwrap();
    assert_eq!(first.reason(), Reason::DryRun);
    assert!(explanation.answer().is_shadow_denied() && explanation.answer().is_allowed());
}
