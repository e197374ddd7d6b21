//! `distinct: true`: a limit on the number of different values of a key.

use std::time::Duration;

use tollgate::Timestamp;
use tollgate_rules::{Charging, Descriptor, Verdict};

use super::{START, Scene, one};

type Entries<'a> = [(&'a str, &'a str); 2];

/// A limit of three user names of an address in an hour.
fn names(more: &str) -> String {
    format!(
        "{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: address, descriptors: [ {{ key: user, rate_limit: \
         {{ unit: hour, requests_per_unit: 3, distinct: true, {more} }} }} ] }} ] }}"
    )
}

const fn of<'a>(address: &'a str, user: &'a str) -> Entries<'a> {
    [("address", address), ("user", user)]
}

fn left(scene: &Scene, entries: &[(&str, &str)]) -> u32 {
    scene.ask_n(entries, 0).remaining(0)
}

#[test]
fn query_counts_no_value_and_explanation_neither() {
    let scene = Scene::new(&names(""));
    assert!(scene.ask_n(&of("A", "ann"), 0).is_allowed());
    assert_eq!(left(&scene, &of("A", "ann")), 3);
    let [entries, known] = [of("A", "ann"), of("A", "bob")];
    assert!(scene.ask(&known).is_allowed());
    for _ in 0..5 {
        for (entries, units) in [(&entries, 2), (&known, 2)] {
            let descriptors = [Descriptor::new(entries)];
            let explained = scene.rules.explain("d", &descriptors, 1);
            let rule = explained.rules().next().unwrap();
            assert!(rule.rule().distinct && rule.key() == Some("A"));
            assert_eq!(rule.applied().unwrap().decision().unwrap().remaining(), units);
        }
    }
    assert_eq!(left(&scene, &of("A", "ann")), 2);
}

#[test]
fn without_other_entries_all_requests_share_the_count() {
    let scene = Scene::new(&one("{ unit: minute, requests_per_unit: 2, distinct: true }"));
    let admitted = |value: &str| scene.ask(&[("a", value)]).is_allowed();
    assert_eq!(["x", "y", "z", "x", "y", "z"].map(admitted), [true, true, false, true, true, false]);
}

// G119
#[test]
fn value_that_another_rule_denies_is_not_known() {
    let text = "{ domain: d, tollgate: {}, descriptors: [ { key: user, rate_limit: { unit: hour, requests_per_unit: 2, \
                distinct: true } }, { key: all, rate_limit: { unit: minute, requests_per_unit: 1 } } ] }";
    let scene = Scene::new(text);
    let all = [("all", "x")];
    assert!(scene.ask(&all).is_allowed());
    for user in ["a", "b", "c", "d"] {
        assert!(scene.ask_both(&[("user", user)], &all).is_denied());
    }
    assert_eq!(left(&scene, &[("user", "a")]), 2);
    scene.advance(60);
    assert!(scene.ask_both(&[("user", "a")], &all).is_allowed());
    assert_eq!(left(&scene, &[("user", "a")]), 1, "the value is counted with the request");
    // Both orders of the descriptors.
    scene.advance(60);
    assert!(scene.ask(&all).is_allowed());
    assert!(scene.ask_both(&all, &[("user", "b")]).is_denied());
    assert_eq!(left(&scene, &[("user", "a")]), 1);
}

// G119
#[test]
fn one_request_may_name_several_values() {
    let scene = Scene::new(&names(""));
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|user| of("A", user));
    let ask = |all: &[&Entries<'_>]| {
        let all: Vec<Descriptor<'_>> = all.iter().map(|entries| Descriptor::new(&entries[..])).collect();
        scene.rules.check("d", &all).is_allowed()
    };
    assert!(ask(&[&a, &b]));
    assert_eq!(left(&scene, &a), 1);
    assert!(!ask(&[&a, &c, &d]), "one is left for two new values");
    assert_eq!(left(&scene, &a), 1);
    assert!(ask(&[&a, &b, &c]) && !ask(&[&a, &d]));
}

// G119
#[test]
fn refund_keeps_the_value_and_its_unit() {
    let scene = Scene::new(&names(""));
    let entries = of("A", "ann");
    let descriptors = [Descriptor::new(&entries)];
    let answer = scene.rules.check("d", &descriptors);
    scene.rules.refund(&descriptors, &answer);
    assert_eq!(left(&scene, &entries), 2);
    let other = of("A", "bob");
    assert!(scene.rules.refund_n("d", &[Descriptor::new(&other)], 1));
    assert_eq!(left(&scene, &entries), 2);
    assert!(scene.ask(&entries).is_allowed());
    assert_eq!(left(&scene, &entries), 2);
}

#[test]
fn loads_that_change_more_than_the_number() {
    let scene = Scene::new(&names(""));
    for user in ["a", "b", "c"] {
        assert!(scene.ask(&of("A", user)).is_allowed());
    }
    scene.reload(&names("name: users"));
    assert!(scene.ask(&of("A", "a")).is_allowed() && scene.ask(&of("A", "d")).is_denied());
    // Without `distinct`, the pairs have counts of their own, and then the values are new.
    scene.reload(&names("").replace("distinct: true,", ""));
    assert_eq!(scene.admitted(&of("A", "a"), 5), 3);
    scene.reload(&names(""));
    assert_eq!(left(&scene, &of("A", "a")), 3);
    // Another period keeps the count, and knows no value.
    assert!(scene.ask(&of("A", "a")).is_allowed());
    scene.reload(&names("").replace("unit: hour", "unit: day"));
    assert_eq!(left(&scene, &of("A", "a")), 2);
    assert!(scene.ask(&of("A", "a")).is_allowed());
    assert_eq!(left(&scene, &of("A", "a")), 1);
}

#[test]
fn shadow_dry_run_and_quota_rules_count_values() {
    let shadow = names("").replace("key: user,", "key: user, shadow_mode: true,");
    let scene = Scene::new(&shadow);
    for user in ["a", "b", "c", "d", "d", "a"] {
        assert!(scene.ask(&of("A", user)).is_allowed());
    }
    scene.rules.for_each(|_, _, counts| {
        assert_eq!((counts.allowed, counts.shadow_denied), (3, 2), "new values, and denied ones");
    });
    let verdict = |user| {
        let entries = of("A", user);
        let answer = scene.ask(&entries);
        answer.limits().next().unwrap().verdict()
    };
    assert_eq!([verdict("a"), verdict("e")], [Verdict::Allowed, Verdict::ShadowDenied]);

    let scene = Scene::new(&names("").replace("tollgate: {}", "tollgate: { shadow: true }"));
    for user in ["a", "b", "c", "d"] {
        assert!(scene.ask(&of("A", user)).is_allowed());
    }
    assert_eq!(left(&scene, &of("A", "a")), 0);

    let scene = Scene::new(&names("").replace("key: user,", "key: user, quota_mode: true,"));
    let admitted = ["a", "b", "c", "d", "a"].map(|user| scene.ask(&of("A", user)).is_allowed());
    assert_eq!(admitted, [true, true, true, false, true]);
}

#[test]
fn soft_limit_marks_new_values_beyond_it() {
    let scene = Scene::new(&names("soft: 1"));
    let mark = |user| scene.ask(&of("A", user)).is_soft_limited();
    assert_eq!(["a", "b", "a", "c"].map(mark), [false, true, false, true]);
}

#[test]
fn half_of_the_keys_may_be_enforced() {
    let scene = Scene::new(&names("enforced: 50%"));
    let mut denied = 0;
    for address in 0..200 {
        let address = address.to_string();
        for user in ["a", "b", "c"] {
            assert!(scene.ask(&of(&address, user)).is_allowed());
        }
        denied += usize::from(scene.ask(&of(&address, "d")).is_denied());
    }
    assert!((60..140).contains(&denied), "{denied}");
}

#[test]
fn other_limits_of_the_descriptor_count_as_always() {
    let text = names("")
        .replace("rate_limit: {", "rate_limits: [ { name: pair, unit: hour, requests_per_unit: 4 }, {");
    let text = text.replace("distinct: true,  } }", "distinct: true } ] }");
    let scene = Scene::new(&text);
    assert_eq!(scene.admitted(&of("A", "a"), 9), 4, "four requests of the pair");
    assert_eq!(["b", "c", "d"].map(|user| scene.ask(&of("A", user)).is_allowed()), [true, true, false]);
}

#[test]
fn charging_that_counts_denials_is_refused() {
    for charging in [Charging::CountFirst, Charging::CountDenials] {
        let error = Scene::try_new(&names(""), Some(charging)).err().unwrap().to_string();
        let part = "distinct counts no value that is denied; use charging: all-or-nothing";
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn example_of_the_guide_limits_names_and_tries() {
    let guide = include_str!("../../../../../docs/distinct_values.md");
    let text = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let scene = Scene::new(text);
    let of = |user| [("remote_address", "192.0.2.1"), ("user_name", user)];
    assert_eq!(scene.admitted(&of("alice"), 9), 5, "five tries a minute");
    let names: Vec<String> = (0..20).map(|user| user.to_string()).collect();
    assert_eq!(names.iter().filter(|user| scene.ask(&of(user)).is_allowed()).count(), 9);
    scene.advance(60);
    assert_eq!((scene.admitted(&of("alice"), 9), scene.admitted(&of("bob"), 9)), (5, 0));
}

/// A value that a request names twice is one value.
// G119
#[test]
fn value_that_a_request_names_twice_is_counted_once() {
    let scene = Scene::new(&names(""));
    assert!(scene.ask(&of("A", "a")).is_allowed() && scene.ask(&of("A", "b")).is_allowed());
    assert!(scene.ask_both(&of("A", "c"), &of("A", "c")).is_allowed(), "one is left for one new value");
    assert_eq!(left(&scene, &of("A", "c")), 0);
    assert!(scene.ask_both(&of("A", "d"), &of("A", "d")).is_denied());
    // One quota with room admits a request, and a value that was denied is no such quota.
    let scene = Scene::new(&names("").replace("key: user,", "key: user, quota_mode: true,"));
    assert!(scene.ask(&of("A", "a")).is_allowed() && scene.ask(&of("A", "b")).is_allowed());
    assert!(scene.ask_both(&of("A", "c"), &of("A", "c")).is_allowed());
    assert!(scene.ask_both(&of("A", "d"), &of("A", "d")).is_denied());
}

/// Regression test. Other values had begun a window for the key. A late value was counted there, but was inserted into the
/// window before, so its next request took another unit.
// G119
#[test]
fn late_value_is_known_in_the_window_that_counts_it() {
    for store in ["compact", "keyed"] {
        let scene = Scene::new(&names(&format!("store: {store}")));
        let late = Timestamp::from_nanos(START.as_nanos() - 1);
        let check = |at, name: &'static str| {
            scene.rules.at(at).check("d", &[Descriptor::new(&of("A", name))]).is_allowed()
        };
        assert!(check(START, "ann") && check(late, "bob") && check(START, "bob"));
        assert_eq!(left(&scene, &of("A", "x")), 1, "{store}: the value is counted once");
    }
}

/// Regression test. A value whose word of the filter had values of a wrong time was not kept, and took a unit of its key with
/// each request.
// G40
#[test]
fn wrong_time_of_one_key_takes_no_units_of_others() {
    const LIMIT: u32 = 100_000;
    let scene = Scene::new(&names("memory: 64KiB").replace("unit: 3", &format!("unit: {LIMIT}")));
    let check = |at, address, name: &str| {
        scene.rules.at(at).check("d", &[Descriptor::new(&of(address, name))]).is_allowed()
    };
    let day_ahead = START + Duration::from_secs(86_400);
    // The filter has 8,192 words, and the wrong time is in nearly all of them.
    assert!((0..30_000).all(|value| check(day_ahead, "A", &value.to_string())));
    for _ in 0..2 {
        assert!((0..50).all(|value| check(START, "B", &value.to_string())));
    }
    assert_eq!(left(&scene, &of("B", "x")), LIMIT - 50);
}
