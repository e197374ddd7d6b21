//! A Cluster: the map from slots to nodes, and one connection to each node. Each node fails by itself.
//!
//! *Parts.* A node that hangs or disappears affects its own keys only. Each node that holds slots is a separate part;
//! with more than 16 nodes, some nodes share a part. A node that takes slots over is another part, so it is called at
//! once.
//!
//! *The map from slots to nodes.*
//!
//! 1. After a call failed, got no answer or was redirected, a separate task asks for the map, at most four times a
//!    second.
//! 2. The task asks one node after another until a node answers. Meanwhile, calls use the current map.
//! 3. The answer replaces the map. If no node answers, the current map stays, and the next task starts after a pause.
//! 4. A call waits for the task only if the map has no node for its slot.
//!
//! *Charged once.* Each call is sent once. A call is sent again only if a node declined it without running it (MOVED,
//! ASK), and only to the node that the redirection names.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::redis::{Cmd, ConnectionAddr, ErrorKind as Theirs, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;
use tollgate::{Clock, StdClock};
use tollgate_protocol::script::By;
use tollgate_protocol::slot::PARTS;
use tollgate_protocol::{Error, ErrorKind, slot};

use super::connection::{PAUSES_NS, ServerConnection, address_like, timed_out};
use super::options::ConnectionOptions;
use super::runtime::OnDrop;

/// How long a node may take to send the map before another node is asked.
const NODE: Duration = Duration::from_millis(250);
/// The minimum time between two requests for the map.
const FRESH_NS: u64 = 250_000_000;
/// The maximum number of redirections of one call.
const REDIRECTS: usize = 3;

/// See the module docs.
pub(crate) struct Nodes {
    seeds: Box<[Arc<ServerConnection>]>,
    state: Mutex<KnownNodes>,
    /// Notified when a request for the map ends.
    changed: watch::Sender<()>,
    clock: StdClock,
}

#[derive(Default)]
struct KnownNodes {
    /// Each range of slots and the node that holds it, sorted by slot.
    ranges: Vec<(Slots, Arc<ServerConnection>)>,
    /// The nodes that hold slots. The index of a node is its part, and does not change while the node holds slots.
    parts: [Option<Arc<ServerConnection>>; PARTS],
    /// All nodes, including replicas.
    nodes: Vec<Arc<ServerConnection>>,
    asking: bool,
    until_ns: u64,
    pause_ns: u64,
    /// Why there is no map.
    why: Option<RedisError>,
    /// Incremented for each request, so that each request starts with another node.
    turn: usize,
}

type Slots = RangeInclusive<u16>;

/// The address in a redirection or in the map: where a slot is, or where to send a call again.
struct Elsewhere {
    host: String,
    port: u16,
}

impl KnownNodes {
    fn holder(&self, slot: u16) -> Option<Arc<ServerConnection>> {
        let at = self.ranges.partition_point(|(range, _)| *range.end() < slot);
        self.ranges.get(at).filter(|(range, _)| *range.start() <= slot).map(|(_, node)| Arc::clone(node))
    }

    /// The part of the node that holds a slot. A node without a part uses the part of its range of slots.
    fn part(&self, slot: u16) -> usize {
        self.holder(slot).and_then(|holder| self.part_of(&holder)).unwrap_or_else(|| slot::range(slot))
    }

    fn part_of(&self, node: &Arc<ServerConnection>) -> Option<usize> {
        self.parts.iter().position(|part| part.as_ref().is_some_and(|held| Arc::ptr_eq(held, node)))
    }

    /// Assigns a part to each node that holds slots, while parts are free. A part is free when its node holds no slots
    /// any more.
    fn divide(&mut self) {
        for (_, node) in &self.ranges {
            if self.part_of(node).is_some() {
                continue;
            }
            let is_held =
                |held: &Arc<ServerConnection>| self.ranges.iter().any(|(_, node)| Arc::ptr_eq(held, node));
            let free = self.parts.iter().position(|part| !part.as_ref().is_some_and(is_held));
            if let Some(free) = free {
                self.parts[free] = Some(Arc::clone(node));
            }
        }
    }

    /// Returns the connection to the node at `place`. `answering_node` is the node that sent this address.
    fn node(
        &mut self,
        answering_node: &Arc<ServerConnection>,
        place: Elsewhere,
    ) -> Option<Arc<ServerConnection>> {
        let address = place.address(answering_node.address());
        if let Some(node) = self.nodes.iter().find(|node| *node.address() == address) {
            return Some(Arc::clone(node));
        }
        let node = answering_node.sibling(address)?;
        self.nodes.push(Arc::clone(&node));
        Some(node)
    }

    /// Replaces the map.
    fn adopt(&mut self, map: Map, answering_node: &Arc<ServerConnection>, seeds: &[Arc<ServerConnection>]) {
        let mut ranges = Vec::with_capacity(map.len());
        let mut present: Vec<Arc<ServerConnection>> = seeds.to_vec();
        for (range, nodes) in map {
            for (at, place) in nodes.into_iter().enumerate() {
                let Some(node) = self.node(answering_node, place) else { continue };
                if at == 0 {
                    ranges.push((range.clone(), Arc::clone(&node)));
                }
                if !present.iter().any(|other| Arc::ptr_eq(other, &node)) {
                    present.push(node);
                }
            }
        }
        ranges.sort_unstable_by_key(|(range, _)| *range.end());
        (self.ranges, self.nodes) = (ranges, present);
        self.divide();
    }
}

impl Elsewhere {
    fn of(error: &RedisError) -> Option<Self> {
        let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// Returns the full address. If a node does not know its own name, its host is the host through which it was
    /// reached.
    fn address(self, answering_node: &ConnectionAddr) -> ConnectionAddr {
        let own = match answering_node {
            ConnectionAddr::TcpTls { host, .. } | ConnectionAddr::Tcp(host, _) => host,
            _ => "127.0.0.1",
        };
        let host = if matches!(&*self.host, "" | "?") { own } else { &self.host };
        address_like(answering_node, host, self.port)
    }
}

/// Ranges of slots and their nodes. The first node holds the range.
type Map = Vec<(Slots, Vec<Elsewhere>)>;

/// Parses the reply of CLUSTER SLOTS.
fn slots(value: &Value) -> RedisResult<Map> {
    let none = || RedisError::from((Theirs::UnexpectedReturnType, "invalid reply to CLUSTER SLOTS"));
    let number = |value: &Value| match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    };
    let node = |value: &Value| {
        let Value::Array(parts) = value else { return None };
        let host = match parts.first()? {
            Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
            Value::SimpleString(host) => host.clone(),
            Value::Nil => String::new(),
            _ => return None,
        };
        Some(Elsewhere { host, port: number(parts.get(1)?)? })
    };
    let range = |value: &Value| {
        let Value::Array(parts) = value else { return None };
        let range = number(parts.first()?)?..=number(parts.get(1)?)?;
        Some((range, parts[2..].iter().filter_map(node).collect()))
    };
    let Value::Array(ranges) = value else { return Err(none()) };
    ranges.iter().map(range).collect::<Option<_>>().ok_or_else(none)
}

impl Nodes {
    /// Returns the addresses by which the Cluster is found, without users and passwords.
    pub(crate) fn address(&self) -> String {
        self.seeds.iter().map(|seed| seed.address().to_string()).collect::<Vec<_>>().join(",")
    }

    /// `seeds` are connections to some of the nodes.
    pub(crate) fn open(
        seeds: impl IntoIterator<Item = Result<Arc<ServerConnection>, Error>>,
    ) -> Result<Arc<Self>, Error> {
        let seeds: Box<[_]> = seeds.into_iter().collect::<Result<_, _>>()?;
        if seeds.is_empty() || seeds.iter().any(|node| matches!(node.address(), ConnectionAddr::Unix(_))) {
            return Err(Error::new(
                ErrorKind::Address,
                "expected redis://[[user]:password@]host[:port] for each node, and at least one node",
            ));
        }
        Ok(Self::of(seeds))
    }

    fn of(seeds: Box<[Arc<ServerConnection>]>) -> Arc<Self> {
        let state = KnownNodes { nodes: seeds.to_vec(), ..KnownNodes::default() };
        Arc::new(Self {
            seeds,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            clock: StdClock::new(),
        })
    }

    /// Creates a client of the same Cluster, whose connections are kept up in another way.
    pub(crate) fn with(&self, options: &ConnectionOptions) -> Arc<Self> {
        Self::of(self.seeds.iter().map(|seed| seed.with(options.clone())).collect())
    }

    pub(crate) fn options(&self) -> &ConnectionOptions {
        // A Cluster has at least one seed.
        self.seeds[0].options()
    }

    fn state(&self) -> MutexGuard<'_, KnownNodes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a request for the map, unless one is in flight or ended a short time ago. Returns whether a request is in
    /// flight.
    fn refresh(self: &Arc<Self>, runtime: &Handle) -> bool {
        let mut state = self.state();
        if state.asking || self.clock.now().as_nanos() < state.until_ns {
            return state.asking;
        }
        state.asking = true;
        state.turn = state.turn.wrapping_add(1);
        let mut candidates = state.nodes.clone();
        let first = state.turn % candidates.len().max(1);
        candidates.rotate_left(first);
        drop(state);
        let (nodes, own, handle) = (Arc::clone(self), Arc::clone(self), runtime.clone());
        // Created here, so that the request ends even if the task never runs.
        let dropped = OnDrop::new(move || own.learn(None));
        runtime.spawn(async move {
            let mut answer = Err(timed_out());
            let mut command = ::redis::cmd("CLUSTER");
            command.arg("SLOTS");
            for node in candidates {
                let asked = timeout(NODE, node.ask(&handle, command.clone(), false)).await;
                answer =
                    asked.unwrap_or_else(|_| Err(timed_out())).and_then(|value| Ok((slots(&value)?, node)));
                if answer.is_ok() {
                    break;
                }
            }
            dropped.cancel();
            nodes.learn(Some(answer));
        });
        true
    }

    /// Ends a request for the map: with the answer and the node that sent it, or with `None` if the task was dropped.
    fn learn(&self, answer: Option<RedisResult<(Map, Arc<ServerConnection>)>>) {
        let now_ns = self.clock.now().as_nanos();
        let mut state = self.state();
        state.asking = false;
        match answer {
            Some(Ok((map, answering_node))) => {
                state.adopt(map, &answering_node, &self.seeds);
                (state.pause_ns, state.why) = (0, None);
                state.until_ns = now_ns.saturating_add(FRESH_NS);
            }
            Some(Err(error)) => {
                state.pause_ns = (state.pause_ns * 2).clamp(PAUSES_NS[0], PAUSES_NS[1]);
                state.until_ns = now_ns.saturating_add(state.pause_ns);
                state.why = Some(error);
            }
            None => {}
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// The part of a key, in the sense of [`Transport::part`](tollgate_protocol::Transport::part).
    pub(crate) fn part(&self, key: &[u8]) -> usize {
        self.state().part(slot::slot(key))
    }

    /// Returns the node that holds a slot. If no node is known, first waits for the request for the map to end.
    async fn holder(self: &Arc<Self>, runtime: &Handle, slot: u16) -> RedisResult<Arc<ServerConnection>> {
        let mut changes = self.changed.subscribe();
        loop {
            if let Some(node) = self.state().holder(slot) {
                return Ok(node);
            }
            if !self.refresh(runtime) {
                let none = || (Theirs::ClusterConnectionNotFound, "no node holds the slot").into();
                return Err(self.state().why.clone().unwrap_or_else(none));
            }
            // The sender is in `self`, so it is not closed.
            let _ = changes.changed().await;
        }
    }

    /// Calls a script at the node that holds a key.
    pub(crate) async fn run(
        self: &Arc<Self>,
        runtime: &Handle,
        key: &[u8],
        command: &(impl Fn(By) -> Cmd + Sync),
    ) -> RedisResult<Value> {
        let mut node = self.holder(runtime, slot::slot(key)).await?;
        let refresh = || {
            self.refresh(runtime);
        };
        let unanswered = OnDrop::new(refresh);
        let (mut asking, mut redirects) = (false, 0);
        let answer = loop {
            let answer = node.run(runtime, command, asking).await;
            let place = answer.as_ref().err().and_then(Elsewhere::of);
            let (Some(place), Err(error)) = (place.filter(|_| redirects < REDIRECTS), &answer) else {
                break answer;
            };
            asking = error.kind() == Theirs::Server(ServerErrorKind::Ask);
            if !asking {
                self.refresh(runtime);
            }
            let Some(next) = self.state().node(&node, place) else { break answer };
            node = next;
            redirects += 1;
        };
        unanswered.cancel();
        if answer.is_err() {
            refresh();
        }
        answer
    }
}
