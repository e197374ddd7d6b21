//! Counts of answers, for metrics.

use std::mem::discriminant;
use std::ptr;
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

/// Counts of answers, since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnswerCounts<N = u64> {
    /// Requests by the method that they came by, in the order of [`Entry::OWN`]. Added methods count their own.
    pub entries: [N; Entry::OWN.len()],
    /// Answers by gRPC code. The index is the code.
    pub codes: [N; CODES],
    /// Answers that say over a limit.
    pub over_limit: N,
    /// Answers that would say over a limit without the dry run of all rules.
    pub shadow_denied: N,
    /// Requests that were refused at once, because too many others were waiting.
    pub overloads: N,
    /// Answers that came at least 5 ms after their deadline.
    pub late: N,
    /// Requests that could not be decoded.
    pub undecodable: N,
    /// Requests that wait for their answer now.
    pub in_flight: N,
    /// Answers by the time that they took: at most the bound of [`BOUNDS_US`] with the same index, and more than the bound
    /// before. The last number counts the answers above all bounds.
    pub times: [N; BOUNDS_US.len() + 1],
    /// The sum of these times, in nanoseconds.
    pub time_sum_ns: N,
}

/// Counts answers.
// Ordering: all operations in this file are Relaxed. The counts publish no other data.
pub type Meters = AnswerCounts<AtomicU64>;

impl Meters {
    /// Reads all counts. A count may include an answer that another count does not include yet.
    pub fn read(&self) -> AnswerCounts {
        let load = |count: &AtomicU64| count.load(Relaxed);
        AnswerCounts {
            entries: self.entries.each_ref().map(load),
            codes: self.codes.each_ref().map(load),
            over_limit: load(&self.over_limit),
            shadow_denied: load(&self.shadow_denied),
            overloads: load(&self.overloads),
            late: load(&self.late),
            undecodable: load(&self.undecodable),
            in_flight: load(&self.in_flight),
            times: self.times.each_ref().map(load),
            time_sum_ns: load(&self.time_sum_ns),
        }
    }

    /// Counts a request that has no message, or one that cannot be decoded.
    pub fn undecodable(&self, entry: Entry<'_>, code: Code) {
        self.count(entry);
        add(&self.codes, code as usize);
        self.undecodable.fetch_add(1, Relaxed);
    }

    /// Counts a request until it is answered or dropped. Returns `None` if too many others are waiting.
    pub fn begin(&self, entry: Entry<'_>, most: usize) -> Option<InFlightRequest<'_>> {
        self.begin_at(entry, most, now())
    }

    /// Counts a request that began at this time.
    pub fn begin_at(&self, entry: Entry<'_>, most: usize, began: Instant) -> Option<InFlightRequest<'_>> {
        self.count(entry);
        let before = self.in_flight.fetch_add(1, Relaxed);
        let request = InFlightRequest { meters: self, began, code: Code::Cancelled };
        if before >= most as u64 {
            self.overloads.fetch_add(1, Relaxed);
            request.end(Code::Unavailable, None);
            return None;
        }
        Some(request)
    }

    fn count(&self, entry: Entry<'_>) {
        if let Entry::Added(method) = entry {
            method.requests.fetch_add(1, Relaxed);
        }
        let own = Entry::OWN.iter().position(|(own, _)| discriminant(own) == discriminant(&entry));
        own.into_iter().for_each(|place| add(&self.entries, place));
    }

    pub(super) fn over_limit(&self) {
        self.over_limit.fetch_add(1, Relaxed);
    }

    pub(super) fn shadow_denied(&self) {
        self.shadow_denied.fetch_add(1, Relaxed);
    }
}

/// A method of an endpoint that a program adds, and its requests: see [`Answerer::method`](super::Answerer::method).
#[derive(Debug)]
pub struct AddedMethod {
    name: &'static str,
    requests: AtomicU64,
}

impl AddedMethod {
    pub(super) const fn new(name: &'static str) -> Self {
        Self { name, requests: AtomicU64::new(0) }
    }

    /// Its name in metrics.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The number of its requests since the start.
    pub fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// A method is equal to itself only.
impl PartialEq for AddedMethod {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Eq for AddedMethod {}

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
pub(super) fn now() -> Instant {
    Instant::now()
}
