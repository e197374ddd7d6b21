//! One process: its book, in either mode.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tollgate::Decision;
use tollgate_protocol::{Call, Place, Plan, Question, Reply, Scope};
use tollgate_redis::internals::{
    BlockRequest, BookSettings, Granted, LeaseBook, LeaseCheck, LeaseSettings, Post, Receipt, Waiting,
    WriteBackBook, places_of,
};
use tollgate_redis::{ErrorKind, InProcess, OnFailure, WriteBackStats};

use super::setup::{Mode, Setup};

pub(super) struct Node {
    book: Book,
    /// How often the book called `wake`.
    wakes: Arc<AtomicUsize>,
}

enum Book {
    Lease(Leases),
    WriteBack(WriteBackBook),
}

struct Leases {
    book: LeaseBook,
    plan: Arc<Plan>,
    life_ns: u64,
}

/// The result of a request.
#[expect(clippy::large_enum_variant, reason = "a short-lived value")]
pub(super) enum Found {
    Decided(bool),
    /// The request calls the server, and waits for the answer.
    Asks(Asked),
    /// The request waits for an answer that is in flight. The value records this until it is dropped.
    Waits(Waiting),
}

/// The result of an answer for the request that waits for it.
pub(super) enum NodeAnswer {
    /// No request waits for this answer, or the request must look again.
    Again,
    Decided(bool),
}

/// A call of a node.
pub(super) enum Asked {
    Lease(BlockRequest, Call),
    /// One request, which the server decides.
    Exact(u32, Call),
    WriteBack(Post),
}

/// The name of a key in the books.
pub(super) fn name(key: u32) -> [u8; 4] {
    key.to_be_bytes()
}

impl Asked {
    pub(super) fn key(&self) -> u32 {
        let name = match self {
            Self::Lease(due, _) => &*due.key,
            Self::Exact(key, _) => return *key,
            Self::WriteBack(post) => post.key(),
        };
        u32::from_be_bytes(name.try_into().expect("four bytes"))
    }

    pub(super) fn call(&self) -> &Call {
        match self {
            Self::Lease(_, call) | Self::Exact(_, call) => call,
            Self::WriteBack(post) => &post.call,
        }
    }
}

impl Leases {
    fn call(&self, key: &[u8], ask: Question) -> Call {
        let (tag, plan) = ([b"simulation:", key].concat(), Arc::clone(&self.plan));
        Call { tag, plan, ask, now: None, place: Place::default(), scope: Scope::Limits }
    }

    fn asked(&self, due: BlockRequest) -> Asked {
        let call = self.call(&due.key, due.ask());
        Asked::Lease(due, call)
    }
}

/// A unit is spent only during its life, and a denial has a retry time.
fn is_allowed(decision: &Decision, until_ns: u64, now_ns: u64) -> bool {
    if decision.is_allowed() {
        assert!(until_ns > now_ns, "a unit is spent only during its life");
    } else {
        let wait = decision.retry_after().unwrap_or_default();
        assert!(decision.is_never() || wait > Duration::ZERO, "a denial has a retry time");
    }
    decision.is_allowed()
}

impl Node {
    pub(super) fn new(setup: &Setup, plan: &Arc<Plan>, number: u32) -> Self {
        let wakes = Arc::new(AtomicUsize::new(0));
        let wake = {
            let wakes = Arc::clone(&wakes);
            move || _ = wakes.fetch_add(1, Ordering::Relaxed)
        };
        let (plan, nodes, interval_ns) = (Arc::clone(plan), setup.nodes, setup.interval_ns());
        let book = match setup.mode {
            Mode::Lease | Mode::Awaited => {
                let settings = LeaseSettings {
                    limit: plan.most(),
                    life: setup.interval,
                    max_block: setup.max_block,
                    processes: nodes,
                    stripes: setup.stripes,
                    max_keys: 16,
                    seed: number.into(),
                };
                let book = LeaseBook::new(settings, wake);
                Book::Lease(Leases { book, plan, life_ns: interval_ns })
            }
            Mode::WriteBack => {
                let settings = BookSettings {
                    places: places_of(&InProcess::default().limiter("simulation", setup.limit)),
                    interval_ns,
                    processes: nodes.into(),
                    on_failure: OnFailure::Local { processes: nodes },
                    max_keys: 16,
                    process: (u64::from(number) + 1) << 20,
                    in_flight: 16,
                    in_parts: false,
                    portion: None,
                };
                Book::WriteBack(WriteBackBook::new(plan, settings, wake))
            }
        };
        Self { book, wakes }
    }

    /// Returns whether a call became due immediately since the last call of this method.
    pub(super) fn woke(&self) -> bool {
        self.wakes.swap(0, Ordering::Relaxed) > 0
    }

    /// Adds a key to the table of a node with leases.
    pub(super) fn add_key(&self, key: u32, now_ns: u64) {
        if let Book::Lease(leases) = &self.book {
            let _ = leases.book.check(&name(key), 1, now_ns);
        }
    }

    /// Looks for units, as `LeaseLimiter::check_async` does. If the request has looked too often, it asks the server for
    /// its own cost.
    pub(super) fn find(&self, key: u32, cost: u64, now_ns: u64, is_last: bool) -> Found {
        let Book::Lease(leases) = &self.book else { return Found::Decided(self.check(key, cost, now_ns)) };
        let name = &name(key);
        if is_last {
            return Found::Asks(Asked::Exact(key, leases.call(name, Question::Check { cost })));
        }
        match leases.book.check(name, cost, now_ns) {
            LeaseCheck::Decided(decision, until_ns) => {
                Found::Decided(is_allowed(&decision, until_ns, now_ns))
            }
            LeaseCheck::Failing | LeaseCheck::Full => Found::Decided(false),
            LeaseCheck::Missing(_, holding) => match leases.book.claim(name, &holding, cost, now_ns) {
                Some(due) => Found::Asks(leases.asked(due)),
                None => Found::Waits(leases.book.wait(holding, cost, now_ns)),
            },
        }
    }

    /// Decides at once, as `LeaseLimiter::check` does. Returns whether the request is admitted.
    pub(super) fn check(&self, key: u32, cost: u64, now_ns: u64) -> bool {
        let name = &name(key);
        match &self.book {
            Book::Lease(leases) => match leases.book.check(name, cost, now_ns) {
                LeaseCheck::Decided(decision, until_ns) => is_allowed(&decision, until_ns, now_ns),
                LeaseCheck::Missing(decision, holding) => {
                    leases.book.want(name, &holding, cost, now_ns);
                    is_allowed(&decision, 0, now_ns)
                }
                LeaseCheck::Failing | LeaseCheck::Full => false,
            },
            Book::WriteBack(book) => book.check(name, cost, now_ns).decision.is_allowed(),
        }
    }

    pub(super) fn due(&self, now_ns: u64) -> Vec<Asked> {
        match &self.book {
            Book::Lease(leases) => {
                let due = leases.book.due(usize::MAX, now_ns);
                due.into_iter().map(|due| leases.asked(due)).collect()
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
                let granted = Granted::read(&leases.plan, due, reply);
                match leases.book.answered(due, &granted, now_ns) {
                    Receipt::Taken { until_ns } if due.cost > 0 => {
                        assert!(until_ns > now_ns, "a unit is spent only during its life");
                        NodeAnswer::Decided(true)
                    }
                    Receipt::Refused { .. } => NodeAnswer::Decided(false),
                    Receipt::Taken { .. } | Receipt::Late => NodeAnswer::Again,
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
    pub(super) fn posted(&self, now_ns: u64) -> Option<WriteBackStats> {
        match &self.book {
            Book::Lease(_) => None,
            Book::WriteBack(book) => Some(book.counted(now_ns)),
        }
    }

    /// The book of a node with leases.
    pub(super) fn leases(&self) -> Option<&LeaseBook> {
        match &self.book {
            Book::Lease(leases) => Some(&leases.book),
            Book::WriteBack(_) => None,
        }
    }
}
