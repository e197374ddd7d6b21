//! Finds the smallest limits that deny no more than a share of requests, of clients, or of both.
//!
//! Bisection over real replays. The share of denials nearly always falls as the limit rises. But a window algorithm
//! that admits one more request at one time may deny another one later. So the program also replays the answer's
//! neighbours, compares all trials with each other, and reports a result that is not monotone.
//!
//! A single limit has one smallest value. With several limits, one can be lower if another is higher, so there are many
//! answers that meet the goal and cannot be lowered. The program finds the answer that divides the denials evenly:
//!
//! 1. *Find.* The search goes from the longest period to the shortest. The k-th of n limits is the smallest limit that,
//!    together with the limits found before, denies at most k/n of what the goal allows. The last replay has all limits
//!    in force and meets the goal.
//! 2. *Lower.* Limits are whole numbers, so a part of the goal may be unused. The search lowers each limit once more, in
//!    the same order, to the smallest limit that meets the whole goal with all other limits in force. If no limit can be
//!    lowered, this takes at most one replay for each limit.

mod output;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::ProgressBar;

use tollgate::{LimitKind, Quota, StoreKind};

use crate::algorithm::chosen;
use crate::args::{Share, SuggestArgs};
use crate::input::Trace;
use crate::load;
use crate::output::{self as files, about, finish, progress};
use crate::replay::{AlgorithmReplay, ReplaySetup, StoreFigures, replay};
use crate::store::Storage;
use tollgate_report::error::Error;
use tollgate_report::human;
use tollgate_report::output::say;

/// Runs `tollgate suggest`.
///
/// # Errors
/// Returns an error if the command line or the input is invalid, more than a tenth of the input was skipped, no limit meets the
/// goal, or output fails.
pub fn run(args: &SuggestArgs) -> Result<(), Error> {
    let periods = args.periods()?;
    let storage = args.algorithms.stores.storage(periods.len())?;
    let algorithms =
        chosen(&args.algorithms.algorithm, &[storage.default_algorithm()], args.algorithms.windows);
    let (algorithms, left_out) = storage.holds(&algorithms, args.algorithms.by_name())?;
    let default = args.deny_requests.is_none() && args.deny_clients.is_none();
    let requests = if default { Goal::DEFAULT.requests } else { args.deny_requests };
    files::writable(&args.json)?;
    let trace = load::requests(&args.input, args.json.as_deref(), None)?;
    // A limit for a part of the requests may be wrong for all of them.
    if let Err(error) = trace.mostly_used(args.input.allow_skipped) {
        say(&about::skipped_lines(&trace));
        return Err(Error::run(format!("no limit is suggested: {error}")));
    }
    let progress = progress::bar_of_tries();
    let search = Search {
        trace: &trace,
        goal: Goal { requests, clients: args.deny_clients },
        periods,
        burst: args.algorithms.burst,
        storage,
        progress: &progress,
    };
    let found = algorithms.iter().map(|&algorithm| search.find(algorithm)).collect::<Result<Vec<_>, _>>()?;
    progress.finish_and_clear();
    let note = if default { " (by default; see --deny-requests and --deny-clients)" } else { "" };
    let mut about =
        about::input_lines(&trace, args.input.no_sort) + &search.lines(note) + &storage.line(periods.len());
    left_out.iter().for_each(|note| about += &format!("Note     {note}\n"));
    say(&about::skipped_lines(&trace));
    let (json, tables) = (|| output::json(&search, &found), || output::tables(&search, &found));
    finish(Ok(()), args.json.as_deref(), &about, json, tables)
}

/// The goal: limits must meet each given share.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Goal {
    /// At most this share of requests.
    pub requests: Option<Share>,
    /// At most this share of clients has a denied request.
    pub clients: Option<Share>,
}

impl Goal {
    /// The goal if the command line has none.
    pub const DEFAULT: Self = Self { requests: Some(Share { billionths: 1_000_000 }), clients: None };

    /// Returns the goal as text.
    pub fn text(self) -> String {
        let requests = self.requests.map(|share| format!("deny at most {share} of requests"));
        let clients = self.clients.map(|share| format!("deny requests of at most {share} of clients"));
        [requests, clients].into_iter().flatten().collect::<Vec<_>>().join(", and ")
    }
}

/// The program warns if the answer to a goal for clients alone denies more requests than this.
const MANY_REQUESTS: Share = Share { billionths: 50_000_000 };

/// The result of one limit, or of several together.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Trial {
    /// Requests denied.
    pub denied: u64,
    /// Clients with a request denied.
    pub keys_denied: u64,
}

/// The limits found, and the trials.
#[derive(Clone, Debug)]
pub struct Suggestion {
    /// The algorithm.
    pub algorithm: LimitKind,
    /// The limits, in the order of the command line.
    pub limits: Vec<FoundLimit>,
    /// The result of all limits together.
    pub trial: Trial,
    /// Whether no trial with higher limits denied more.
    pub monotone: bool,
    /// The accuracy of the store with the answer.
    pub figures: StoreFigures,
}

/// One limit of an answer.
#[derive(Clone, Debug)]
pub struct FoundLimit {
    /// The limit, its period and burst.
    pub quota: Quota,
    /// Every limit that the search tried instead of this one, with the answer's other limits in force.
    pub trials: BTreeMap<u64, Trial>,
}

/// The task of a search.
#[derive(Debug)]
pub struct Search<'a> {
    /// The requests.
    pub trace: &'a Trace,
    /// The goal.
    pub goal: Goal,
    /// The limits' periods, all different.
    pub periods: &'a [Duration],
    /// The burst of each, if not the limit itself.
    pub burst: Option<u64>,
    /// The store.
    pub storage: Storage,
    /// The progress bar.
    pub progress: &'a ProgressBar,
}

impl Search<'_> {
    /// Finds the smallest limits for one algorithm.
    ///
    /// # Errors
    /// Returns an error if no limit that the algorithm can hold meets the goal.
    pub fn find(&self, algorithm: LimitKind) -> Result<Suggestion, Error> {
        let mut periods = self.periods.to_vec();
        periods.sort_by_key(|&period| Reverse(period));
        let mut trials = Trials { search: self, algorithm, periods, made: BTreeMap::new() };
        let limits = trials.smallest()?;
        let trial = trials.trial(&limits)?;
        // Replays the answer once more, for the accuracy of the store.
        let figures = match self.storage.store {
            StoreKind::Keyed | StoreKind::Direct => StoreFigures::default(),
            StoreKind::Compact | StoreKind::Sketch => trials.replay(&limits, true)?.figures,
        };
        let found = |period: &Duration| {
            let place = trials.periods.iter().position(|known| known == period).unwrap_or(0);
            let quota = self.quota(limits[place], *period)?;
            Ok(FoundLimit { quota, trials: trials.trials_in_place(&limits, place) })
        };
        let limits = self.periods.iter().map(found).collect::<Result<_, Error>>()?;
        Ok(Suggestion { algorithm, limits, trial, monotone: trials.monotone(), figures })
    }

    fn quota(&self, limit: u64, period: Duration) -> Result<Quota, Error> {
        let quota = Quota::try_new(limit, period);
        let quota = match self.burst {
            Some(burst) => quota.and_then(|quota| quota.try_burst(burst)),
            None => quota,
        };
        quota.map_err(|error| Error::usage(error.to_string()))
    }

    /// Returns a limit that denies nothing, unless the burst is smaller; then only a higher rate can help.
    fn highest(&self) -> u64 {
        let cost = || self.trace.records.iter().fold(0_u64, |sum, record| sum.saturating_add(record.cost));
        if self.burst.is_some() { u64::MAX } else { cost().max(1) }
    }

    /// Returns the goal's figures: the share, the denied number, and the total.
    fn bounded(&self, trial: Trial) -> impl Iterator<Item = (Share, u64, u64)> {
        let Goal { requests, clients } = self.goal;
        let requests = requests.map(|share| (share, trial.denied, self.trace.records.len() as u64));
        let clients = clients.map(|share| (share, trial.keys_denied, self.trace.keys.len() as u64));
        requests.into_iter().chain(clients)
    }

    /// Returns whether the denials stay within the part of the goal that this many of the limits may use.
    fn meets(&self, trial: Trial, limits: usize) -> bool {
        let all = self.periods.len() as u64;
        self.bounded(trial).all(|(share, denied, whole)| {
            share.allows(denied.saturating_mul(all), whole.saturating_mul(limits as u64))
        })
    }

    /// Returns whether the answer to a goal for clients alone denies many requests, because few clients send most of
    /// them.
    fn denies_many_requests(&self, trial: Trial) -> bool {
        self.goal.requests.is_none() && !MANY_REQUESTS.allows(trial.denied, self.trace.records.len() as u64)
    }

    fn described(&self, trial: Trial) -> String {
        format!(
            "{} of requests, from {} of clients",
            human::share(trial.denied, self.trace.records.len() as u64),
            human::share(trial.keys_denied, self.trace.keys.len() as u64)
        )
    }
}

/// Returns a quota's period in the syntax of the flags.
fn period_text(quota: &Quota) -> String {
    // "60/min burst 10" without the limit and the burst.
    let text = quota.to_string();
    let period = text.split_once('/').map_or("", |(_, text)| text.split(' ').next().unwrap_or(text));
    period.to_owned()
}

/// The flag for a quota's period.
fn period_flag(quota: &Quota) -> String {
    format!("--period {}", period_text(quota))
}

/// The replays of one algorithm. The limits are ordered from the longest period to the shortest: all of them, or the
/// first few during the search.
struct Trials<'a> {
    search: &'a Search<'a>,
    algorithm: LimitKind,
    periods: Vec<Duration>,
    made: BTreeMap<Vec<u64>, Trial>,
}

impl Trials<'_> {
    /// Finds all limits, then tries their neighbours.
    fn smallest(&mut self) -> Result<Vec<u64>, Error> {
        let mut limits = Vec::new();
        while limits.len() < self.periods.len() {
            self.find_next(&mut limits)?;
        }
        for place in 0..limits.len() {
            // In nearly all cases the next lower limit misses the goal, and this loop does nothing.
            let below = limits[place] - 1;
            if below > 0 && self.meets(&with(&limits, place, below))? {
                limits[place] = below;
                self.bisect(&mut limits, place, 0)?;
            }
        }
        self.try_neighbours(&limits);
        Ok(limits)
    }

    /// Finds the smallest limit for the next period that, together with the limits before it, uses at most their part
    /// of the goal.
    fn find_next(&mut self, limits: &mut Vec<u64>) -> Result<(), Error> {
        let (place, highest) = (limits.len(), self.search.highest());
        let mut low = 0;
        limits.push(1);
        // Doubles the limit until it is enough, so that a small answer needs only small steps.
        loop {
            match self.meets(limits) {
                Ok(true) => return self.bisect(limits, place, low),
                Ok(false) => low = limits[place],
                // The first limit was valid, so this limit is out of range.
                Err(_) if low > 0 => return Err(self.goal_not_met(&with(limits, place, low))),
                Err(error) => return Err(error),
            }
            if low >= highest {
                return Err(self.goal_not_met(limits));
            }
            limits[place] = low.saturating_mul(2).min(highest);
        }
    }

    /// Lowers one limit to the smallest value at which all limits together still meet the goal. At `low` they do not
    /// meet the goal, or `low` is 0.
    fn bisect(&mut self, limits: &mut [u64], place: usize, mut low: u64) -> Result<(), Error> {
        let mut high = limits[place];
        while high - low > 1 {
            limits[place] = low + (high - low) / 2;
            if self.meets(limits)? { high = limits[place] } else { low = limits[place] }
        }
        limits[place] = high;
        Ok(())
    }

    /// Tries the neighbouring limits that bisection did not try, and the limits for the table.
    fn try_neighbours(&mut self, limits: &[u64]) {
        for (place, &limit) in limits.iter().enumerate() {
            let most = self.search.highest().max(limit.saturating_add(1));
            for near in neighbours(limit).into_iter().chain([limit.saturating_sub(2)]) {
                if (1..=most).contains(&near) {
                    // A limit out of the algorithm's range has no trial, which is no reason to fail now.
                    let _ = self.trial(&with(limits, place, near));
                }
            }
        }
    }

    /// Returns the reason why there is no answer: these limits deny too much, and the last of them cannot be higher.
    fn goal_not_met(&self, limits: &[u64]) -> Error {
        let (search, all) = (self.search, self.periods.len());
        let (goal, place) = (search.goal.text(), limits.len() - 1);
        let tried = self.made.get(limits).map_or(String::new(), |&trial| {
            format!("; even a limit of {} denies {}", limits[place], search.described(trial))
        });
        let why = match search.burst {
            Some(burst) => format!("; the burst of {burst} may be too small, so try a larger --burst"),
            None => String::new(),
        };
        let flag = search
            .quota(limits[place], self.periods[place])
            .map_or(String::new(), |quota| period_flag(&quota));
        let what = match limits.len() {
            1 if all == 1 => format!("no limit meets the goal to {goal}"),
            part if part < all => {
                format!("no limit with {flag} meets its part ({part}/{all}) of the goal to {goal}")
            }
            _ => format!("no limit with {flag} meets the goal to {goal}"),
        };
        Error::run(format!("{}: {what}{tried}{why}", self.algorithm.name()))
    }

    fn meets(&mut self, limits: &[u64]) -> Result<bool, Error> {
        let trial = self.trial(limits)?;
        Ok(self.search.meets(trial, limits.len()))
    }

    fn trial(&mut self, limits: &[u64]) -> Result<Trial, Error> {
        if let Some(&trial) = self.made.get(limits) {
            return Ok(trial);
        }
        let texts: Vec<String> = limits.iter().map(u64::to_string).collect();
        self.search.progress.set_message(format!("{} {}", self.algorithm.name(), texts.join(" and ")));
        let outcome = self.replay(limits, false)?;
        let trial = Trial {
            denied: outcome.tally.decisions.denials.denied,
            keys_denied: outcome.tally.keys_denied(),
        };
        self.made.insert(limits.to_vec(), trial);
        Ok(trial)
    }

    fn replay(&self, limits: &[u64], with_exact_store: bool) -> Result<AlgorithmReplay, Error> {
        let (search, algorithm) = (self.search, self.algorithm);
        let quotas = limits.iter().zip(&self.periods).map(|(&limit, &period)| search.quota(limit, period));
        let quotas = quotas.collect::<Result<Vec<_>, _>>()?;
        // A limit has the memory that it has when all limits are in force.
        let storage = search.storage.part(limits.len(), self.periods.len());
        let setup = ReplaySetup { storage, with_exact_store };
        replay(search.trace, algorithm, &quotas, setup, search.progress).map_err(|error| {
            let setup = ReplaySetup { storage: search.storage, ..setup };
            Error::usage(format!(
                "{}: {}",
                algorithm.name(),
                setup.quota_error_text(&error, algorithm, &quotas, period_flag)
            ))
        })
    }

    /// Returns the trials in the place of one of these limits, with the other limits in force.
    fn trials_in_place(&self, limits: &[u64], place: usize) -> BTreeMap<u64, Trial> {
        let tried = self
            .made
            .iter()
            .filter(|(made, _)| made.get(place).is_some_and(|&limit| with(limits, place, limit) == **made));
        tried.map(|(made, &trial)| (made[place], trial)).collect()
    }

    /// Returns whether no limits denied more than limits that are nowhere higher.
    fn monotone(&self) -> bool {
        let no_more = |trial: &Trial, other: &Trial| {
            let mut pairs = self.search.bounded(*trial).zip(self.search.bounded(*other));
            pairs.all(|((_, denied, _), (_, more, _))| denied <= more)
        };
        let nowhere_higher = |limits: &[u64], others: &[u64]| {
            limits.len() == others.len() && limits.iter().zip(others).all(|(limit, other)| limit <= other)
        };
        self.made.iter().all(|(limits, trial)| {
            let mut lower = self.made.iter().filter(|(others, _)| nowhere_higher(others, limits));
            lower.all(|(_, other)| no_more(trial, other))
        })
    }
}

/// Returns the limits next to one, and round figures further away.
fn neighbours(limit: u64) -> [u64; 5] {
    [limit / 4, limit / 2, limit.saturating_sub(1), limit.saturating_add(1), limit.saturating_mul(2)]
}

/// Returns these limits with another one in one place.
fn with(limits: &[u64], place: usize, limit: u64) -> Vec<u64> {
    let mut limits = limits.to_vec();
    limits[place] = limit;
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::Record;

    #[test]
    fn search_gives_each_limit_its_final_memory() {
        let mut trace = Trace::default();
        let key = trace.keys.intern(b"a").unwrap();
        trace.records.push(Record { at: 0, cost: 1, key });
        let hours = [1, 2, 3].map(|hours| Duration::from_secs(hours * 3_600));
        let search = Search {
            trace: &trace,
            goal: Goal { requests: Some("1%".parse().unwrap()), clients: None },
            periods: &hours,
            burst: None,
            storage: Storage { store: StoreKind::Compact, memory: "96KiB".parse().unwrap(), overflow: None },
            progress: &ProgressBar::hidden(),
        };
        let trials = Trials {
            search: &search,
            algorithm: LimitKind::Gcra,
            periods: hours.to_vec(),
            made: BTreeMap::new(),
        };
        for limits in [&[5][..], &[5, 6], &[5, 6, 7]] {
            let outcome = trials.replay(limits, false).unwrap();
            let each = outcome.tally.state_bytes / limits.len() as u64;
            assert!((30 << 10..=32 << 10).contains(&each), "{limits:?}: {each}");
        }
    }
}
