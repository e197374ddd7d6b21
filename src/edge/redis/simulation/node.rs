//! One process: its book, in either mode.

use std::sync::Arc;
use std::time::Duration;

use crate::base::sync::{AtomicUsize, Ordering};
use crate::edge::redis::client::{KeyPlaces, OnFailure};
use crate::edge::redis::mode::lease;
use crate::edge::redis::mode::write_back::{self, WriteBackBook, WriteBackStats};
use crate::edge::redis::protocol::{Call, ErrorKind, Place, Plan, Question, Reply};

/// The key of all requests.
pub(super) const KEY: &[u8] = b"key";

/// The maximum number of units that a process holds.
pub(super) const MAX_BLOCK: u64 = 4_096;

/// What decides the requests.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Leases. A request that finds too few units waits for the server.
    Awaited,
    /// Leases. A request never waits: it is denied if too few units are held.
    Lease,
    /// Write-back: processes decide with their share, and post later.
    WriteBack,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Awaited, Self::Lease, Self::WriteBack];

    /// The name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Awaited => "lease",
            Self::Lease => "lease, sync",
            Self::WriteBack => "write-back",
        }
    }
}

pub(super) struct Node {
    book: Book,
    /// How often the book called `wake`.
    wakes: Arc<AtomicUsize>,
}

enum Book {
    Lease(Leases),
    WriteBack(WriteBackBook),
}

pub(super) struct Leases {
    book: lease::LeaseBook,
    plan: Arc<Plan>,
    life_ns: u64,
    is_awaited: bool,
}

/// The result of a request.
#[expect(clippy::large_enum_variant, reason = "a short-lived value")]
pub(super) enum Found {
    Decided(bool),
    /// The request calls the server, and waits for the answer.
    Asks(Asked),
    /// The request waits for an answer that is in flight.
    Waits,
}

/// The result of an answer for the request that waits for it.
pub(super) enum NodeAnswer {
    /// No request waits for this answer, or the request must look again.
    Again,
    Decided(bool),
}

/// A call of a node.
pub(super) enum Asked {
    Lease(lease::BlockRequest, Call),
    /// One request, which the server decides.
    Exact(Call),
    WriteBack(write_back::Post),
}

impl Asked {
    pub(super) fn call(&self) -> &Call {
        match self {
            Self::Lease(_, call) | Self::Exact(call) => call,
            Self::WriteBack(post) => &post.call,
        }
    }
}

impl Leases {
    fn call(&self, ask: Question) -> Call {
        Call {
            tag: b"simulation:{key}".to_vec(),
            plan: Arc::clone(&self.plan),
            ask,
            now: None,
            place: Place::default(),
        }
    }
}

impl Node {
    pub(super) fn new(mode: Mode, plan: &Arc<Plan>, nodes: u32, number: u32, interval_ns: u64) -> Self {
        let wakes = Arc::new(AtomicUsize::new(0));
        let wake = {
            let wakes = Arc::clone(&wakes);
            // Ordering: Relaxed. There is one thread.
            move || _ = wakes.fetch_add(1, Ordering::Relaxed)
        };
        let book = match mode {
            Mode::Lease | Mode::Awaited => {
                let habits = lease::LeaseSettings {
                    limit: plan.most(),
                    life: Duration::from_nanos(interval_ns),
                    max_block: MAX_BLOCK,
                    processes: nodes,
                    stripes: None,
                    max_keys: 16,
                    seed: number.into(),
                };
                let (book, plan) = (lease::LeaseBook::new(habits, wake), Arc::clone(plan));
                let is_awaited = mode == Mode::Awaited;
                Book::Lease(Leases { book, plan, life_ns: interval_ns, is_awaited })
            }
            Mode::WriteBack => Book::WriteBack(WriteBackBook::new(
                Arc::clone(plan),
                write_back::BookSettings {
                    places: KeyPlaces::new(b"simulation:{", &Arc::default()),
                    interval_ns,
                    processes: nodes.into(),
                    on_failure: OnFailure::Local { processes: nodes },
                    max_keys: 16,
                    process: (u64::from(number) + 1) << 20,
                    in_flight: 16,
                    in_parts: false,
                    portion: None,
                },
                wake,
            )),
        };
        Self { book, wakes }
    }

    /// Returns whether a call became due immediately since the last call of this method.
    pub(super) fn woke(&self) -> bool {
        // Ordering: Relaxed. There is one thread.
        self.wakes.swap(0, Ordering::Relaxed) > 0
    }

    /// Returns the state of the key, if requests wait for it. Must be called before all other methods.
    pub(super) fn holding(&self, now_ns: u64) -> Option<Arc<lease::Holding>> {
        let Book::Lease(leases) = &self.book else { return None };
        match leases.book.check(KEY, 1, now_ns) {
            lease::LeaseCheck::Missing(_, holding) if leases.is_awaited => Some(holding),
            _ => None,
        }
    }

    /// Checks one unit, as `LeaseLimiter::check_async` does.
    pub(super) fn find(&self, now_ns: u64, is_last: bool) -> Found {
        let leases = match &self.book {
            Book::Lease(leases) if leases.is_awaited => leases,
            _ => return Found::Decided(self.check(now_ns)),
        };
        if is_last {
            return Found::Asks(Asked::Exact(leases.call(Question::Check { cost: 1 })));
        }
        match leases.book.check(KEY, 1, now_ns) {
            lease::LeaseCheck::Decided(decision, _) => Found::Decided(decision.is_allowed()),
            lease::LeaseCheck::Failing | lease::LeaseCheck::Full => Found::Decided(false),
            lease::LeaseCheck::Missing(_, holding) => match leases.book.claim(KEY, &holding, 1, now_ns) {
                Some(due) => {
                    let call = leases.call(due.ask);
                    Found::Asks(Asked::Lease(due, call))
                }
                None => Found::Waits,
            },
        }
    }

    /// Records that a request waits, until the returned value is dropped.
    pub(super) fn wait<'h>(
        &self,
        holding: &'h Arc<lease::Holding>,
        now_ns: u64,
    ) -> Option<lease::Waiting<'h>> {
        let Book::Lease(leases) = &self.book else { return None };
        Some(leases.book.wait(holding, 1, now_ns))
    }

    /// Returns whether the request is admitted.
    fn check(&self, now_ns: u64) -> bool {
        match &self.book {
            Book::Lease(leases) => match leases.book.check(KEY, 1, now_ns) {
                lease::LeaseCheck::Decided(decision, _) => decision.is_allowed(),
                lease::LeaseCheck::Missing(_, holding) => {
                    leases.book.want(KEY, &holding, 1, now_ns);
                    false
                }
                lease::LeaseCheck::Failing | lease::LeaseCheck::Full => false,
            },
            Book::WriteBack(book) => book.check(KEY, 1, now_ns).decision.is_allowed(),
        }
    }

    pub(super) fn due(&self, now_ns: u64) -> Vec<Asked> {
        match &self.book {
            Book::Lease(leases) => {
                let call = |due: lease::BlockRequest| {
                    let call = leases.call(due.ask);
                    Asked::Lease(due, call)
                };
                leases.book.due(usize::MAX, now_ns).into_iter().map(call).collect()
            }
            Book::WriteBack(book) => book.due(now_ns).into_iter().map(Asked::WriteBack).collect(),
        }
    }

    /// The time of the next scan for due calls.
    pub(super) fn next_ns(&self, now_ns: u64) -> u64 {
        match &self.book {
            Book::Lease(leases) => now_ns + leases.life_ns,
            Book::WriteBack(book) => book.next_ns(),
        }
    }

    /// Returns the result for the waiting request.
    pub(super) fn answered(&self, asked: &Asked, reply: &Reply, now_ns: u64) -> NodeAnswer {
        match (&self.book, asked) {
            (Book::Lease(leases), Asked::Lease(due, _)) => {
                let granted = lease::Granted::read(&leases.plan, due, reply);
                match leases.book.answered(due, &granted, now_ns) {
                    lease::Receipt::Taken { .. } if due.cost > 0 => NodeAnswer::Decided(true),
                    lease::Receipt::Refused { .. } => NodeAnswer::Decided(false),
                    lease::Receipt::Taken { .. } | lease::Receipt::Late => NodeAnswer::Again,
                }
            }
            (Book::WriteBack(book), Asked::WriteBack(post)) => {
                book.posted(post, reply, now_ns);
                NodeAnswer::Again
            }
            _ => NodeAnswer::Again,
        }
    }

    pub(super) fn failed(&self, asked: &Asked, now_ns: u64) {
        match (&self.book, asked) {
            (Book::Lease(leases), Asked::Lease(due, _)) => leases.book.failed(due, now_ns),
            (Book::WriteBack(book), Asked::WriteBack(post)) => book.failed(post, ErrorKind::Timeout, now_ns),
            _ => {}
        }
    }

    /// The counts of a node that posts.
    pub(super) fn stats(&self, now_ns: u64) -> Option<WriteBackStats> {
        match &self.book {
            Book::Lease(_) => None,
            Book::WriteBack(book) => Some(book.counted(now_ns)),
        }
    }
}
