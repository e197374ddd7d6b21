//! What limits of each kind decide, step by step: one list for the library, for rules in this process and on a server, for
//! limits that processes share, for the layer, and for the answers of the service. The expected answers are written here
//! only.
//!
//! Each case runs three times: as it is written, with a load of the same limits after each step, and with a restart
//! after each step. Neither may change an answer.

/// The time of each case's first step: 2026-03-29 in Berlin, a day of 23 hours. It begins an hour of UTC.
const START: u64 = 1_774_738_800;

/// The entries of a request.
pub(crate) type Entries = &'static [(&'static str, &'static str)];

/// A place that limits requests. It panics if a case uses what it does not have.
pub(crate) trait Surface {
    /// Asks for units at a time in seconds.
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen;

    /// The rules of a process that this surface asks.
    fn process(&mut self) -> Option<&mut dyn Surface> {
        None
    }

    /// Loads this limit of the library, or these descriptors of a file, while requests have units in use. Returns
    /// whether the surface keeps those units at such a change.
    fn load(&mut self, limit: &str, rules: &str) -> bool {
        self.process().is_some_and(|process| process.load(limit, rules))
    }

    /// Ends the process, and starts another one with its state.
    fn restart(&mut self) {
        self.process().expect("this surface has a snapshot").restart();
    }

    /// Holds units for a time in seconds. The first hold has the number 0.
    fn hold(&mut self, _now: u64, _entries: Entries, _units: u64, _life: u64) -> Seen {
        panic!("this surface has no holds")
    }

    /// Settles a hold. Returns whether it was still there, if the surface says that.
    fn commit(&mut self, _now: u64, _entries: Entries, _hold: usize, _used: u64) -> Option<bool> {
        panic!("this surface has no holds")
    }
}

/// What happens after each step of a case.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Between {
    Nothing,
    Load,
    Restart,
}

/// Everything that can happen after a step.
#[allow(dead_code, reason = "limiters of any store have no snapshot")]
pub(crate) const ALL: [Between; 3] = [Between::Nothing, Between::Load, Between::Restart];

/// A kind of limit, and what it decides.
pub(crate) struct Case {
    pub(crate) kind: Kind,
    /// The limit as a text of the library. For kinds without such a text: its number of units.
    pub(crate) limit: &'static str,
    /// The descriptors of a file of rules.
    pub(crate) rules: &'static str,
    steps: &'static [Step],
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// An algorithm whose shared state does not depend on the quota.
    Counts,
    /// An algorithm whose shared state is an amount of time.
    Times,
    OtherAlgorithm,
    Block,
    CompactBlock,
    Classes,
    Calendar,
    CalendarClasses,
    Ranges,
    Prefixes,
    Distinct,
    Holds,
    InProgress,
}

/// A step of a case. The first number is the seconds after the last step.
#[derive(Copy, Clone, Debug)]
enum Step {
    /// Asks for units.
    Ask(u64, Entries, u64, Expected),
    /// Loads limits with another text in the place of the first one.
    Change(&'static str, &'static str),
    /// Holds units for a minute.
    Hold(u64, Entries, u64, Expected),
    /// Settles the hold with this number. The last value is whether it is still there.
    Commit(u64, Entries, usize, u64, bool),
}

#[derive(Copy, Clone, Debug)]
enum Expected {
    /// The units that are left afterwards.
    Admitted(u64),
    /// Admitted. How much is left depends on the surface.
    Free,
    /// Denied with no unit left: the seconds until the same request is admitted.
    Denied(u64),
    /// Denied. How long depends on the algorithm.
    Full,
    /// Denied by a block: the seconds until it ends.
    Blocked(u64),
    /// More units than the limit ever has.
    Never,
}

/// What a surface says. `None`: it does not say that.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) is_allowed: bool,
    pub(crate) left: Option<u64>,
    pub(crate) wait: Option<u64>,
    pub(crate) is_block: Option<bool>,
}

use Expected::{Admitted, Blocked, Denied, Free, Full, Never};
use Step::{Ask, Change, Commit, Hold};

const A: Entries = &[("key", "A")];
const B: Entries = &[("key", "B")];
const LOW: Entries = &[("class", "low")];
const HIGH: Entries = &[("class", "high")];

/// Units stay in use when the limit changes.
const CHANGES: &[Step] = &[
    Ask(0, A, 6, Admitted(4)),
    Ask(0, B, 1, Admitted(9)),
    Ask(0, A, 5, Full),
    Ask(0, A, 11, Never),
    Change("10", "20"),
    Ask(0, A, 1, Admitted(13)),
    Change("20", "8"),
    Ask(0, A, 1, Admitted(0)),
    Ask(0, A, 1, Full),
    Change("8", "10"),
    Ask(0, A, 1, Admitted(1)),
    Ask(0, B, 9, Admitted(0)),
];

/// The case of an algorithm, as it is called in the library and in a file, with [`CHANGES`].
macro_rules! changes {
    ($kind:ident, $library:literal, $file:literal) => {
        Case {
            kind: Kind::$kind,
            limit: concat!($library, " 10/h"),
            rules: concat!(
                "[{ key: key, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: ",
                $file,
                " } }]"
            ),
            steps: CHANGES,
        }
    };
}

const CASES: &[Case] = &[
    changes!(Counts, "fixed-window", "fixed-window"),
    changes!(Counts, "sliding-window", "sliding-window"),
    changes!(Counts, "sub-window(6)", "sub-window, parts: 6"),
    changes!(Counts, "sliding-log", "sliding-log"),
    changes!(Times, "gcra", "gcra"),
    changes!(Times, "token-bucket", "token-bucket"),
    changes!(Times, "leaky-bucket", "leaky-bucket"),
    Case {
        kind: Kind::OtherAlgorithm,
        limit: "fixed-window 10/h",
        rules: "[{ key: key, rate_limit: { unit: hour, requests_per_unit: 10, algorithm: fixed-window } }]",
        steps: &[
            Ask(0, A, 6, Admitted(4)),
            Change("fixed-window", "gcra"),
            Ask(0, A, 1, Admitted(3)),
            Change("gcra", "sliding-window"),
            Ask(0, A, 1, Admitted(2)),
            Change("sliding-window", "token-bucket"),
            Ask(0, A, 1, Admitted(1)),
            Change("token-bucket", "sliding-log"),
            Ask(0, A, 1, Admitted(0)),
            Change("sliding-log", "sub-window"),
            Ask(0, A, 1, Full),
            Change("sub-window", "fixed-window"),
            Ask(0, A, 1, Full),
            Ask(7_200, A, 1, Admitted(9)),
        ],
    },
    Case {
        kind: Kind::Block,
        limit: "2/min block 10min to 1h",
        rules: "[{ key: key, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: { for: 10m, \
                at_most: 1h } } }]",
        steps: &[
            Ask(0, A, 3, Never),
            Ask(0, A, 1, Admitted(1)),
            Ask(0, A, 1, Admitted(0)),
            Ask(0, A, 3, Never),
            Ask(0, A, 1, Blocked(600)),
            Ask(0, B, 1, Admitted(1)),
            Ask(599, A, 1, Blocked(1)),
            Ask(1, A, 1, Admitted(0)),
            Ask(0, A, 1, Blocked(1_200)),
            Ask(1_199, A, 1, Blocked(1)),
            Ask(1, A, 1, Admitted(0)),
            Ask(0, A, 1, Blocked(2_400)),
            Ask(2_400, A, 1, Admitted(0)),
            Ask(0, A, 1, Blocked(3_600)),
            Ask(3_600, A, 1, Admitted(0)),
            Ask(0, A, 1, Blocked(3_600)),
            // The key owes nothing after a minute, and then has a quiet time as long as its last block.
            Ask(3_600, A, 1, Admitted(0)),
            Ask(60 + 3_600, A, 2, Admitted(0)),
            Ask(0, A, 1, Blocked(600)),
        ],
    },
    Case {
        kind: Kind::Block,
        limit: "2/min block 10min",
        rules: "[{ key: key, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: 10m } }]",
        steps: &[
            Ask(0, A, 2, Admitted(0)),
            Ask(0, A, 1, Blocked(600)),
            Change("2", "7"),
            Ask(60, A, 1, Blocked(540)),
            Change("7", "50"),
            Ask(60, A, 1, Blocked(480)),
            Change("50", "2"),
            Ask(479, A, 1, Blocked(1)),
            Ask(1, A, 1, Free),
        ],
    },
    Case {
        kind: Kind::CompactBlock,
        limit: "2/min block 10min",
        rules: "[{ key: key, rate_limit: { unit: minute, requests_per_unit: 2, algorithm: gcra, block: 10m, \
                store: compact } }]",
        steps: &[
            Ask(0, A, 1, Admitted(1)),
            Ask(0, A, 1, Admitted(0)),
            Ask(0, A, 3, Never),
            Ask(0, A, 1, Blocked(600)),
            Ask(0, B, 1, Admitted(1)),
            Ask(599, A, 1, Blocked(1)),
            Ask(1, A, 1, Admitted(0)),
            Ask(0, A, 1, Blocked(600)),
        ],
    },
    Case {
        kind: Kind::Classes,
        limit: "fixed-window 4/min",
        rules: "[{ key: class, classes: { high: 100%, low: 50% }, rate_limit: { unit: minute, requests_per_unit: 4 } }]",
        steps: &[
            Ask(0, LOW, 1, Admitted(1)),
            Ask(0, LOW, 1, Admitted(0)),
            Ask(0, LOW, 1, Denied(60)),
            Ask(0, HIGH, 1, Admitted(1)),
            Ask(0, HIGH, 1, Admitted(0)),
            Ask(20, HIGH, 1, Denied(40)),
            Ask(0, LOW, 1, Denied(40)),
            Ask(40, LOW, 1, Admitted(1)),
            Ask(0, LOW, 3, Never),
            Change("50%", "75%"),
            Ask(0, LOW, 1, Admitted(1)),
            Change("4", "8"),
            Ask(0, LOW, 1, Admitted(3)),
            Ask(0, HIGH, 1, Admitted(4)),
        ],
    },
    Case {
        kind: Kind::Calendar,
        limit: "2",
        rules: "[{ key: key, rate_limit: { period: day, time_zone: Europe/Berlin, requests_per_unit: 2 } }]",
        steps: &[
            Ask(0, A, 1, Admitted(1)),
            Ask(0, A, 1, Admitted(0)),
            Ask(0, A, 1, Denied(23 * 3_600)),
            Ask(0, A, 3, Never),
            Ask(23 * 3_600 - 1, A, 1, Denied(1)),
            Ask(1, A, 1, Admitted(1)),
            Change("2", "3"),
            Ask(0, A, 1, Admitted(1)),
            Change("3", "2"),
            Ask(0, A, 1, Denied(24 * 3_600)),
            Change("2", "3"),
            Ask(0, A, 1, Admitted(0)),
        ],
    },
    Case {
        kind: Kind::CalendarClasses,
        limit: "4",
        rules: "[{ key: class, classes: { high: 100%, low: 50% }, rate_limit: { period: day, time_zone: Europe/Berlin, \
                requests_per_unit: 4 } }]",
        steps: &[
            Ask(0, LOW, 2, Admitted(0)),
            Ask(0, LOW, 1, Denied(23 * 3_600)),
            Ask(0, HIGH, 2, Admitted(0)),
            Ask(0, HIGH, 1, Denied(23 * 3_600)),
            Ask(23 * 3_600, LOW, 1, Admitted(1)),
            Ask(0, HIGH, 1, Admitted(2)),
            Change("50%", "75%"),
            Ask(0, LOW, 1, Admitted(0)),
        ],
    },
    Case {
        kind: Kind::Ranges,
        limit: "",
        rules: "[{ key: address, ranges: [10.0.0.0/8], rate_limit: { unit: hour, requests_per_unit: 1 } }, \
                { key: address, ranges: [10.1.0.0/16], rate_limit: { unit: hour, requests_per_unit: 3 } }, \
                { key: address, value: 10.1.0.7, rate_limit: { unit: hour, requests_per_unit: 2 } }]",
        steps: &[
            Ask(0, &[("address", "10.2.0.1")], 1, Admitted(0)),
            Ask(0, &[("address", "10.2.0.1")], 1, Denied(3_600)),
            Ask(0, &[("address", "10.2.0.2")], 1, Admitted(0)),
            Ask(0, &[("address", "10.1.0.1")], 1, Admitted(2)),
            Ask(0, &[("address", "10.1.0.7")], 1, Admitted(1)),
            Change("unit: 3", "unit: 4"),
            Ask(0, &[("address", "10.1.0.1")], 1, Admitted(2)),
            Ask(3_600, &[("address", "10.2.0.1")], 1, Admitted(0)),
        ],
    },
    Case {
        kind: Kind::Prefixes,
        limit: "",
        rules: "[{ key: address, prefixes: { ipv4: { 32: { unit: hour, requests_per_unit: 2 }, 24: { unit: hour, \
                requests_per_unit: 3 } }, ipv6: { 64: { unit: hour, requests_per_unit: 2 } } } }]",
        steps: &[
            Ask(0, &[("address", "203.0.113.1")], 1, Admitted(1)),
            Ask(0, &[("address", "203.0.113.1")], 1, Admitted(0)),
            Ask(0, &[("address", "203.0.113.1")], 1, Denied(3_600)),
            Ask(0, &[("address", "203.0.113.2")], 1, Admitted(0)),
            Ask(1, &[("address", "203.0.113.3")], 1, Denied(3_599)),
            Ask(0, &[("address", "2001:db8::1")], 1, Admitted(1)),
            Ask(0, &[("address", "2001:db8::2")], 1, Admitted(0)),
            Ask(0, &[("address", "2001:db8::3")], 1, Denied(3_599)),
            Change("unit: 3", "unit: 4"),
            Ask(0, &[("address", "203.0.113.3")], 1, Admitted(0)),
            Ask(0, &[("address", "203.0.113.4")], 1, Denied(3_599)),
        ],
    },
    Case {
        kind: Kind::Distinct,
        limit: "2",
        rules: "[{ key: address, descriptors: [{ key: user, rate_limit: { unit: hour, requests_per_unit: 2, \
                distinct: true } }] }]",
        steps: &[
            Ask(0, &[("address", "A"), ("user", "ann")], 1, Admitted(1)),
            Ask(0, &[("address", "A"), ("user", "bob")], 7, Admitted(0)),
            Ask(0, &[("address", "A"), ("user", "ann")], 1, Admitted(0)),
            Ask(0, &[("address", "A"), ("user", "cid")], 1, Denied(3_600)),
            Ask(0, &[("address", "B"), ("user", "cid")], 1, Admitted(1)),
            Ask(3_599, &[("address", "A"), ("user", "cid")], 1, Denied(1)),
            Ask(0, &[("address", "A"), ("user", "bob")], 1, Admitted(0)),
            Ask(1, &[("address", "A"), ("user", "cid")], 1, Admitted(1)),
            Change("2", "3"),
            Ask(0, &[("address", "A"), ("user", "cid")], 1, Admitted(2)),
            Ask(0, &[("address", "A"), ("user", "ann")], 1, Admitted(1)),
        ],
    },
    Case {
        kind: Kind::Holds,
        limit: "fixed-window 10/h",
        rules: "[{ key: key, rate_limit: { unit: hour, requests_per_unit: 10, hold: {} } }]",
        steps: &[
            Hold(0, A, 6, Admitted(4)),
            Hold(0, A, 5, Full),
            Ask(0, A, 5, Full),
            Hold(0, B, 9, Admitted(1)),
            Commit(0, A, 1, 0, false),
            Ask(0, A, 1, Admitted(3)),
            Commit(0, A, 0, 2, true),
            Ask(0, A, 1, Admitted(6)),
            Hold(0, A, 6, Admitted(0)),
            Ask(59, A, 1, Full),
            // The hold ends, and gives its units back. A late commit charges the units that it names.
            Ask(1, A, 1, Admitted(5)),
            Commit(0, A, 2, 3, false),
            Ask(0, A, 1, Admitted(1)),
            Hold(0, A, 1, Admitted(0)),
            Commit(0, A, 3, 3, true),
            Ask(0, A, 1, Full),
            Ask(3_540, A, 1, Admitted(9)),
        ],
    },
    Case {
        kind: Kind::Holds,
        limit: "fixed-window 10/h",
        rules: "[{ key: key, rate_limit: { unit: hour, requests_per_unit: 10, hold: {} } }]",
        steps: &[
            Ask(0, A, 1, Admitted(9)),
            Change("10", "20"),
            Hold(0, A, 8, Admitted(11)),
            Ask(0, A, 3, Admitted(8)),
            Commit(0, A, 0, 3, true),
            Ask(0, A, 1, Admitted(12)),
            Change("20", "10"),
            Ask(0, A, 1, Admitted(1)),
        ],
    },
    Case {
        kind: Kind::InProgress,
        limit: "2",
        rules: "[{ key: key, rate_limit: { in_progress: 2, hold: { life: 60s } } }]",
        steps: &[
            Hold(0, A, 1, Admitted(1)),
            Hold(30, A, 1, Admitted(0)),
            Hold(0, A, 1, Denied(30)),
            Hold(0, B, 1, Admitted(1)),
            Commit(0, A, 2, 1, false),
            Commit(0, A, 0, 1, true),
            Commit(0, A, 0, 1, false),
            Hold(0, A, 1, Admitted(0)),
            Hold(59, A, 1, Denied(1)),
            Hold(1, A, 1, Admitted(1)),
            Commit(0, A, 3, 1, false),
            Change("2", "1"),
            Hold(0, A, 1, Full),
            Commit(0, A, 4, 1, true),
            Hold(0, A, 1, Admitted(0)),
        ],
    },
];

/// Returns the cases; those of calendars only if there are calendars.
pub(crate) fn cases(has_calendars: bool) -> impl Iterator<Item = &'static Case> {
    let needs_calendar = |kind| matches!(kind, Kind::Calendar | Kind::CalendarClasses);
    CASES.iter().filter(move |case| has_calendars || !needs_calendar(case.kind))
}

/// Returns a clock that stands at the first step.
#[allow(dead_code, reason = "some limiters are given the times")]
pub(crate) fn clock() -> tollgate::ManualClock {
    tollgate::ManualClock::new(tollgate::Timestamp::from_secs(START))
}

/// Returns descriptors as a file of the domain `alike`, with these settings of the file.
#[allow(dead_code, reason = "the library needs no file")]
pub(crate) fn text(rules: &str, settings: &str) -> String {
    format!("domain: alike\ntollgate: {{ {settings} }}\ndescriptors: {rules}\n")
}

impl Case {
    /// Returns the case with another text in its descriptors.
    #[allow(dead_code, reason = "only rules can have several stores")]
    pub(crate) fn with(&self, from: &str, to: &str) -> Self {
        Self { rules: self.rules.replace(from, to).leak(), ..*self }
    }

    /// Takes each step at its time, and compares the answers. A case ends at a change that the surface does not have.
    pub(crate) fn play(&self, surface: &mut impl Surface, between: Between) {
        let (mut limit, mut rules) = (self.limit.to_owned(), self.rules.to_owned());
        let mut now = START;
        for (step, number) in self.steps.iter().zip(1..) {
            let place = format!("{}, step {number} with {between:?} between: {step:?}", self.limit);
            match *step {
                Ask(after, entries, units, expected) => {
                    now += after;
                    expected.assert(&surface.ask(now, entries, units), &place);
                }
                Hold(after, entries, units, expected) => {
                    now += after;
                    expected.assert(&surface.hold(now, entries, units, 60), &place);
                }
                Commit(after, entries, hold, used, is_there) => {
                    now += after;
                    let told = surface.commit(now, entries, hold, used);
                    assert_eq!(told.unwrap_or(is_there), is_there, "{place}");
                }
                Change(from, to) => {
                    (limit, rules) = (limit.replace(from, to), rules.replace(from, to));
                    if !surface.load(&limit, &rules) {
                        return;
                    }
                }
            }
            match between {
                Between::Nothing => {}
                Between::Load => assert!(surface.load(&limit, &rules), "{place}: a load of equal limits"),
                Between::Restart => surface.restart(),
            }
        }
    }
}

impl Expected {
    fn assert(self, seen: &Seen, place: &str) {
        let is = |is_allowed: bool, left: Option<u64>, wait: Option<u64>, is_block: bool| {
            seen.is_allowed == is_allowed
                && left.is_none_or(|left| seen.left.is_none_or(|seen| seen == left))
                && wait.is_none_or(|wait| seen.wait.is_none_or(|seen| seen == wait))
                && seen.is_block.is_none_or(|seen| seen == is_block)
        };
        let is_right = match self {
            Admitted(left) => is(true, Some(left), None, false),
            Free => is(true, None, None, false),
            Denied(wait) => is(false, Some(0), Some(wait), false),
            Full => is(false, None, None, false),
            Never => is(false, None, Some(u64::MAX), false),
            Blocked(wait) => is(false, Some(0), Some(wait), true),
        };
        assert!(is_right, "{place}: {seen:?}");
    }
}
