//! One process: its book, by whatever mode.

use std::sync::Arc;

use crate::redis::call::{Call, Reply};
use crate::redis::plan::Plan;
use crate::redis::settings::OnFailure;
use crate::redis::write_back::{self, Book};

/// The key that all ask about.
pub(super) const KEY: &[u8] = b"key";

/// Who decides.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// Processes by their share, told later.
    WriteBack,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::WriteBack];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteBack => "write-back",
        }
    }
}

pub(super) enum Node {
    WriteBack(Book),
}

/// What a node asked.
pub(super) enum Asked {
    WriteBack(write_back::Post),
}

impl Asked {
    pub(super) fn call(&self) -> &Call {
        match self {
            Self::WriteBack(post) => &post.call,
        }
    }
}

impl Node {
    pub(super) fn new(mode: Mode, plan: &Arc<Plan>, nodes: u32, number: u32, interval_ns: u64) -> Self {
        match mode {
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
            Self::WriteBack(book) => {
                let checked = book.check(KEY, 1, now_ns);
                (checked.decision.is_allowed(), checked.wakes)
            }
        }
    }

    pub(super) fn due(&self, now_ns: u64) -> Vec<Asked> {
        match self {
            Self::WriteBack(book) => book.due(now_ns).into_iter().map(Asked::WriteBack).collect(),
        }
    }

    /// When it wants to be asked for what is due, whatever happens.
    pub(super) fn next_ns(&self) -> u64 {
        match self {
            Self::WriteBack(book) => book.next_ns(),
        }
    }

    /// Whether something is to be sent at once.
    pub(super) fn answered(&self, asked: &Asked, reply: &Reply, now_ns: u64) -> bool {
        match (self, asked) {
            (Self::WriteBack(book), Asked::WriteBack(post)) => book.posted(post, reply, now_ns),
        }
    }

    pub(super) fn failed(&self, asked: &Asked, now_ns: u64) {
        match (self, asked) {
            (Self::WriteBack(book), Asked::WriteBack(post)) => book.failed(post, now_ns),
        }
    }

    /// What it has not told the server, and what it never will.
    pub(super) fn pending(&self, now_ns: u64) -> (u64, u64) {
        match self {
            Self::WriteBack(book) => {
                let counted = book.counted(now_ns);
                (counted.pending, counted.dropped)
            }
        }
    }
}
