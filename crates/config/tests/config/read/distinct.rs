//! `distinct` in files: forms that are read, and forms that are errors.

use super::support::{good, problem, rejected};

fn below(descriptor: &str) -> String {
    format!(
        "{{ domain: d, tollgate: {{}}, descriptors: [ {{ key: address, descriptors: [ {{ {descriptor} }} ] }} ] }}"
    )
}

fn limit(more: &str) -> String {
    format!("rate_limit: {{ unit: hour, requests_per_unit: 10, distinct: true, {more} }}")
}

#[test]
fn distinct_is_read() {
    let config = good(&below(&format!("key: user, {}", limit(""))));
    assert!(config.rules()[0].distinct && config.rules()[0].counted_by == 0b01, "{config:?}");
    let config = good(&below(&format!("key: user, {}", limit("").replace("true", "false"))));
    assert!(!config.rules()[0].distinct && config.rules()[0].counted_by == 0b11);
    good(&below(&format!("key: user, ranges: [10.0.0.0/8], {}", limit(""))));
    good(&below(&format!("key: user, value: 'a*', {}", limit(""))));
    good(&below(&format!(
        "key: user, {}",
        limit("store: keyed, soft: 5, headers: false, enforced: 10%, name: users")
    )));
}

#[test]
fn bad_combinations_are_refused() {
    let rows = r#"
        key: user, LIMIT algorithm: gcra } => gcra counts no different values ... algorithm: fixed-window
        key: user, LIMIT algorithm: sliding-window } => sliding-window counts no different values
        key: user, LIMIT store: sketch } => the sketch store counts no different values ... store: compact or keyed
        key: user, LIMIT store: redis } => the redis store counts no different values ... store: compact or keyed
        key: user, LIMIT block: 10m } => fixed-window does not use block
        key: user, rate_limit: { unit: hour, requests_per_unit: 10, distinct: user } => distinct
        key: user, rate_limit: { unlimited: true, distinct: true } => distinct cannot be used with unlimited: true
        key: user, rate_limit: { unit: hour, requests_per_unit: 0, distinct: true } => the limit is 0 ... remove it
        key: user, value: bob, LIMIT } => this descriptor has one value
        key: user, value: 'b*', share_threshold: true, LIMIT } => a count for all of its values ... share_threshold
        key: user, classes: { high: 100%, low: 50% }, LIMIT } => cannot be used with classes
        key: user, tiers: { vip: { members: [ann], LIMIT } } } => cannot be used in a tier ... outside tiers
    "#;
    let open = limit("");
    let open = open.trim_end_matches([' ', '}']);
    rejected(rows, |descriptor| below(&descriptor.replace("LIMIT", &format!("{open} "))));
    let prefix = "{ unit: hour, requests_per_unit: 10, distinct: true }";
    let prefixes = format!("key: client, prefixes: {{ ipv4: {{ 32: {prefix} }}, ipv6: {{ 64: {prefix} }} }}");
    let said = r#"
            cannot be used with prefixes
            cannot be used with prefixes
    "#;
    problem(&below(&prefixes), said);
    for charging in ["count-first", "count-denials"] {
        let text = below(&format!("key: user, {}", limit("")));
        let text = text.replace("tollgate: {}", &format!("tollgate: {{ charging: {charging} }}"));
        problem(&text, "cannot be used with charging ... use charging: all-or-nothing");
    }
    let plain = below(&format!("key: user, {}", limit(""))).replace("tollgate: {}, ", "");
    problem(&plain, "distinct ... tollgate: {}");
}
