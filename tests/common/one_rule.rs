//! Rules of one limit, for tests that replace them.

use tollgate_rules::{Descriptor, Rules};

/// Returns rules with this limit.
pub(crate) fn text(limit: u32) -> String {
    format!(
        "{{ domain: d, descriptors: [ {{ key: a, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }} ] }}"
    )
}

/// Returns the limit in force.
pub(crate) fn quota(rules: &Rules) -> u64 {
    let answer = rules.check_n("d", &[Descriptor::new(&[("a", "x")])], 0);
    answer.limits().next().map_or(0, |limit| limit.quota())
}
