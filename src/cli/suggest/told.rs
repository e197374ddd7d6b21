//! The answers of a search, for people and for programs.

use serde::Serialize;

use super::{Answer, Found, MANY_REQUESTS, Search, Trial, period_text};
use crate::Quota;
use crate::cli::error::Error;
use crate::cli::fared::{self, Fared, FaredJson};
use crate::cli::human;
use crate::cli::report::{InputJson, LimitJson, align_right, nanos, plain_table, to_json};
use crate::cli::table::fitted;

impl Search<'_> {
    /// The goal, and how several limits share it; `note` is said after it.
    #[must_use]
    pub fn lines(&self, note: &str) -> String {
        let goal = self.goal.text();
        let periods: Vec<String> = self.periods.iter().map(|&period| human::duration(period)).collect();
        let periods = periods.join(" and ");
        match self.periods.len() {
            1 => format!("Goal     {goal}, period {periods}{note}\n"),
            all => format!(
                "Goal     {goal}, periods {periods}{note}\n\
                 Method   from the longest period to the shortest, each the smallest limit that, with those found before in \
                 force,\n         keeps to its share of the goal, the k-th of {all} to k/{all}; then each lowered as far as \
                 the goal allows\n"
            ),
        }
    }
}

impl Search<'_> {
    /// What a caller should know before using an answer.
    fn warnings(&self, answer: &Answer) -> Option<String> {
        let records = self.trace.records.len() as u64;
        let share = human::share(answer.trial.denied, records);
        self.denies_many_requests(answer.trial).then(|| {
            format!(
                "few clients are denied, but they send {share} of all requests. To bound both, add --deny-requests {MANY_REQUESTS}"
            )
        })
    }
}

impl Answer {
    /// The flags that set these limits.
    #[must_use]
    pub fn flags(&self) -> String {
        let mut flags: Vec<String> = self.limits.iter().map(|found| limit_flag(&found.quota)).collect();
        // The same for all, if it is any one's.
        let own =
            self.limits.iter().map(|found| found.quota).find(|quota| quota.burst_size() != quota.limit());
        flags.extend(own.map(|quota| format!("--burst {}", quota.burst_size())));
        flags.join(" ")
    }
}

/// The flag for a quota, but for its burst.
fn limit_flag(quota: &Quota) -> String {
    let quota = Quota::try_new(quota.limit(), quota.period()).unwrap_or(*quota);
    format!("--limit {quota}")
}

impl Found {
    /// The limits to show: the answer, its neighbours and some further away.
    fn candidates(&self) -> impl Iterator<Item = (u64, Trial)> + '_ {
        let answer = self.quota.limit();
        let near = [
            answer / 4,
            answer / 2,
            answer.saturating_sub(1),
            answer,
            answer.saturating_add(1),
            answer.saturating_mul(2),
        ];
        self.trials
            .iter()
            .map(|(&limit, &trial)| (limit, trial))
            .filter(move |(limit, _)| near.contains(limit))
    }
}

/// The answers as tables.
#[must_use]
pub fn tables(search: &Search<'_>, answers: &[Answer]) -> String {
    let (records, keys) = (search.trace.records.len() as u64, search.trace.keys.len() as u64);
    let one = search.periods.len() == 1;
    let mut table = plain_table(&["Algorithm", "Limit", "Denied", "Share", "Clients denied", "Share", ""]);
    for answer in answers {
        for found in &answer.limits {
            let period = period_text(&found.quota);
            for (limit, trial) in found.candidates() {
                let mark = match limit == found.quota.limit() {
                    true if one => format!("◀ {}", answer.flags()),
                    true => format!("◀ {}", limit_flag(&found.quota)),
                    false => String::new(),
                };
                let limit = human::count(limit);
                table.add_row([
                    answer.kind.as_str().to_owned(),
                    if one { limit } else { format!("{limit}/{period}") },
                    human::count(trial.denied),
                    human::share(trial.denied, records),
                    human::count(trial.keys_denied),
                    human::share(trial.keys_denied, keys),
                    mark,
                ]);
            }
        }
    }
    align_right(&mut table, 1..6);
    let mut text = format!("{}\n", fitted(table, &[]));
    if !one {
        text += "Each line changes one limit, with the others of the answer (◀) in force.\n";
    }
    text += "\n";
    for answer in answers {
        let store = search.storage.flags();
        text += &format!("{} --algorithm {}{store}\n", answer.flags(), answer.kind.as_str());
        text += &format!("  denies {}\n", search.described(answer.trial));
        if let Some(warning) = search.warnings(answer) {
            text += &format!("  Warning: {warning}\n");
        }
        if !answer.monotone {
            text += &format!(
                "  Not monotone: with {} a higher limit can deny more here, so a smaller one might do as well.\n",
                answer.kind.as_str()
            );
        }
    }
    let fared = answers.iter().map(|Answer { kind, trial, figures, .. }| {
        let denied = trial.denied;
        Fared { kind: *kind, admitted: records - denied, denied, figures }
    });
    if let Some(table) = fared::table(&search.storage, fared) {
        text += &format!("\n{table}");
    }
    text
}

#[derive(Serialize, Debug)]
struct Json<'a> {
    input: InputJson,
    goal: GoalJson,
    suggestions: Vec<SuggestionJson<'a>>,
}

#[derive(Serialize, Debug)]
struct GoalJson {
    /// What the first share is of, and that share. Of two goals these are the requests'.
    deny: &'static str,
    share_billionths: u64,
    requests_billionths: Option<u64>,
    clients_billionths: Option<u64>,
}

/// An answer. Fields may be added; those here keep their names and meaning.
#[derive(Serialize, Debug)]
struct SuggestionJson<'a> {
    algorithm: &'a str,
    store: &'a str,
    /// This and the next two: of the period that was named first.
    limit: u64,
    period_ns: u64,
    burst: u64,
    /// All limits, as their periods were named.
    limits: Vec<LimitJson>,
    /// For all limits, as are the next three.
    flags: String,
    denied: u64,
    keys_denied: u64,
    monotone: bool,
    warnings: Vec<String>,
    /// In the place of the limit of the period that was named first, with the others in force.
    tried: Vec<TriedJson>,
    #[serde(flatten)]
    fared: Option<FaredJson>,
}

#[derive(Serialize, Debug)]
struct TriedJson {
    limit: u64,
    denied: u64,
    keys_denied: u64,
}

/// The answers as JSON.
///
/// # Errors
/// Never in practice: every value is a number or a text.
pub fn json(search: &Search<'_>, answers: &[Answer]) -> Result<String, Error> {
    let tried = |(&limit, trial): (&u64, &Trial)| TriedJson {
        limit,
        denied: trial.denied,
        keys_denied: trial.keys_denied,
    };
    let suggestion = |answer: &Answer| {
        let Found { quota, trials } = answer.limits.first()?;
        let suggestion = SuggestionJson {
            algorithm: answer.kind.as_str(),
            store: search.storage.as_str(),
            limit: quota.limit(),
            period_ns: nanos(quota.period()),
            burst: quota.burst_size(),
            limits: answer.limits.iter().map(|found| LimitJson::from(&found.quota)).collect(),
            flags: answer.flags(),
            denied: answer.trial.denied,
            keys_denied: answer.trial.keys_denied,
            monotone: answer.monotone,
            warnings: search.warnings(answer).into_iter().collect(),
            tried: trials.iter().map(tried).collect(),
            fared: FaredJson::new(&search.storage, answer.kind, &answer.figures),
        };
        Some(suggestion)
    };
    let [requests, clients] =
        [search.goal.requests, search.goal.clients].map(|share| share.map(|share| share.billionths));
    to_json(&Json {
        input: InputJson::new(search.trace),
        goal: GoalJson {
            deny: if requests.is_some() { "requests" } else { "clients" },
            share_billionths: requests.or(clients).unwrap_or(0),
            requests_billionths: requests,
            clients_billionths: clients,
        },
        suggestions: answers.iter().filter_map(suggestion).collect(),
    })
}
