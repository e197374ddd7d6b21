//! The answers of a search, for people and for programs.

use serde_json::{Value, json};

use tollgate::Quota;

use super::{FoundLimit, MANY_REQUESTS, Search, Suggestion, Trial, neighbours, period_text};
use crate::output::about::input_json;
use crate::replay::accuracy::{self, Accuracy};
use crate::replay::output::limit_json;
use tollgate_report::human::{self, nanos};
use tollgate_report::output::merged;
use tollgate_report::output::table::table;
use tollgate_report::output::wrap::for_stdout;

impl Search<'_> {
    /// Returns the goal, `note`, and how several limits share the goal.
    pub fn lines(&self, note: &str) -> String {
        let goal = self.goal.text();
        let periods: Vec<String> = self.periods.iter().map(|&period| human::duration(period)).collect();
        let periods = periods.join(" and ");
        match self.periods.len() {
            1 => format!("Goal     {goal}, period {periods}{note}\n"),
            all => format!(
                "Goal     {goal}, periods {periods}{note}\n\
                 Method   finds the limits from the longest period to the shortest: each is the\n         \
                          smallest that, with the limits before it, uses at most its share of the\n         \
                          goal (the k-th of {all}: k/{all}); then lowers each limit as far as the\n         \
                          goal allows\n"
            ),
        }
    }

    /// Returns an answer in the syntax of flags, what it denies, and what to know before using it.
    pub fn answer(&self, suggestion: &Suggestion) -> String {
        let (name, store) = (suggestion.algorithm.name(), self.storage.flags());
        let mut text = format!("{} --algorithm {name}{store}\n", suggestion.flags());
        text += &format!("  denies {}\n", self.described(suggestion.trial));
        if let Some(warning) = self.warnings(suggestion) {
            text += &for_stdout(&format!("  Warning: {warning}\n"));
        }
        if !suggestion.monotone {
            text += &for_stdout(&format!(
                "  Not monotone: with {name}, a higher limit can deny more here, so a smaller limit may also meet the goal.\n"
            ));
        }
        text
    }

    /// Returns what a caller should know before using an answer.
    fn warnings(&self, answer: &Suggestion) -> Option<String> {
        let records = self.trace.records.len() as u64;
        let share = human::share(answer.trial.denied, records);
        self.denies_many_requests(answer.trial).then(|| {
            format!(
                "few clients are denied, but {share} of all requests are. To limit both, add --deny-requests {MANY_REQUESTS}"
            )
        })
    }
}

impl Suggestion {
    /// The flags that set these limits.
    pub fn flags(&self) -> String {
        let mut flags: Vec<String> = self.limits.iter().map(|found| limit_flag(&found.quota)).collect();
        // If any limit has the flag, all have the same.
        let own =
            self.limits.iter().map(|found| found.quota).find(|quota| quota.burst_size() != quota.limit());
        flags.extend(own.map(|quota| format!("--burst {}", quota.burst_size())));
        flags.join(" ")
    }
}

/// Returns the flag for a quota, without its burst.
fn limit_flag(quota: &Quota) -> String {
    let quota = Quota::try_new(quota.limit(), quota.period()).unwrap_or(*quota);
    format!("--limit {quota}")
}

impl FoundLimit {
    /// Returns the limits to show: the answer, its neighbours and some further away.
    fn candidates(&self) -> impl Iterator<Item = (u64, Trial)> + '_ {
        let answer = self.quota.limit();
        let near = move |limit| limit == answer || neighbours(answer).contains(&limit);
        self.trials.iter().map(|(&limit, &trial)| (limit, trial)).filter(move |&(limit, _)| near(limit))
    }
}

/// The answers as tables.
pub fn tables(search: &Search<'_>, suggestions: &[Suggestion]) -> String {
    let (records, keys) = (search.trace.records.len() as u64, search.trace.keys.len() as u64);
    let one = search.periods.len() == 1;
    let rows = suggestions.iter().flat_map(|suggestion| {
        suggestion.limits.iter().flat_map(move |found| {
            found.candidates().map(move |(limit, trial)| {
                let mark = match limit == found.quota.limit() {
                    true if one => format!("◀ {}", suggestion.flags()),
                    true => format!("◀ {}", limit_flag(&found.quota)),
                    false => String::new(),
                };
                let limit = human::count(limit);
                vec![
                    suggestion.algorithm.name().to_owned(),
                    if one { limit } else { format!("{limit}/{}", period_text(&found.quota)) },
                    human::count(trial.denied),
                    human::share(trial.denied, records),
                    human::count(trial.keys_denied),
                    human::share(trial.keys_denied, keys),
                    mark,
                ]
            })
        })
    });
    let mut text = table("Algorithm|Limit|Denied|Share|Clients denied|Share|", 1..6, rows, &[]) + "\n";
    if !one {
        text += "Each line changes one limit; the others are those of the answer (◀).\n";
    }
    text += "\n";
    text.extend(suggestions.iter().map(|suggestion| search.answer(suggestion)));
    let results = suggestions.iter().map(|Suggestion { algorithm, trial, figures, .. }| {
        let denied = trial.denied;
        Accuracy { algorithm: *algorithm, admitted: records - denied, denied, figures }
    });
    if let Some(table) = accuracy::table(&search.storage, &results.collect::<Vec<_>>()) {
        text += &format!("\n{table}");
    }
    text
}

/// Returns the answers as JSON. New fields may be added; these fields keep their names and meaning.
pub fn json(search: &Search<'_>, answers: &[Suggestion]) -> Value {
    let tried = |(limit, trial): (&u64, &Trial)| json!({ "limit": limit, "denied": trial.denied, "keys_denied": trial.keys_denied });
    let suggestion = |answer: &Suggestion| {
        let FoundLimit { quota, trials } = answer.limits.first()?;
        let suggestion = json!({
            "algorithm": answer.algorithm.name(),
            "store": search.storage.store.to_string(),
            // This field and the next two belong to the first period of the command line.
            "limit": quota.limit(),
            "period_ns": nanos(quota.period()),
            "burst": quota.burst_size(),
            // All limits, in the order of the command line.
            "limits": answer.limits.iter().map(|found| limit_json(&found.quota)).collect::<Vec<_>>(),
            // For all limits, like the next three fields.
            "flags": answer.flags(),
            "denied": answer.trial.denied,
            "keys_denied": answer.trial.keys_denied,
            "monotone": answer.monotone,
            "warnings": search.warnings(answer).into_iter().collect::<Vec<_>>(),
            // Trials in the place of the first period's limit, with the other limits in force.
            "tried": trials.iter().map(tried).collect::<Vec<_>>(),
        });
        Some(merged([suggestion, accuracy::json(&search.storage, answer.algorithm, &answer.figures)]))
    };
    let [requests, clients] =
        [search.goal.requests, search.goal.clients].map(|share| share.map(|share| share.billionths));
    json!({
        "input": input_json(search.trace),
        "goal": {
            // The total of the first share, and that share. With two goals these are the requests' figures.
            "deny": if requests.is_some() { "requests" } else { "clients" },
            "share_billionths": requests.or(clients).unwrap_or(0),
            "requests_billionths": requests,
            "clients_billionths": clients,
        },
        "suggestions": answers.iter().filter_map(suggestion).collect::<Vec<_>>(),
    })
}
