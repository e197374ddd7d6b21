//! Write-back, step by step in any order, for tests that search for unexpected orders.

use std::collections::BTreeMap;

use tollgate::ManualClock;
use tollgate_protocol::Reply;
use tollgate_redis::internals::{BookSettings, Post, WriteBackBook};
use tollgate_redis::{ErrorKind, InProcess, Limit};

use super::books::{book_of, options};

/// Processes, their server, and messages between them. A message moves only when a test moves it.
#[derive(Debug)]
pub(super) struct Steps {
    books: Vec<WriteBackBook>,
    server: InProcess,
    sent: Vec<Sent>,
    /// Calls that their nodes gave up. They may still arrive at the server.
    late: Vec<Post>,
    now_ns: u64,
    window_ns: u64,
    /// Admitted units by key and window.
    admitted: BTreeMap<(u8, u64), u64>,
    charged: u64,
    lost: u64,
}

#[derive(Debug)]
struct Sent {
    node: usize,
    post: Post,
    /// The server's reply to the first arrival of the call.
    reply: Option<Reply>,
}

/// The totals at the end of a run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    /// Units that were admitted.
    pub(super) admitted: u64,
    /// The largest number of units in any window of a key.
    pub(super) most: u64,
    /// Units that the server counted.
    pub(super) charged: u64,
    /// Units that nodes have not posted yet.
    pub(super) pending: u64,
    /// Units that nodes report as dropped.
    pub(super) dropped: u64,
    /// Units that were charged by calls whose answers never arrived.
    pub(super) unheard: u64,
}

impl Steps {
    /// Creates this many nodes, at a time that is a multiple of every window.
    ///
    /// # Panics
    /// Panics if the shared state cannot keep the limit.
    #[track_caller]
    pub(super) fn new(limit: Limit, nodes: u32, max_keys: usize) -> Self {
        let options = |process| BookSettings { process, ..options(nodes, max_keys, 64) };
        Self {
            books: (1..=nodes).map(|number| book_of(limit, options(u64::from(number) << 20))).collect(),
            server: InProcess::new(ManualClock::default()),
            sent: Vec::new(),
            late: Vec::new(),
            now_ns: 1_699_999_200_000_000_000,
            window_ns: u64::try_from(limit.quota().period().as_nanos()).unwrap_or(u64::MAX),
            admitted: BTreeMap::new(),
            charged: 0,
            lost: 0,
        }
    }

    /// Advances time.
    pub(super) fn pass(&mut self, ns: u64) {
        self.now_ns += ns;
    }

    /// Makes this many requests of one unit. Returns how many are admitted.
    pub(super) fn check(&mut self, node: usize, key: u8, times: u8) -> u64 {
        let book = &self.books[node % self.books.len()];
        let is_allowed = |_: &u8| book.check(&[key], 1, self.now_ns).decision.is_allowed();
        let units = (0..times).filter(is_allowed).count() as u64;
        *self.admitted.entry((key, self.now_ns / self.window_ns)).or_default() += units;
        units
    }

    /// A node sends its due calls.
    pub(super) fn due(&mut self, node: usize) {
        let node = node % self.books.len();
        let posts = self.books[node].due(self.now_ns);
        self.sent.extend(posts.into_iter().map(|post| Sent { node, post, reply: None }));
    }

    /// One of the calls arrives at the server, possibly for the second time.
    pub(super) fn arrive(&mut self, which: usize) {
        if self.sent.is_empty() {
            return;
        }
        let index = which % self.sent.len();
        let sent = &mut self.sent[index];
        let reply = self.server.answer_at(&sent.post.call, self.now_ns / 1_000);
        self.charged += reply.granted;
        sent.reply.get_or_insert(reply);
    }

    /// A call that its node gave up arrives at the server.
    pub(super) fn arrive_late(&mut self, which: usize) {
        if self.late.is_empty() {
            return;
        }
        let post = self.late.swap_remove(which % self.late.len());
        self.charged += self.server.answer_at(&post.call, self.now_ns / 1_000).granted;
    }

    /// The answer to one of the calls arrives at its node. If there is no answer, or it is lost, the node gives the
    /// call up.
    pub(super) fn answer(&mut self, which: usize, is_lost: bool) {
        if self.sent.is_empty() {
            return;
        }
        let sent = self.sent.swap_remove(which % self.sent.len());
        match sent.reply {
            Some(reply) if !is_lost => self.books[sent.node].posted(&sent.post, &reply, self.now_ns),
            reply => {
                self.lost += reply.map_or(0, |reply| reply.granted);
                self.books[sent.node].failed(&sent.post, ErrorKind::Timeout, self.now_ns);
                self.late.push(sent.post);
            }
        }
    }

    /// Sends, carries and answers all calls, until none is left.
    pub(super) fn settle(&mut self) {
        for _ in 0..64 {
            for node in 0..self.books.len() {
                self.books[node].hurry();
                self.due(node);
            }
            if self.sent.is_empty() {
                return;
            }
            for which in 0..self.sent.len() {
                self.arrive(which);
            }
            while !self.sent.is_empty() {
                self.answer(0, false);
            }
        }
    }

    /// Returns the totals.
    #[must_use]
    pub(super) fn sum(&self) -> Sum {
        let counted = || self.books.iter().map(|book| book.counted(self.now_ns));
        Sum {
            admitted: self.admitted.values().sum(),
            most: self.admitted.values().copied().max().unwrap_or(0),
            charged: self.charged,
            pending: counted().map(|counted| counted.pending).sum(),
            dropped: counted().map(|counted| counted.evicted_pending).sum(),
            unheard: self.lost,
        }
    }
}
