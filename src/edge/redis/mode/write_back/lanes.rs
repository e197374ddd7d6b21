//! The keys that wait for a post, and the posts in flight, for each server.
//!
//! Each server has its own lane and its own maximum of posts in flight. So a server that hangs delays only its own keys.

use std::collections::VecDeque;
use std::sync::Arc;

use super::entry::WriteBackKey;

/// See the module docs.
#[derive(Debug)]
pub(super) struct Lanes {
    /// One for each server.
    lanes: Box<[Lane]>,
    /// The maximum number of posts in flight to one server, at least 1.
    most: usize,
    /// The time of the next scan of the keys.
    pub(super) next_ns: u64,
}

#[derive(Default, Debug)]
struct Lane {
    /// Keys for which a call is due immediately.
    urgent: VecDeque<Arc<WriteBackKey>>,
    /// Keys that are posted when more calls may be sent.
    usual: VecDeque<Arc<WriteBackKey>>,
    in_flight: usize,
}

impl Lanes {
    pub(super) fn new(servers: usize, most: usize) -> Self {
        Self { lanes: (0..servers).map(|_| Lane::default()).collect(), most: most.max(1), next_ns: 0 }
    }

    /// Adds a key for which a call is due immediately.
    pub(super) fn add_urgent(&mut self, entry: Arc<WriteBackKey>) {
        self.lanes[entry.server()].urgent.push_back(entry);
    }

    /// Replaces the keys that are posted when more calls may be sent.
    pub(super) fn replace_usual(&mut self, entries: impl IntoIterator<Item = Arc<WriteBackKey>>) {
        for lane in &mut self.lanes {
            lane.usual.clear();
        }
        for entry in entries {
            self.lanes[entry.server()].usual.push_back(entry);
        }
    }

    /// Removes the next key for which a call may be sent, and returns whether its call is urgent.
    pub(super) fn next(&mut self) -> Option<(Arc<WriteBackKey>, bool)> {
        let most = self.most;
        let mut open = self.lanes.iter_mut().filter(|lane| lane.in_flight < most);
        if let Some(entry) = open.find_map(|lane| lane.urgent.pop_front()) {
            return Some((entry, true));
        }
        let mut open = self.lanes.iter_mut().filter(|lane| lane.in_flight < most);
        open.find_map(|lane| lane.usual.pop_front()).map(|entry| (entry, false))
    }

    /// Returns whether [`next`](Self::next) has a key to return.
    pub(super) fn has_next(&self) -> bool {
        let has_keys = |lane: &Lane| !lane.urgent.is_empty() || !lane.usual.is_empty();
        self.lanes.iter().any(|lane| lane.in_flight < self.most && has_keys(lane))
    }

    /// Whether some server can take another call.
    pub(super) fn has_room(&self) -> bool {
        self.lanes.iter().any(|lane| lane.in_flight < self.most)
    }

    /// Records that calls about a key are sent.
    pub(super) fn started(&mut self, entry: &WriteBackKey, calls: usize) {
        self.lanes[entry.server()].in_flight += calls;
    }

    /// Records that a call about a key ended.
    pub(super) fn ended(&mut self, entry: &WriteBackKey) {
        let lane = &mut self.lanes[entry.server()];
        lane.in_flight = lane.in_flight.saturating_sub(1);
    }

    pub(super) fn in_flight(&self) -> usize {
        self.lanes.iter().map(|lane| lane.in_flight).sum()
    }
}
