//! What limits of each kind decide, step by step: one list for the library, for rules in this process and on a server, for
//! the layer, and for the answers of the service. The expected answers are written here only.

/// The time of each case's first step: 2026-03-29 in Berlin, a day of 23 hours. It begins an hour of UTC.
pub(crate) const START: u64 = 1_774_738_800;

/// A kind of limit, and what it decides.
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// The descriptors of a file of rules.
    rules: &'static str,
    steps: &'static [Step],
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Block,
    CompactBlock,
    Classes,
    Calendar,
    Ranges,
    Prefixes,
    Distinct,
}

/// The seconds after the last step, the entries of a request that costs one unit, and the answer.
type Step = (u64, &'static [(&'static str, &'static str)], Expected);

#[derive(Copy, Clone, Debug)]
enum Expected {
    /// The units that are left afterwards.
    Admitted(u64),
    /// Denied with no unit left: the seconds until the same request is admitted.
    Denied(u64),
    /// Denied by a block: the seconds until it ends.
    Blocked(u64),
}

/// What one side says. `None`: it does not say that.
pub(crate) struct Seen {
    pub(crate) is_allowed: bool,
    pub(crate) left: u64,
    pub(crate) wait: Option<u64>,
    pub(crate) is_block: Option<bool>,
}

use Expected::{Admitted, Blocked, Denied};

const CASES: &[Case] = &[
    Case {
        kind: Kind::Block,
        rules: "[{ key: address, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: { for: 10m, \
                at_most: 1h } } }]",
        steps: &[
            (0, &[("address", "A")], Admitted(1)),
            (0, &[("address", "A")], Admitted(0)),
            (0, &[("address", "A")], Blocked(600)),
            (0, &[("address", "B")], Admitted(1)),
            (599, &[("address", "A")], Blocked(1)),
            (1, &[("address", "A")], Admitted(0)),
            (0, &[("address", "A")], Blocked(1_200)),
            (1_200, &[("address", "A")], Admitted(0)),
        ],
    },
    Case {
        kind: Kind::CompactBlock,
        rules: "[{ key: address, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: 10m, \
                store: compact } }]",
        steps: &[
            (0, &[("address", "A")], Admitted(1)),
            (0, &[("address", "A")], Admitted(0)),
            (0, &[("address", "A")], Blocked(600)),
            (0, &[("address", "B")], Admitted(1)),
            (599, &[("address", "A")], Blocked(1)),
            (1, &[("address", "A")], Admitted(0)),
            (0, &[("address", "A")], Blocked(600)),
        ],
    },
    Case {
        kind: Kind::Classes,
        rules: "[{ key: class, classes: { high: 100%, low: 50% }, rate_limit: { unit: minute, requests_per_unit: 4 } }]",
        steps: &[
            (0, &[("class", "low")], Admitted(1)),
            (0, &[("class", "low")], Admitted(0)),
            (0, &[("class", "low")], Denied(60)),
            (0, &[("class", "high")], Admitted(1)),
            (0, &[("class", "high")], Admitted(0)),
            (20, &[("class", "high")], Denied(40)),
            (0, &[("class", "low")], Denied(40)),
            (40, &[("class", "low")], Admitted(1)),
        ],
    },
    Case {
        kind: Kind::Calendar,
        rules: "[{ key: account, rate_limit: { period: day, time_zone: Europe/Berlin, requests_per_unit: 2 } }]",
        steps: &[
            (0, &[("account", "A")], Admitted(1)),
            (0, &[("account", "A")], Admitted(0)),
            (0, &[("account", "A")], Denied(23 * 3_600)),
            (23 * 3_600 - 1, &[("account", "A")], Denied(1)),
            (1, &[("account", "A")], Admitted(1)),
        ],
    },
    Case {
        kind: Kind::Ranges,
        rules: "[{ key: address, ranges: [10.0.0.0/8], rate_limit: { unit: hour, requests_per_unit: 1 } }, \
                { key: address, ranges: [10.1.0.0/16], rate_limit: { unit: hour, requests_per_unit: 3 } }, \
                { key: address, value: 10.1.0.7, rate_limit: { unit: hour, requests_per_unit: 2 } }]",
        steps: &[
            (0, &[("address", "10.2.0.1")], Admitted(0)),
            (0, &[("address", "10.2.0.1")], Denied(3_600)),
            (0, &[("address", "10.2.0.2")], Admitted(0)),
            (0, &[("address", "10.1.0.1")], Admitted(2)),
            (0, &[("address", "10.1.0.7")], Admitted(1)),
            (3_600, &[("address", "10.2.0.1")], Admitted(0)),
        ],
    },
    Case {
        kind: Kind::Prefixes,
        rules: "[{ key: address, prefixes: { ipv4: { 32: { unit: hour, requests_per_unit: 2 }, 24: { unit: hour, \
                requests_per_unit: 3 } }, ipv6: { 64: { unit: hour, requests_per_unit: 2 } } } }]",
        steps: &[
            (0, &[("address", "203.0.113.1")], Admitted(1)),
            (0, &[("address", "203.0.113.1")], Admitted(0)),
            (0, &[("address", "203.0.113.1")], Denied(3_600)),
            (0, &[("address", "203.0.113.2")], Admitted(0)),
            (1, &[("address", "203.0.113.3")], Denied(3_599)),
            (0, &[("address", "2001:db8::1")], Admitted(1)),
            (0, &[("address", "2001:db8::2")], Admitted(0)),
            (0, &[("address", "2001:db8::3")], Denied(3_599)),
        ],
    },
    Case {
        kind: Kind::Distinct,
        rules: "[{ key: address, descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 2, \
                distinct: true } }] }]",
        steps: &[
            (0, &[("address", "A"), ("user", "ann")], Admitted(1)),
            (0, &[("address", "A"), ("user", "bob")], Admitted(0)),
            (0, &[("address", "A"), ("user", "ann")], Admitted(0)),
            (0, &[("address", "A"), ("user", "cid")], Denied(3_600)),
            (0, &[("address", "B"), ("user", "cid")], Admitted(1)),
            (3_599, &[("address", "A"), ("user", "cid")], Denied(1)),
            (0, &[("address", "A"), ("user", "bob")], Admitted(0)),
            (1, &[("address", "A"), ("user", "cid")], Admitted(1)),
        ],
    },
];

/// Returns the cases; those of calendars only if there are calendars.
pub(crate) fn cases(has_calendars: bool) -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(move |case| has_calendars || case.kind != Kind::Calendar)
}

impl Case {
    /// Returns the rules as a file of the domain `alike`, with more settings of the file.
    #[allow(dead_code, reason = "the library needs no file")]
    pub(crate) fn text(&self, settings: &str) -> String {
        let rules = self.rules;
        format!("domain: alike\ntollgate: {{ charging: all-or-nothing, {settings} }}\ndescriptors: {rules}\n")
    }

    /// Asks each request at its time, in seconds, and compares the answer.
    pub(crate) fn play(&self, mut ask: impl FnMut(u64, &[(&str, &str)]) -> Seen) {
        let mut now = START;
        for ((after, entries, expected), number) in self.steps.iter().zip(1..) {
            now += after;
            let Seen { is_allowed, left, wait, is_block } = ask(now, entries);
            let said = (is_allowed, left, wait.unwrap_or_default(), is_block.unwrap_or_default());
            let right = match *expected {
                Admitted(left) => (true, left, 0, false),
                Denied(seconds) => (false, 0, wait.map_or(0, |_| seconds), false),
                Blocked(seconds) => (false, 0, wait.map_or(0, |_| seconds), is_block.is_some()),
            };
            assert_eq!(said, right, "{:?}, step {number}: {entries:?} is {expected:?}", self.kind);
        }
    }
}
