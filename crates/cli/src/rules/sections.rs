//! The sections of a page about a replay with rules.

use super::output::{CountedRule, RulesReplay};
use super::tally::{ByRule, RuleDeniedKey};
use crate::output::page::{Cell, HtmlTable, MOST_KEYS, Section, to_second};
use crate::replay::Denials;
use tollgate_report::human;
use tollgate_report::rule::limit_texts;
use tollgate_report::text::printable;

/// The most rules in a table. The page stays small, also with a file of thousands of rules.
const MOST_RULES: usize = 200;
/// The most characters of a rule's identity, and of a key.
const LONGEST: usize = 120;

/// Returns all sections, with this many of the most denied keys.
pub fn all(replay: &RulesReplay, most: usize) -> Vec<Section> {
    vec![summary(replay), effect(replay), keys(replay, most.min(MOST_KEYS))]
}

fn summary(replay: &RulesReplay) -> Section {
    let (tally, requests) = (&replay.tally, replay.trace.records.len() as u64);
    let rows = [
        ("All requests", requests),
        ("Admitted", tally.decisions.admitted()),
        ("Denied", tally.decisions.denials.denied),
        ("Admitted only because a rule or its domain is in shadow mode", tally.requests.shadow_denied),
        ("Admitted above a soft limit", tally.requests.soft_limited),
        ("Without a rule that applies", tally.requests.unmatched),
        ("Of a domain without rules", tally.requests.unknown_domain),
    ];
    let row = |(name, count): (&str, u64)| {
        [name.to_owned(), human::count(count), human::share(count, requests)].map(Cell::from).to_vec()
    };
    let table = HtmlTable {
        caption: "Results of the rules together".to_owned(),
        header: "Requests|Number|Share".to_owned(),
        numbers: 1..3,
        rows: rows.into_iter().map(row).collect(),
    };
    let wait = format!("The longest wait of a denied request: {}.", tally.decisions.denials.wait_text());
    let denied = tally.decisions.denials.denied;
    let verdict = format!(
        "Of {}, {} ({}) would have been denied, and {} matched no rule.",
        human::counted(requests, "request"),
        human::count(denied),
        human::share(denied, requests),
        human::count(tally.requests.unmatched)
    );
    Section { heading: "Summary".to_owned(), texts: vec![verdict, wait], tables: vec![table] }
}

/// What each rule did. Rules with the most denials come first, because the list may be cut.
fn effect(replay: &RulesReplay) -> Section {
    let mut each: Vec<(&CountedRule, &ByRule)> = replay.rules.iter().zip(&replay.tally.by_rule).collect();
    each.sort_by_key(|(CountedRule { counts, .. }, by_rule)| {
        std::cmp::Reverse((counts.denied, counts.shadow_denied, by_rule.matched))
    });
    let row = |&(counted, by_rule): &(&CountedRule, &ByRule)| {
        let CountedRule { rule, file, counts, .. } = counted;
        let [limit, algorithm, _] = limit_texts(rule);
        let foreign = |text: &str| Cell::Foreign(printable(text.as_bytes(), LONGEST));
        let wait = Denials { denied: counts.denied, ..by_rule.denials }.wait_text();
        let figures = [
            human::count(by_rule.matched),
            human::count(counts.allowed + counts.unlimited),
            human::count(counts.denied),
            human::share(counts.denied, by_rule.matched),
            human::count(counts.shadow_denied),
            human::count(by_rule.keys_denied),
            wait,
        ];
        [foreign(&rule.identity), format!("{limit} {algorithm}").trim_end().to_owned().into()]
            .into_iter()
            .chain(figures.map(Cell::from))
            .chain([foreign(&format!("{file}:{}", rule.line))])
            .collect()
    };
    let texts = [
        (each.len() > MOST_RULES).then(|| format!("These are the {MOST_RULES} rules with the most denials, of {}.", human::count(each.len() as u64))),
        Some("Matched: requests that the rule applied to. Shadow: requests that it would deny if it were enforced.".to_owned()),
    ];
    let table = HtmlTable {
        caption: "Requests by rule, the rules with the most denials first".to_owned(),
        header: "Rule|Limit|Matched|Allowed|Denied|Share denied|Shadow|Keys denied|Longest wait|Place"
            .to_owned(),
        numbers: 2..9,
        rows: each.iter().take(MOST_RULES).map(row).collect(),
    };
    Section {
        heading: "Effect of each rule".to_owned(),
        texts: texts.into_iter().flatten().collect(),
        tables: vec![table],
    }
}

fn keys(replay: &RulesReplay, most: usize) -> Section {
    let row = |key: &RuleDeniedKey| {
        let shown = match &replay.key(key)[..] {
            "" => Cell::Text("(all together)".to_owned()),
            shown => Cell::Foreign(printable(shown.as_bytes(), LONGEST)),
        };
        let rule = Cell::Foreign(printable(replay.rules[key.rule].rule.identity.as_bytes(), LONGEST));
        let counts = [key.denied, key.shadow_denied].map(human::count);
        let times = [key.span.0, key.span.1].map(to_second);
        [shown, rule].into_iter().chain(counts.map(Cell::from)).chain(times.map(Cell::Time)).collect()
    };
    let rows: Vec<Vec<Cell>> = replay.tally.denied_keys.iter().take(most).map(row).collect();
    let heading = "Most denied keys".to_owned();
    if rows.is_empty() {
        let none = replay.tally.denied_keys.is_empty();
        let text = if none { "No request was denied." } else { "The keys were left out (--top 0)." };
        return Section { heading, texts: vec![text.to_owned()], tables: Vec::new() };
    }
    let table = HtmlTable {
        caption: "Most denied keys, by the rule that denied them, with the times (UTC) of the denials"
            .to_owned(),
        header: "Key|Rule|Denied|Shadow|First denied|Last denied".to_owned(),
        numbers: 2..4,
        rows,
    };
    Section { heading, texts: Vec::new(), tables: vec![table] }
}
