//! Counts of answers, for metrics.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tonic::Code;

use super::Entry;

/// The upper bounds of the time that answers take, in microseconds.
pub const BOUNDS_US: [u64; 10] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 15_000, 20_000];

/// The number of gRPC codes.
const CODES: usize = 17;

/// An answer is late if it comes this long after its deadline, because the gateway has probably gone on without it by then.
const LATE: Duration = Duration::from_millis(5);

/// Counts of answers. All counts are since the start.
// Ordering: all operations in this file are Relaxed. The counts publish no other data.
#[derive(Debug, Default)]
pub struct Meters {
    entries: [AtomicU64; Entry::ALL.len()],
    codes: [AtomicU64; CODES],
    over_limit: AtomicU64,
    shadow_denied: AtomicU64,
    overloads: AtomicU64,
    late: AtomicU64,
    undecodable: AtomicU64,
    in_flight: AtomicU64,
    times: [AtomicU64; BOUNDS_US.len() + 1],
    time_sum_ns: AtomicU64,
}

/// A reading of [`Meters`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnswerCounts {
    /// Requests by the method that they came by, in the order of [`Entry::ALL`].
    pub entries: [u64; Entry::ALL.len()],
    /// Answers by gRPC code. The index is the code.
    pub codes: [u64; CODES],
    /// Answers that say over a limit.
    pub over_limit: u64,
    /// Answers that would say over a limit without the dry run of all rules.
    pub shadow_denied: u64,
    /// Requests that were refused at once, because too many others were waiting.
    pub overloads: u64,
    /// Answers that came at least 5 ms after their deadline.
    pub late: u64,
    /// Requests that could not be decoded.
    pub undecodable: u64,
    /// Requests that wait for their answer now.
    pub in_flight: u64,
    /// Answers by the time that they took: at most the bound of [`BOUNDS_US`] with the same index, and more than the bound
    /// before. The last number counts the answers above all bounds.
    pub times: [u64; BOUNDS_US.len() + 1],
    /// The sum of these times, in nanoseconds.
    pub time_sum_ns: u64,
}

impl Meters {
    /// Reads all counts. A count may include an answer that another count does not include yet.
    pub fn read(&self) -> AnswerCounts {
        fn all<const N: usize>(counts: &[AtomicU64; N]) -> [u64; N] {
            std::array::from_fn(|index| counts.get(index).map_or(0, |count| count.load(Relaxed)))
        }
        AnswerCounts {
            entries: all(&self.entries),
            codes: all(&self.codes),
            over_limit: self.over_limit.load(Relaxed),
            shadow_denied: self.shadow_denied.load(Relaxed),
            overloads: self.overloads.load(Relaxed),
            late: self.late.load(Relaxed),
            undecodable: self.undecodable.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            times: all(&self.times),
            time_sum_ns: self.time_sum_ns.load(Relaxed),
        }
    }

    /// Counts a request that has no message, or one that cannot be decoded.
    pub fn undecodable(&self, entry: Entry, code: Code) {
        add(&self.entries, entry as usize);
        add(&self.codes, code as usize);
        self.undecodable.fetch_add(1, Relaxed);
    }

    /// Counts a request until it is answered or dropped. Returns `None` if too many others are waiting.
    pub fn begin(&self, entry: Entry, most: usize) -> Option<InFlightRequest<'_>> {
        add(&self.entries, entry as usize);
        let before = self.in_flight.fetch_add(1, Relaxed);
        let request = InFlightRequest { meters: self, began: now(), code: Code::Cancelled };
        if before >= most as u64 {
            self.overloads.fetch_add(1, Relaxed);
            request.end(Code::Unavailable, None);
            return None;
        }
        Some(request)
    }

    pub(super) fn over_limit(&self) {
        self.over_limit.fetch_add(1, Relaxed);
    }

    pub(super) fn shadow_denied(&self) {
        self.shadow_denied.fetch_add(1, Relaxed);
    }
}

/// A request that waits for its answer. If it is dropped before its end, it counts as cancelled.
#[derive(Debug)]
pub struct InFlightRequest<'a> {
    meters: &'a Meters,
    began: Instant,
    code: Code,
}

impl InFlightRequest<'_> {
    /// When the request began.
    pub const fn began(&self) -> Instant {
        self.began
    }

    /// Counts the answer, which is ready now.
    pub fn end(self, code: Code, deadline: Option<Instant>) {
        self.end_at(now(), code, deadline);
    }

    /// Counts the answer, which was ready at this time.
    pub fn end_at(mut self, now: Instant, code: Code, deadline: Option<Instant>) {
        self.code = code;
        let took = now.saturating_duration_since(self.began);
        let micros = u64::try_from(took.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX);
        add(&self.meters.times, BOUNDS_US.partition_point(|bound| *bound < micros));
        self.meters.time_sum_ns.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        if deadline.is_some_and(|deadline| now.saturating_duration_since(deadline) >= LATE) {
            self.meters.late.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        add(&self.meters.codes, self.code as usize);
        self.meters.in_flight.fetch_sub(1, Relaxed);
    }
}

fn add(counts: &[AtomicU64], index: usize) {
    if let Some(count) = counts.get(index) {
        count.fetch_add(1, Relaxed);
    }
}

#[expect(clippy::disallowed_methods, reason = "a gateway waits in real time")]
fn now() -> Instant {
    Instant::now()
}
