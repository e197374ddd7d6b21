//! Finds the smallest limit that denies no more than a share of requests or of clients.
//!
//! Bisection over real replays. The share denied falls as the limit rises, nearly always: a window algorithm that
//! admits one request more at one time may deny another later. So the answer's neighbours are replayed too, every
//! limit tried is compared with every other, and a result that is not monotone is said to be so.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::ProgressBar;
use serde::Serialize;

use super::algorithms::{Kind, Options};
use super::args::Share;
use super::error::Error;
use super::fared::{self, Fared, FaredJson};
use super::human;
use super::input::Trace;
use super::replay::{Outcome, Setup, replay};
use super::report::{InputJson, align_right, nanos, plain_table, to_json};
use super::storage::Storage;
use super::stores::Figures;
use crate::Quota;

/// What may be denied.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Goal {
    /// At most this share of requests.
    Requests(Share),
    /// Something to at most this share of clients.
    Clients(Share),
}

impl Goal {
    /// In words.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Requests(share) => format!("deny at most {share} of requests"),
            Self::Clients(share) => format!("deny anything to at most {share} of clients"),
        }
    }
}

/// How one limit does.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Requests denied.
    pub denied: u64,
    /// Clients with a request denied.
    pub keys_denied: u64,
}

/// The limit found, and what was tried on the way.
#[derive(Clone, Debug)]
pub struct Answer {
    /// With which algorithm.
    pub kind: Kind,
    /// The limit, its period and burst.
    pub quota: Quota,
    /// Every limit that was tried.
    pub trials: BTreeMap<u64, Trial>,
    /// Whether more was never denied at a higher limit, in all that was tried.
    pub monotone: bool,
    /// How the store fared with the answer.
    pub figures: Figures,
}

/// What to find a limit for.
#[derive(Debug)]
pub struct Search<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// What may be denied.
    pub goal: Goal,
    /// The limit's period.
    pub period: Duration,
    /// The burst, if not the limit itself.
    pub burst: Option<u64>,
    /// Settings of window algorithms.
    pub options: Options,
    /// Where states are kept.
    pub storage: Storage,
    /// To be moved along.
    pub progress: &'a ProgressBar,
}

impl Search<'_> {
    /// Finds the smallest limit for one algorithm.
    ///
    /// # Errors
    /// If no limit that the algorithm can hold meets the goal.
    pub fn find(&self, kind: Kind) -> Result<Answer, Error> {
        let mut trials = BTreeMap::new();
        // A limit of the whole cost denies nothing, unless the burst is smaller; then only the pace can help.
        let cost = || self.trace.records.iter().fold(0_u64, |sum, record| sum.saturating_add(record.cost));
        let total = if self.burst.is_some() { u64::MAX } else { cost().max(1) };
        let Some(mut high) = self.first_that_meets(kind, total, &mut trials)? else {
            let tried = trials.last_key_value().map_or(String::new(), |(limit, trial)| {
                format!("; even {limit} denies {}", self.described(*trial))
            });
            let why = match self.burst {
                Some(burst) => format!("; a burst of {burst} may be too small"),
                None => String::new(),
            };
            return Err(Error::run(format!(
                "{}: no limit can {}{tried}{why}",
                kind.as_str(),
                self.goal.text()
            )));
        };
        // The highest limit known to miss the goal is below `high`; 0 stands for "none".
        let mut low = trials.range(..high).next_back().map_or(0, |(&limit, _)| limit);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if self.meets(self.trial(kind, middle, &mut trials)?) { high = middle } else { low = middle }
        }
        // The neighbours beyond what bisection looked at, and round figures for the table.
        for limit in [
            high.saturating_sub(2),
            high.saturating_sub(1),
            high / 4,
            high / 2,
            high.saturating_add(1),
            high.saturating_mul(2),
        ] {
            if (1..=total.max(high.saturating_add(1))).contains(&limit) {
                // A limit out of the algorithm's range has no trial, which is no reason to fail now.
                let _ = self.trial(kind, limit, &mut trials);
            }
        }
        let monotone = trials.values().is_sorted_by_key(|trial| std::cmp::Reverse(self.denied(*trial)));
        // The answer once more, for what the store made of it.
        let figures = match self.storage {
            Storage::Keyed => Figures::Keyed,
            Storage::Compact(_) | Storage::Sketch(_) => self.replay(kind, high, true)?.figures,
        };
        Ok(Answer { kind, quota: self.quota(high)?, trials, monotone, figures })
    }

    /// Doubles the limit until it meets the goal, so that small answers are found by small steps.
    fn first_that_meets(
        &self,
        kind: Kind,
        total: u64,
        trials: &mut BTreeMap<u64, Trial>,
    ) -> Result<Option<u64>, Error> {
        let mut limit = 1;
        loop {
            match self.trial(kind, limit, trials) {
                Ok(trial) if self.meets(trial) => return Ok(Some(limit)),
                Ok(_) if limit < total => limit = limit.saturating_mul(2).min(total),
                Ok(_) => return Ok(None),
                // Nothing is wrong with the first limit: this one is out of range.
                Err(_) if !trials.is_empty() => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }

    fn quota(&self, limit: u64) -> Result<Quota, Error> {
        let quota = Quota::try_new(limit, self.period);
        let quota = match self.burst {
            Some(burst) => quota.and_then(|quota| quota.try_burst(burst)),
            None => quota,
        };
        quota.map_err(|error| Error::usage(error.to_string()))
    }

    fn trial(&self, kind: Kind, limit: u64, trials: &mut BTreeMap<u64, Trial>) -> Result<Trial, Error> {
        if let Some(&trial) = trials.get(&limit) {
            return Ok(trial);
        }
        self.progress.set_message(format!("{} {limit}", kind.as_str()));
        let outcome = self.replay(kind, limit, false)?;
        let trial = Trial { denied: outcome.tally.denied, keys_denied: outcome.tally.keys_denied() };
        trials.insert(limit, trial);
        Ok(trial)
    }

    fn replay(&self, kind: Kind, limit: u64, beside: bool) -> Result<Outcome, Error> {
        let setup = Setup { options: self.options, storage: self.storage, beside };
        let quotas = [self.quota(limit)?];
        replay(self.trace, kind, &quotas, setup, self.progress).map_err(|error| {
            Error::usage(format!("{}: {}", kind.as_str(), setup.refusal(&error, kind, &quotas, period_flag)))
        })
    }

    fn denied(&self, trial: Trial) -> u64 {
        match self.goal {
            Goal::Requests(_) => trial.denied,
            Goal::Clients(_) => trial.keys_denied,
        }
    }

    fn meets(&self, trial: Trial) -> bool {
        match self.goal {
            Goal::Requests(share) => share.allows(trial.denied, self.trace.records.len() as u64),
            Goal::Clients(share) => share.allows(trial.keys_denied, self.trace.keys.len() as u64),
        }
    }

    fn described(&self, trial: Trial) -> String {
        format!(
            "{} of requests and something to {} of clients",
            human::share(trial.denied, self.trace.records.len() as u64),
            human::share(trial.keys_denied, self.trace.keys.len() as u64)
        )
    }
}

/// The flag for a quota's period.
fn period_flag(quota: &Quota) -> String {
    // "60/min burst 10" without what is not of the period.
    let text = quota.to_string();
    let period = text.split_once('/').map_or("", |(_, text)| text.split(' ').next().unwrap_or(text));
    format!("--period {period}")
}

impl Answer {
    /// The flags that set this limit.
    #[must_use]
    pub fn flags(&self) -> String {
        let quota = Quota::try_new(self.quota.limit(), self.quota.period()).unwrap_or(self.quota);
        match self.quota.burst_size() {
            burst if burst == quota.limit() => format!("--limit {quota}"),
            burst => format!("--limit {quota} --burst {burst}"),
        }
    }

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
    let mut table = plain_table(&["Algorithm", "Limit", "Denied", "Share", "Clients denied", "Share", ""]);
    for answer in answers {
        for (limit, trial) in answer.candidates() {
            let mark = match limit == answer.quota.limit() {
                true => format!("◀ {}", answer.flags()),
                false => String::new(),
            };
            table.add_row([
                answer.kind.as_str().to_owned(),
                human::count(limit),
                human::count(trial.denied),
                human::share(trial.denied, records),
                human::count(trial.keys_denied),
                human::share(trial.keys_denied, keys),
                mark,
            ]);
        }
    }
    align_right(&mut table, 1..6);
    let mut text = format!("{table}\n\n");
    for answer in answers {
        let store = search.storage.flags();
        text += &format!("{} --algorithm {}{store}\n", answer.flags(), answer.kind.as_str());
        if !answer.monotone {
            text += &format!(
                "  Not monotone: with {} a higher limit can deny more here, so a smaller one might do as well.\n",
                answer.kind.as_str()
            );
        }
    }
    let fared = answers.iter().filter_map(|Answer { kind, quota, trials, figures, .. }| {
        let denied = trials.get(&quota.limit())?.denied;
        Some(Fared { kind: *kind, admitted: records - denied, denied, figures })
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
    deny: &'static str,
    share_billionths: u64,
}

#[derive(Serialize, Debug)]
struct SuggestionJson<'a> {
    algorithm: &'a str,
    store: &'a str,
    limit: u64,
    period_ns: u64,
    burst: u64,
    flags: String,
    denied: u64,
    keys_denied: u64,
    monotone: bool,
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
        let trial = answer.trials.get(&answer.quota.limit());
        SuggestionJson {
            algorithm: answer.kind.as_str(),
            store: search.storage.as_str(),
            limit: answer.quota.limit(),
            period_ns: nanos(answer.quota.period()),
            burst: answer.quota.burst_size(),
            flags: answer.flags(),
            denied: trial.map_or(0, |trial| trial.denied),
            keys_denied: trial.map_or(0, |trial| trial.keys_denied),
            monotone: answer.monotone,
            tried: answer.trials.iter().map(tried).collect(),
            fared: FaredJson::new(&search.storage, answer.kind, &answer.figures),
        }
    };
    let (deny, share) = match search.goal {
        Goal::Requests(share) => ("requests", share),
        Goal::Clients(share) => ("clients", share),
    };
    to_json(&Json {
        input: InputJson::new(search.trace),
        goal: GoalJson { deny, share_billionths: share.billionths },
        suggestions: answers.iter().map(suggestion).collect(),
    })
}
