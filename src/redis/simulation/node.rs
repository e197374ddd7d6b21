//! One process: its book, by whatever mode.

use std::sync::Arc;
use std::time::Duration;

use crate::redis::call::{Call, Reply};
use crate::redis::lease;
use crate::redis::plan::Plan;
use crate::redis::settings::OnFailure;
use crate::redis::write_back::{self, Book};
use crate::sync::{AtomicUsize, Ordering};

/// The key that all ask about.
pub(super) const KEY: &[u8] = b"key";

/// Who decides.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Processes, by units that were charged before.
    Lease,
    /// Processes by their share, told later.
    WriteBack,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Lease, Self::WriteBack];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::WriteBack => "write-back",
        }
    }
}

pub(super) enum Node {
    Lease(Leases),
    WriteBack(Book),
}

pub(super) struct Leases {
    book: lease::Book,
    plan: Arc<Plan>,
    life_ns: u64,
    /// How often the book said that something is due.
    wakes: Arc<AtomicUsize>,
}

/// What a node asked.
pub(super) enum Asked {
    Lease(lease::Due, Call),
    WriteBack(write_back::Post),
}

impl Asked {
    pub(super) fn call(&self) -> &Call {
        match self {
            Self::Lease(_, call) => call,
            Self::WriteBack(post) => &post.call,
        }
    }
}

impl Node {
    pub(super) fn new(mode: Mode, plan: &Arc<Plan>, nodes: u32, number: u32, interval_ns: u64) -> Self {
        match mode {
            Mode::Lease => {
                let wakes = Arc::new(AtomicUsize::new(0));
                let wake = {
                    let wakes = Arc::clone(&wakes);
                    // Ordering: Relaxed. There is one thread.
                    move || _ = wakes.fetch_add(1, Ordering::Relaxed)
                };
                let habits = lease::Habits {
                    limit: plan.most(),
                    life: Duration::from_nanos(interval_ns),
                    max_block: 4_096,
                    processes: nodes,
                    stripes: None,
                    max_keys: 16,
                    seed: number.into(),
                };
                let (book, plan) = (lease::Book::new(habits, wake), Arc::clone(plan));
                Self::Lease(Leases { book, plan, life_ns: interval_ns, wakes })
            }
            Mode::WriteBack => Self::WriteBack(Book::new(
                Arc::clone(plan),
                write_back::Options {
                    head: b"simulation:{".as_slice().into(),
                    interval_ns,
                    processes: nodes.into(),
                    on_failure: OnFailure::Local { processes: nodes },
                    max_keys: 16,
                    process: (u64::from(number) + 1) << 20,
                    in_flight: 16,
                },
            )),
        }
    }

    /// Whether it is admitted, and whether something is to be sent at once.
    pub(super) fn check(&self, now_ns: u64) -> (bool, bool) {
        match self {
            Self::Lease(leases) => {
                let is_allowed = match leases.book.check(KEY, 1, now_ns) {
                    lease::Checked::Decided(decision, _) => decision.is_allowed(),
                    lease::Checked::Missing(_, holding) => {
                        leases.book.want(KEY, &holding, 1, now_ns);
                        false
                    }
                    lease::Checked::Failing | lease::Checked::Full => false,
                };
                // Ordering: Relaxed; see above.
                (is_allowed, leases.wakes.swap(0, Ordering::Relaxed) > 0)
            }
            Self::WriteBack(book) => {
                let checked = book.check(KEY, 1, now_ns);
                (checked.decision.is_allowed(), checked.wakes)
            }
        }
    }

    pub(super) fn due(&self, now_ns: u64) -> Vec<Asked> {
        match self {
            Self::Lease(leases) => {
                let call = |due: lease::Due| {
                    let tag = b"simulation:{key}".to_vec();
                    let call = Call { tag, plan: Arc::clone(&leases.plan), ask: due.ask, now: None };
                    Asked::Lease(due, call)
                };
                leases.book.due(now_ns).into_iter().map(call).collect()
            }
            Self::WriteBack(book) => book.due(now_ns).into_iter().map(Asked::WriteBack).collect(),
        }
    }

    /// When it wants to be asked for what is due, whatever happens.
    pub(super) fn next_ns(&self, now_ns: u64) -> u64 {
        match self {
            Self::Lease(leases) => now_ns + leases.life_ns,
            Self::WriteBack(book) => book.next_ns(),
        }
    }

    /// Whether something is to be sent at once.
    pub(super) fn answered(&self, asked: &Asked, reply: &Reply, now_ns: u64) -> bool {
        match (self, asked) {
            (Self::Lease(leases), Asked::Lease(due, _)) => {
                let granted = lease::Granted::read(&leases.plan, due, reply);
                let _ = leases.book.answered(due, &granted, now_ns);
                false
            }
            (Self::WriteBack(book), Asked::WriteBack(post)) => book.posted(post, reply, now_ns),
            _ => false,
        }
    }

    pub(super) fn failed(&self, asked: &Asked, now_ns: u64) {
        match (self, asked) {
            (Self::Lease(leases), Asked::Lease(due, _)) => leases.book.failed(due, now_ns),
            (Self::WriteBack(book), Asked::WriteBack(post)) => book.failed(post, now_ns),
            _ => {}
        }
    }

    /// What it has not told the server, and what it never will.
    pub(super) fn pending(&self, now_ns: u64) -> (u64, u64) {
        match self {
            Self::Lease(_) => (0, 0),
            Self::WriteBack(book) => {
                let counted = book.counted(now_ns);
                (counted.pending, counted.dropped)
            }
        }
    }
}
