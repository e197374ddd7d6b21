//! Runs a trace through the library's keyed limiters, in the trace's own time.

use std::any::TypeId;
use std::time::Duration;

use indicatif::ProgressBar;

use super::algorithms::{Kind, Options, Visitor};
use super::error::Error;
use super::input::{Record, Trace};
use crate::sync::AtomicU64;
use crate::{Algorithm, ManualClock, Quota, QuotaError, RateLimiter, Timestamp};

/// Between two looks at the progress bar and at the store's size.
const STRIDE: usize = 1 << 12;

/// What one algorithm made of a trace.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which algorithm.
    pub kind: Kind,
    /// The limits on every request.
    pub quotas: Vec<Quota>,
    /// The decisions.
    pub tally: Tally,
}

/// The decisions, and what they add up to.
#[derive(Clone, Debug)]
pub struct Tally {
    /// A byte a record, in the order of replay: `1` admitted, `0` denied.
    pub decisions: Vec<u8>,
    /// Requests denied, by key.
    pub denied_by_key: Vec<u64>,
    /// Requests denied.
    pub denied: u64,
    /// Of them, those whose cost no wait would ever admit.
    pub never: u64,
    /// The longest time that a denied request was told to wait.
    pub longest_wait: Duration,
    /// The most memory that the limiters' states took, by their number at regular looks.
    pub state_bytes: u64,
}

impl Tally {
    /// Requests admitted.
    #[must_use]
    pub fn admitted(&self) -> u64 {
        self.decisions.len() as u64 - self.denied
    }

    /// Keys of which at least one request was denied.
    #[must_use]
    pub fn keys_denied(&self) -> u64 {
        self.denied_by_key.iter().filter(|&&denied| denied > 0).count() as u64
    }

    /// The keys with the most denials: most first, of equals the one seen first.
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<(u32, u64)> {
        let ids = 0_u32..;
        let mut keys: Vec<(u32, u64)> =
            ids.zip(self.denied_by_key.iter().copied()).filter(|&(_, denied)| denied > 0).collect();
        keys.sort_by_key(|&(_, denied)| std::cmp::Reverse(denied));
        keys.truncate(most);
        keys
    }
}

/// Replays a trace through one algorithm, under one limit or several at once.
///
/// With several limits a request is admitted, and charged to all of them, only if every one admits it.
///
/// # Errors
/// If the algorithm cannot hold a quota.
pub fn replay(
    trace: &Trace,
    kind: Kind,
    quotas: &[Quota],
    options: Options,
    progress: &ProgressBar,
) -> Result<Outcome, QuotaError> {
    let run = Run { records: &trace.records, keys: trace.keys.len(), progress };
    let tally = kind.visit(quotas, options, run)?;
    Ok(Outcome { kind, quotas: quotas.to_vec(), tally })
}

/// Replays through several algorithms. One that cannot hold the quotas ends the run if it was asked for by name,
/// and is left out with a note if it is only one of all.
///
/// # Errors
/// If an algorithm asked for, or every one, cannot hold a quota.
pub fn replay_all(
    trace: &Trace,
    kinds: &[Kind],
    by_name: bool,
    quotas: &[Quota],
    options: Options,
    progress: &ProgressBar,
) -> Result<(Vec<Outcome>, Vec<String>), Error> {
    let mut outcomes = Vec::new();
    let mut left_out = Vec::new();
    for &kind in kinds {
        progress.set_message(kind.as_str());
        match replay(trace, kind, quotas, options, progress) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) if by_name => return Err(Error::usage(format!("{}: {error}", kind.as_str()))),
            Err(error) => left_out.push(format!("{} left out: {error}", kind.as_str())),
        }
    }
    if outcomes.is_empty() {
        return Err(Error::usage(left_out.join("\n")));
    }
    Ok((outcomes, left_out))
}

struct Run<'a> {
    records: &'a [Record],
    keys: usize,
    progress: &'a ProgressBar,
}

impl Visitor for Run<'_> {
    type Output = Tally;

    fn visit<A: Algorithm>(self, algorithms: Vec<A>) -> Tally {
        let limiters: Vec<_> = algorithms
            .into_iter()
            .map(|algorithm| {
                // Every check is given its time, so the clock is never read: a still one costs nothing to make.
                // Keys are our own small numbers, which no client chooses; fixed seeds make runs repeatable.
                let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
                let builder = RateLimiter::builder(algorithm).clock(ManualClock::new(Timestamp::ZERO));
                builder.hasher(hasher).keyed::<u32>()
            })
            .collect();
        let state_bytes =
            || limiters.iter().map(|limiter| limiter.len() * bytes_per_key(limiter.algorithm())).sum();
        match &limiters[..] {
            [limiter] => self.decide(state_bytes, |record, now| {
                let decision = limiter.check_at(&record.key, record.cost, now);
                if decision.is_allowed() { Ok(()) } else { Err(decision.retry_after()) }
            }),
            limiters => self.decide(state_bytes, |record, now| {
                let mut wait = Some(Duration::ZERO);
                let mut denied = false;
                for limiter in limiters {
                    let decision = limiter.peek_at(&record.key, record.cost, now);
                    if decision.is_denied() {
                        denied = true;
                        // The longest; and never is longer than any.
                        wait = wait.zip(decision.retry_after()).map(|(a, b)| a.max(b));
                    }
                }
                if denied {
                    return Err(wait);
                }
                for limiter in limiters {
                    let decision = limiter.check_at(&record.key, record.cost, now);
                    debug_assert!(decision.is_allowed(), "nothing came between the peek and the check");
                }
                Ok(())
            }),
        }
    }
}

impl Run<'_> {
    /// The loop over the records. `decide` admits, or denies with the wait, `None` if no wait helps.
    fn decide(
        self,
        state_bytes: impl Fn() -> usize,
        mut decide: impl FnMut(&Record, Timestamp) -> Result<(), Option<Duration>>,
    ) -> Tally {
        let mut tally = Tally {
            decisions: Vec::with_capacity(self.records.len()),
            denied_by_key: vec![0; self.keys],
            denied: 0,
            never: 0,
            longest_wait: Duration::ZERO,
            state_bytes: 0,
        };
        for records in self.records.chunks(STRIDE) {
            for record in records {
                match decide(record, Timestamp::from_nanos(record.at)) {
                    Ok(()) => tally.decisions.push(b'1'),
                    Err(wait) => {
                        tally.decisions.push(b'0');
                        tally.denied += 1;
                        tally.denied_by_key[record.key as usize] += 1;
                        match wait {
                            Some(wait) => tally.longest_wait = tally.longest_wait.max(wait),
                            None => tally.never += 1,
                        }
                    }
                }
            }
            tally.state_bytes = tally.state_bytes.max(state_bytes() as u64);
            self.progress.inc(records.len() as u64);
        }
        tally
    }
}

/// What the keyed store keeps for one key: link, hash, state and key in a node, and its share of the buckets.
fn bytes_per_key<A: Algorithm>(algorithm: &A) -> usize {
    let node = size_of::<(usize, u64, u64, A::Tail, u32, usize)>().next_multiple_of(64);
    let boxed = TypeId::of::<A::Tail>() == TypeId::of::<Box<[AtomicU64]>>();
    let elsewhere = if boxed { algorithm.tail_len() * size_of::<AtomicU64>() } else { 0 };
    node + elsewhere + 4 * size_of::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::algorithms::Kind;

    const OPTIONS: Options = Options { sub_windows: 60, strict: false };
    const SECOND: u64 = 1_000_000_000;

    fn trace(records: &[(u64, u8, u64)]) -> Trace {
        let mut trace = Trace::default();
        for &(second, key, cost) in records {
            let key = trace.keys.intern(&[key]).unwrap();
            trace.records.push(Record { at: second * SECOND, cost, key });
        }
        trace
    }

    fn decisions(trace: &Trace, kind: Kind, limits: &[&str]) -> (String, Tally) {
        let quotas: Vec<Quota> = limits.iter().map(|limit| limit.parse().unwrap()).collect();
        let tally = replay(trace, kind, &quotas, OPTIONS, &ProgressBar::hidden()).unwrap().tally;
        (String::from_utf8(tally.decisions.clone()).unwrap(), tally)
    }

    #[test]
    fn denials_are_counted_by_key() {
        let trace =
            trace(&[(0, b'a', 1), (0, b'b', 1), (0, b'a', 1), (1, b'a', 1), (2, b'c', 9), (10, b'a', 1)]);
        let (text, tally) = decisions(&trace, Kind::SlidingLog, &["1/10s"]);
        assert_eq!(text, "110001");
        assert_eq!((tally.admitted(), tally.denied, tally.never, tally.keys_denied()), (3, 3, 1, 2));
        assert_eq!(tally.longest_wait, Duration::from_secs(10));
        assert_eq!(tally.top_denied(1), [(0, 2)]);
    }

    #[test]
    fn several_limits_charge_all_or_none() {
        // 1/s and 2 in 10 s. At 1.0 s both admit; the denials at 0 s must not have used up the second.
        let trace =
            trace(&[(0, b'a', 1), (0, b'a', 1), (0, b'a', 1), (1, b'a', 1), (2, b'a', 1), (10, b'a', 1)]);
        for kind in [Kind::SlidingLog, Kind::FixedWindow] {
            let (text, tally) = decisions(&trace, kind, &["1/s", "2/10s"]);
            assert_eq!(text, "100101", "{kind:?}");
            assert_eq!(tally.denied, 3);
            // At 2 s the second limit is full until 10 s.
            assert_eq!(tally.longest_wait, Duration::from_secs(8), "{kind:?}");
        }
    }
}
