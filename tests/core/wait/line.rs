//! A slow and simple model of lines. Time advances by one millisecond at a time. At each step the first in line is
//! admitted if the algorithm's oracle admits it.

use std::collections::VecDeque;
use tollgate_testing::kinds::Kind;
use tollgate_testing::oracle::{Oracle, Spec};

pub(crate) const MS: u64 = 1_000_000;

/// A request: when it comes (ms after the test's start), its key and cost, and how long it waits.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Request {
    pub(crate) at: u64,
    pub(crate) key: u64,
    pub(crate) cost: u64,
    pub(crate) within: Option<u64>,
    /// The time after which the wait is dropped.
    pub(crate) dropped: Option<u64>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Admitted,
    TooLate,
    Never,
    Dropped,
}

/// One key's line.
#[derive(Debug)]
struct Line {
    oracle: Box<dyn Oracle>,
    /// All charges, with which a copy of the oracle is built.
    charges: Vec<(u64, u64)>,
    waiting: VecDeque<usize>,
}

/// Computes the end of each request, and the millisecond of the end.
pub(crate) struct Model<'r> {
    pub(crate) kind: Kind,
    pub(crate) spec: Spec,
    pub(crate) start_ns: u64,
    pub(crate) requests: &'r [Request],
}

impl Model<'_> {
    /// Whether the turn of every waiter in line is known in advance.
    pub(crate) fn knows_turns(kind: Kind) -> bool {
        matches!(kind, Kind::Interval | Kind::Aligned(_) | Kind::Adaptive(_)) || kind.is_bucket_family()
    }

    fn ns(&self, at: u64) -> u64 {
        self.start_ns + at * MS
    }

    fn deadline(&self, index: usize) -> Option<u64> {
        let request = self.requests[index];
        request.within.map(|within| request.at + within)
    }

    fn goes(&self, oracle: &dyn Oracle, index: usize, at: u64) -> bool {
        let now = u128::from(self.ns(at));
        oracle.admits(now, self.requests[index].cost) && oracle.delay(now) == 0
    }

    fn rebuilt_oracle(&self, line: &Line) -> Box<dyn Oracle> {
        let mut oracle = self.kind.oracle(self.spec);
        for &(ns, cost) in &line.charges {
            oracle.charge(ns.into(), cost);
        }
        oracle
    }

    /// Whether the last of `waiting` is admitted by its deadline if no waiter leaves.
    fn in_time(&self, line: &Line, waiting: &VecDeque<usize>, now: u64) -> bool {
        let Some(deadline) = waiting.back().and_then(|&last| self.deadline(last)) else {
            return true;
        };
        let mut oracle = self.rebuilt_oracle(line);
        let mut waiting = waiting.clone();
        for at in now..=deadline {
            while let Some(&head) = waiting.front()
                && self.goes(&*oracle, head, at)
            {
                oracle.charge(self.ns(at).into(), self.requests[head].cost);
                waiting.pop_front();
            }
        }
        waiting.is_empty()
    }

    /// Returns the end of each request, and its millisecond.
    pub(crate) fn run(&self) -> Vec<(End, u64)> {
        let mut ends = vec![None; self.requests.len()];
        let keys = self.requests.iter().map(|request| request.key).max().map_or(0, |key| key + 1);
        for key in 0..keys {
            let oracle = self.kind.oracle(self.spec);
            let mut line = Line { oracle, charges: Vec::new(), waiting: VecDeque::new() };
            let mut coming: VecDeque<usize> =
                (0..self.requests.len()).filter(|&index| self.requests[index].key == key).collect();
            let mut now = 0;
            while !(coming.is_empty() && line.waiting.is_empty()) {
                self.tick(&mut line, &mut coming, now, &mut ends);
                now += 1;
            }
        }
        ends.into_iter().map(|end| end.expect("every request ends")).collect()
    }

    fn tick(&self, line: &mut Line, coming: &mut VecDeque<usize>, now: u64, ends: &mut [Option<(End, u64)>]) {
        for index in line.waiting.clone() {
            let request = self.requests[index];
            let end = if request.dropped.is_some_and(|after| request.at + after == now) {
                End::Dropped
            } else if self.deadline(index) == Some(now) {
                End::TooLate
            } else {
                continue;
            };
            ends[index] = Some((end, now));
            line.waiting.retain(|&waiting| waiting != index);
        }
        while let Some(&index) = coming.front()
            && self.requests[index].at == now
        {
            coming.pop_front();
            if self.requests[index].cost > line.oracle.capacity() {
                ends[index] = Some((End::Never, now));
                continue;
            }
            line.waiting.push_back(index);
            if Self::knows_turns(self.kind) && !self.in_time(line, &line.waiting, now) {
                line.waiting.pop_back();
                ends[index] = Some((End::TooLate, now));
            }
        }
        while let Some(&head) = line.waiting.front() {
            if self.goes(&*line.oracle, head, now) {
                let cost = self.requests[head].cost;
                line.oracle.charge(self.ns(now).into(), cost);
                line.charges.push((self.ns(now), cost));
                ends[head] = Some((End::Admitted, now));
            } else if !self.in_time(line, &VecDeque::from([head]), now) {
                ends[head] = Some((End::TooLate, now));
            } else {
                break;
            }
            line.waiting.pop_front();
        }
    }
}
