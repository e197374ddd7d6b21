//! What rules decide, step by step: one list for rules that count in this process, on the model of a server, and on a
//! real one.

use tollgate::ManualClock;
use tollgate_rules::{Answer, Descriptor, Rules, Verdict};

struct Scenario {
    law: &'static str,
    charging: &'static str,
    /// The key of each rule, its settings, and those of its limit. All limits are for a year, so no window ends.
    rules: &'static [(&'static str, &'static str, &'static str)],
    steps: &'static [Step],
}

/// A step of a scenario. The keys are separated by spaces, and each is one descriptor.
enum Step {
    /// A number of equal requests: their keys, the cost of each, and how many are admitted.
    Ask { keys: &'static str, cost: u64, of: u64, admitted: u64 },
    /// A request that this number of rules deny.
    Denied { keys: &'static str, cost: u64, by: usize },
    /// A request with a cost of 0, and the units that it reports. `None`: the limit is exceeded.
    Query { key: &'static str, left: Option<u32> },
}

use Step::{Ask, Denied, Query};

const fn limit(key: &'static str, limit: &'static str) -> (&'static str, &'static str, &'static str) {
    (key, "", limit)
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        law: "reports fill a limit exactly",
        charging: "count-denials",
        rules: &[limit("a", "4")],
        steps: &[
            Query { key: "a", left: Some(4) },
            Ask { keys: "a", cost: 2, of: 1, admitted: 1 },
            Query { key: "a", left: Some(2) },
            Ask { keys: "a", cost: 2, of: 1, admitted: 1 },
            Query { key: "a", left: Some(0) },
            Denied { keys: "a", cost: 2, by: 1 },
            Query { key: "a", left: None },
        ],
    },
    Scenario {
        law: "a report beyond the limit stays counted",
        charging: "count-denials",
        rules: &[limit("a", "100")],
        steps: &[
            Ask { keys: "a", cost: 60, of: 1, admitted: 1 },
            Query { key: "a", left: Some(40) },
            Denied { keys: "a", cost: 60, by: 1 },
            Query { key: "a", left: None },
            Denied { keys: "a", cost: 1, by: 1 },
            Query { key: "a", left: None },
        ],
    },
    Scenario {
        law: "a denied request is charged to its denier only",
        charging: "count-denials",
        rules: &[limit("a", "100"), limit("b", "20")],
        steps: &[
            Ask { keys: "a", cost: 99, of: 1, admitted: 1 },
            Denied { keys: "a b", cost: 5, by: 1 },
            Query { key: "a", left: None },
            Query { key: "b", left: Some(20) },
            Ask { keys: "b", cost: 1, of: 20, admitted: 20 },
            Query { key: "b", left: Some(0) },
        ],
    },
    Scenario {
        law: "the same, if the denier is the last rule",
        charging: "count-denials",
        rules: &[limit("b", "1000"), limit("a", "100")],
        steps: &[
            Ask { keys: "a", cost: 99, of: 1, admitted: 1 },
            Denied { keys: "b a", cost: 5, by: 1 },
            Query { key: "a", left: None },
            Query { key: "b", left: Some(1_000) },
        ],
    },
    Scenario {
        law: "a cost saturates",
        charging: "count-denials",
        rules: &[limit("a", "4"), limit("b", "9")],
        steps: &[
            Denied { keys: "a", cost: u64::MAX, by: 1 },
            Query { key: "a", left: None },
            Denied { keys: "a", cost: 1 << 53, by: 1 },
            Denied { keys: "a", cost: 5, by: 1 },
            Query { key: "a", left: None },
            Denied { keys: "a", cost: 1, by: 1 },
            Ask { keys: "b", cost: 9, of: 1, admitted: 1 },
        ],
    },
    Scenario {
        law: "an exceeded shadow rule is charged too, and stops no other rule",
        charging: "count-denials",
        rules: &[("a", "shadow_mode: true,", "2"), limit("b", "4")],
        steps: &[
            Ask { keys: "a b", cost: 1, of: 4, admitted: 4 },
            Denied { keys: "a b", cost: 1, by: 1 },
            Query { key: "a", left: None },
            Query { key: "b", left: None },
        ],
    },
    Scenario {
        law: "an exceeded quota is charged too, and stops no other rule",
        charging: "count-denials",
        rules: &[("a", "quota_mode: true,", "1"), ("b", "quota_mode: true,", "3"), limit("c", "3")],
        steps: &[
            Ask { keys: "a b c", cost: 1, of: 2, admitted: 2 },
            Query { key: "a", left: None },
            Ask { keys: "a b c", cost: 1, of: 1, admitted: 1 },
            // The rule c denies, and so do all quotas together.
            Denied { keys: "a b c", cost: 1, by: 3 },
            Query { key: "b", left: None },
            Query { key: "c", left: None },
        ],
    },
    Scenario {
        law: "an exceeded quota is not charged for another rule's denial while a quota has room",
        charging: "count-denials",
        rules: &[("a", "quota_mode: true,", "1"), ("b", "quota_mode: true,", "9"), limit("c", "1")],
        steps: &[
            Ask { keys: "a b c", cost: 1, of: 1, admitted: 1 },
            Denied { keys: "a b c", cost: 1, by: 1 },
            Query { key: "a", left: Some(0) },
            Query { key: "b", left: Some(8) },
            Query { key: "c", left: None },
        ],
    },
    Scenario {
        law: "a limit of 0 denies every request, and a query once a request was denied",
        charging: "count-denials",
        rules: &[limit("a", "0"), limit("b", "1")],
        steps: &[
            Query { key: "a", left: Some(0) },
            Denied { keys: "a", cost: 1, by: 1 },
            Query { key: "a", left: None },
        ],
    },
    Scenario {
        law: "a denied request charges no rule",
        charging: "all-or-nothing",
        rules: &[limit("a", "10"), limit("b", "2"), limit("c", "10, store: keyed")],
        steps: &[
            Ask { keys: "a b c", cost: 1, of: 50, admitted: 2 },
            Ask { keys: "a", cost: 1, of: 20, admitted: 8 },
            Ask { keys: "c", cost: 1, of: 20, admitted: 8 },
        ],
    },
    Scenario {
        law: "a denied request charges every rule",
        charging: "count-first",
        rules: &[limit("a", "5"), limit("b", "2, store: keyed")],
        steps: &[
            Ask { keys: "a b", cost: 1, of: 4, admitted: 2 },
            Ask { keys: "a", cost: 1, of: 9, admitted: 1 },
        ],
    },
    Scenario {
        law: "quotas deny only together",
        charging: "all-or-nothing",
        rules: &[("a", "quota_mode: true,", "2"), ("b", "quota_mode: true,", "4")],
        steps: &[Ask { keys: "a b", cost: 1, of: 9, admitted: 4 }, Denied { keys: "a b", cost: 1, by: 2 }],
    },
    Scenario {
        law: "a shadow rule denies nothing",
        charging: "all-or-nothing",
        rules: &[("a", "shadow_mode: true,", "1"), limit("b", "3")],
        steps: &[
            Ask { keys: "a", cost: 1, of: 3, admitted: 3 },
            Ask { keys: "a b", cost: 1, of: 9, admitted: 3 },
        ],
    },
    Scenario {
        law: "a rule overrides another one by name, which is not charged",
        charging: "all-or-nothing",
        rules: &[limit("a", "1, name: small"), limit("b", "3, replaces: [{ name: small }]")],
        steps: &[
            Ask { keys: "a b", cost: 1, of: 9, admitted: 3 },
            Ask { keys: "a", cost: 1, of: 9, admitted: 1 },
        ],
    },
];

impl Scenario {
    /// Returns the rules as a file, with more settings of the file.
    fn text(&self, domain: &str, settings: &str) -> String {
        let rule = |(key, rule, limit): &(&str, &str, &str)| {
            format!("  - {{ key: {key}, {rule} rate_limit: {{ unit: year, requests_per_unit: {limit} }} }}\n")
        };
        let rules: String = self.rules.iter().map(rule).collect();
        let charging = self.charging;
        format!("domain: {domain}\ntollgate: {{ charging: {charging}, {settings} }}\ndescriptors:\n{rules}")
    }
}

async fn ask(rules: &Rules<ManualClock>, domain: &str, keys: &str, cost: u64) -> Answer {
    let entries: Vec<[(&str, &str); 1]> = keys.split(' ').map(|key| [(key, "x")]).collect();
    let descriptors: Vec<Descriptor<'_>> = entries.iter().map(|entry| Descriptor::new(entry)).collect();
    crate::ask(rules, domain, &descriptors, cost).await
}

/// Plays every scenario with these settings of the file. `load` loads a file. `is_exact`: no units are held elsewhere,
/// so what is left is known.
pub(crate) async fn play_all(settings: &str, is_exact: bool, load: impl Fn(&str) -> Rules<ManualClock>) {
    let mut wrong = Vec::new();
    for (scenario, number) in SCENARIOS.iter().zip(0..) {
        let domain = format!("d{number}");
        let rules = load(&scenario.text(&domain, settings));
        for (step, at) in scenario.steps.iter().zip(1..) {
            let (right, found) = match *step {
                Ask { keys, cost, of, admitted } => {
                    let mut allowed = 0;
                    for _ in 0..of {
                        allowed += u64::from(ask(&rules, &domain, keys, cost).await.is_allowed());
                    }
                    (allowed == admitted, format!("{allowed} of {of}"))
                }
                Denied { keys, cost, by } => {
                    let answer = ask(&rules, &domain, keys, cost).await;
                    (answer.is_denied() && answer.denied_by().count() == by, format!("{answer:?}"))
                }
                Query { key, left } => {
                    let answer = ask(&rules, &domain, key, 0).await;
                    let verdict = answer.limits().next().map(|limit| limit.verdict());
                    let is_over = answer.is_over_limit(0) || verdict == Some(Verdict::ShadowDenied);
                    let exactly = !is_exact || answer.remaining(0) == left.unwrap_or(0);
                    (is_over == left.is_none() && exactly, format!("{answer:?}"))
                }
            };
            if !right {
                wrong.push(format!("{}, {settings}, step {at}: {found}", scenario.law));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
