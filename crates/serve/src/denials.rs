//! Denials in the log: for each rule one line in a second, without values of requests.

use std::cmp::Reverse;
use std::collections::HashMap;

use tollgate_rules::Rules;

use super::log;
use tollgate_report::human;
use tollgate_report::text::printable;

/// The most rules with a line of their own. Those that denied most come first.
const MOST_LINES: usize = 20;

/// The longest name of a rule, in characters.
const NAME: usize = 200;

/// What was counted before.
#[derive(Debug, Default)]
pub struct Denials {
    /// By the identity of the rule: the denials, and those that a dry run would have made.
    before: HashMap<Box<str>, [u64; 2]>,
}

impl Denials {
    /// Writes the denials since the last call to the log.
    pub fn write(&mut self, rules: &Rules) {
        if log::has_info() {
            self.since(rules).iter().for_each(log::info);
        }
    }

    /// Returns the lines about denials since the last call. Forgets rules that no longer exist.
    fn since(&mut self, rules: &Rules) -> Vec<String> {
        let mut denied: Vec<(Box<str>, [u64; 2])> = Vec::new();
        let mut before = std::mem::take(&mut self.before);
        rules.for_each(|_, rule, counts| {
            let now = [counts.denied.saturating_add(counts.error_closed), counts.shadow_denied];
            let known = before.remove_entry(&rule.identity);
            let (identity, then) = known.unwrap_or_else(|| (rule.identity.clone(), [0; 2]));
            self.before.insert(identity, now);
            let since = [now[0].saturating_sub(then[0]), now[1].saturating_sub(then[1])];
            if since != [0; 2] {
                denied.push((rule.name.clone(), since));
            }
        });
        denied.sort_by_key(|(_, [enforced, shadow])| Reverse(enforced.saturating_add(*shadow)));
        let (first, rest) = denied.split_at(denied.len().min(MOST_LINES));
        let mut lines: Vec<String> = first
            .iter()
            .map(|(name, counts)| format!("the rule {} {}", printable(name.as_bytes(), NAME), said(*counts)))
            .collect();
        if !rest.is_empty() {
            let sum = rest.iter().fold([0; 2], |sum: [u64; 2], (_, [enforced, shadow])| {
                [sum[0].saturating_add(*enforced), sum[1].saturating_add(*shadow)]
            });
            lines.push(format!("{} {}", human::counted(rest.len() as u64, "other rule"), said(sum)));
        }
        lines
    }
}

fn said([enforced, shadow]: [u64; 2]) -> String {
    let requests = |n| human::counted(n, "request");
    match (enforced, shadow) {
        (n, 0) => format!("denied {}", requests(n)),
        (0, n) => format!("would have denied {}", requests(n)),
        (n, m) => format!("denied {}, and would have denied {}", requests(n), requests(m)),
    }
}

#[cfg(test)]
mod tests {
    use tollgate_rules::Descriptor;

    use super::*;

    fn rules(count: usize, more: &str) -> String {
        let mut text = "domain: d\ndescriptors:\n".to_owned();
        for index in 0..count {
            text +=
                &format!("  - key: k{index}\n    {more}rate_limit: {{ unit: day, requests_per_unit: 1 }}\n");
        }
        text
    }

    fn ask(rules: &Rules, key: &str, times: usize) {
        for time in 0..times {
            let _ = rules.check("d", &[Descriptor::new(&[(key, &format!("secret{time}"))])]);
            let _ = rules.check("d", &[Descriptor::new(&[(key, &format!("secret{time}"))])]);
        }
    }

    // G116
    #[test]
    fn denials_have_one_line_for_each_rule() {
        let loaded = Rules::from_yaml(&rules(2, "")).unwrap();
        let mut denials = Denials::default();
        assert!(denials.since(&loaded).is_empty());
        ask(&loaded, "k0", 3);
        ask(&loaded, "k1", 1);
        assert_eq!(
            denials.since(&loaded),
            ["the rule d.k0 denied 3 requests", "the rule d.k1 denied 1 request"]
        );
        assert!(denials.since(&loaded).is_empty(), "nothing was denied since");
        let shadow = Rules::from_yaml(&rules(1, "shadow_mode: true\n    ")).unwrap();
        ask(&shadow, "k0", 2);
        assert_eq!(Denials::default().since(&shadow), ["the rule d.k0 would have denied 2 requests"]);
    }

    // G116
    #[test]
    fn many_denying_rules_share_a_line() {
        let loaded = Rules::from_yaml(&rules(30, "")).unwrap();
        (0..30).for_each(|index| ask(&loaded, &format!("k{index}"), 1 + index / 29));
        let lines = Denials::default().since(&loaded);
        assert_eq!(lines.len(), MOST_LINES + 1);
        assert_eq!(lines[0], "the rule d.k29 denied 2 requests");
        assert_eq!(lines[MOST_LINES], "10 other rules denied 10 requests");
    }

    #[test]
    fn removed_rules_are_forgotten() {
        let (many, few) =
            (Rules::from_yaml(&rules(30, "")).unwrap(), Rules::from_yaml(&rules(2, "")).unwrap());
        let mut denials = Denials::default();
        denials.since(&many);
        denials.since(&few);
        assert_eq!(denials.before.len(), 2);
        ask(&few, "k1", 1);
        assert_eq!(denials.since(&few), ["the rule d.k1 denied 1 request"]);
    }
}
