//! The keys that wait for a post, and the posts in flight, for each server.
//!
//! Each server has its own queue and its own maximum of posts in flight. So a server that hangs delays only its own keys.

use std::collections::VecDeque;
use std::sync::Arc;

use super::entry::WriteBackKey;

/// See the module docs.
#[derive(Debug)]
pub(super) struct PostQueues {
    /// One for each server.
    queues: Box<[ServerQueue]>,
    /// The maximum number of posts in flight to one server, at least 1.
    most: usize,
    /// The time of the next scan of the keys.
    pub(super) next_ns: u64,
}

#[derive(Default, Debug)]
struct ServerQueue {
    /// Keys for which a call is due immediately.
    urgent: VecDeque<Arc<WriteBackKey>>,
    /// Keys that are posted when more calls may be sent.
    usual: VecDeque<Arc<WriteBackKey>>,
    in_flight: usize,
}

impl PostQueues {
    pub(super) fn new(servers: usize, most: usize) -> Self {
        Self { queues: (0..servers).map(|_| ServerQueue::default()).collect(), most: most.max(1), next_ns: 0 }
    }

    /// Adds a key for which a call is due immediately.
    pub(super) fn add_urgent(&mut self, entry: Arc<WriteBackKey>) {
        self.queues[entry.server()].urgent.push_back(entry);
    }

    /// Replaces the keys that are posted when more calls may be sent.
    pub(super) fn replace_usual(&mut self, entries: impl IntoIterator<Item = Arc<WriteBackKey>>) {
        for queue in &mut self.queues {
            queue.usual.clear();
        }
        for entry in entries {
            self.queues[entry.server()].usual.push_back(entry);
        }
    }

    /// Removes the next key for which a call may be sent, and returns whether its call is urgent.
    pub(super) fn next(&mut self) -> Option<(Arc<WriteBackKey>, bool)> {
        let most = self.most;
        let mut open = self.queues.iter_mut().filter(|queue| queue.in_flight < most);
        if let Some(entry) = open.find_map(|queue| queue.urgent.pop_front()) {
            return Some((entry, true));
        }
        let mut open = self.queues.iter_mut().filter(|queue| queue.in_flight < most);
        open.find_map(|queue| queue.usual.pop_front()).map(|entry| (entry, false))
    }

    /// Returns whether [`next`](Self::next) has a key to return.
    pub(super) fn has_next(&self) -> bool {
        let has_keys = |queue: &ServerQueue| !queue.urgent.is_empty() || !queue.usual.is_empty();
        self.queues.iter().any(|queue| queue.in_flight < self.most && has_keys(queue))
    }

    /// Whether some server can take another call.
    pub(super) fn has_room(&self) -> bool {
        self.queues.iter().any(|queue| queue.in_flight < self.most)
    }

    /// Records that calls about a key are sent.
    pub(super) fn started(&mut self, entry: &WriteBackKey, calls: usize) {
        self.queues[entry.server()].in_flight += calls;
    }

    /// Records that a call about a key ended.
    pub(super) fn ended(&mut self, entry: &WriteBackKey) {
        let queue = &mut self.queues[entry.server()];
        queue.in_flight = queue.in_flight.saturating_sub(1);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queues.iter().map(|queue| queue.in_flight).sum()
    }
}
