//! Keys that are spread over several servers.
//!
//! Each key has one owner, and [`rendezvous`](super::rendezvous) chooses it from the configured set alone. A server that
//! does not answer keeps its keys: [`OnFailure`](crate::OnFailure) decides them. If they moved to another
//! server, each key would get a second budget there, and a third when its server is back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate::Timestamp;
use tollgate_protocol::{Call, Place, Plan, Question, Scope, tagged};

use super::rendezvous::{Candidate, owner};

/// The maximum number of servers, with those of the previous set. Each limiter has breakers and counts for each server.
const MAX_SERVERS: usize = 128;
/// The maximum length of a server's name.
const LONGEST_NAME: usize = 64;

type KeyPart = Arc<dyn for<'k> Fn(&'k [u8]) -> &'k [u8] + Send + Sync>;

/// One of several servers: its name, its weight, and the client of this one server or Cluster.
///
/// The name decides which keys the server holds, so all processes must use the same name for the same server. A server
/// that moves to another address keeps its name. A name has 1 to 64 ASCII letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug)]
pub struct Shard<T> {
    name: Arc<str>,
    weight: u32,
    server: T,
}

impl<T> Shard<T> {
    /// Names a server. Its weight is 1.
    pub fn new(name: &str, server: T) -> Self {
        Self { name: name.into(), weight: 1, server }
    }

    /// Sets the weight, from 1 to 2^32 - 1. A server of weight 2 holds twice as many keys as a server of weight 1.
    #[must_use]
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }
}

/// A set of servers over which keys are spread, for [`Client::sharded`](crate::Client::sharded).
///
/// Convert an array or a vector of [`Shard`]s if the set needs no further settings.
#[derive(Clone)]
#[must_use = "a set does nothing until a client uses it"]
pub struct Shards<T> {
    current: Vec<Shard<T>>,
    previous: Option<(Vec<Shard<T>>, Duration)>,
    by: Option<(Arc<str>, KeyPart)>,
}

impl<T> Shards<T> {
    /// Creates a set of servers.
    pub fn new(servers: impl IntoIterator<Item = Shard<T>>) -> Self {
        Self { current: servers.into_iter().collect(), previous: None, by: None }
    }

    /// Chooses the server by a part of each key: `part` receives the bytes that the caller passed as the key, and
    /// returns the part to hash. Keys with the same part are on the same server, whatever their limiter is.
    ///
    /// By default, the server is chosen by the whole name of the key in Redis, which contains the limiter's name.
    ///
    /// All processes must use the same function. `name` names it: `Debug` of the client prints the name, so that
    /// operators can compare processes. A function that changes moves keys; see [`previous`](Self::previous).
    ///
    /// # Examples
    /// ```
    /// use tollgate_redis::{InProcess, Shard, Shards};
    ///
    /// // The keys `acme/alice` and `acme/bob` are on one server.
    /// fn tenant(key: &[u8]) -> &[u8] {
    ///     key.split(|&byte| byte == b'/').next().unwrap_or(key)
    /// }
    ///
    /// let servers = ["a", "b"].map(|name| Shard::new(name, InProcess::default()));
    /// let client = InProcess::sharded(Shards::new(servers).by("tenant", tenant))?;
    /// # let _ = client;
    /// # Ok::<(), tollgate_redis::ShardError>(())
    /// ```
    pub fn by(
        mut self,
        name: &str,
        part: impl for<'k> Fn(&'k [u8]) -> &'k [u8] + Send + Sync + 'static,
    ) -> Self {
        self.by = Some((name.into(), Arc::new(part)));
        self
    }

    /// Names the previous set of servers, for a stated time after a limiter is built.
    ///
    /// During this time, before each call about a key whose server changed, the limiter asks whether the new server has
    /// the key's state. If not, the limiter reads the state at the previous server, byte for byte, and copies it. A copy
    /// that is repeated or late, by this process or by others, changes nothing. So a key that moves gets no second budget,
    /// whatever the algorithm is.
    ///
    /// Without this setting, each key that moves begins again with an empty state: a burst for GCRA, a full limit for
    /// windows.
    ///
    /// # How long
    /// Choose at least the time until all processes use the new set, plus the longest window or refill time, and a quarter of
    /// it for a sliding log. A sliding window needs two windows. Do not change the set again before: a state that is still at
    /// a server from an earlier set is not replaced.
    ///
    /// # What it costs
    /// One more round trip for each call about such a key, and further round trips when a state is copied. All of them
    /// are within the limiter's [time-out](crate::LimiterBuilder::timeout); the copy takes at most half of it.
    /// Keys that do not move cost nothing more.
    ///
    /// # What it does not cover
    /// - What processes with the previous set admit after the copy: at most one more budget for each key that moves.
    /// - A previous server that does not answer: the key begins with an empty state, and
    ///   [`Health::uncopied`](crate::Health::uncopied) counts it.
    /// - A second change of the set during this time.
    /// - Servers whose clocks differ: the times in a state are those of the previous server.
    ///
    /// A server whose name is in both sets is one server; the client of the current set is used for it. The weights can
    /// differ.
    pub fn previous(mut self, servers: impl IntoIterator<Item = Shard<T>>, during: Duration) -> Self {
        self.previous = Some((servers.into_iter().collect(), during));
        self
    }

    /// Checks the set. Returns the servers, and the routes to them. `single` returns the one server of a client, or
    /// `None` if the client itself has several.
    pub(super) fn resolve<S>(
        self,
        single: impl Fn(T) -> Option<S>,
    ) -> Result<(Arc<[S]>, Arc<Routes>), ShardError> {
        let (mut names, mut servers) = (Vec::<Arc<str>>::new(), Vec::new());
        let mut add = |shards: Vec<Shard<T>>| -> Result<Box<[Candidate]>, ShardError> {
            let mut set = Vec::<Candidate>::with_capacity(shards.len().min(MAX_SERVERS));
            for Shard { name, weight, server } in shards {
                let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
                if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(is_known) {
                    return Err(ShardError::Name(name));
                }
                if weight == 0 {
                    return Err(ShardError::Weight(name));
                }
                let known = names.iter().position(|known| *known == name);
                if known.is_some_and(|at| set.iter().any(|candidate| candidate.at == at)) {
                    return Err(ShardError::Duplicate(name));
                }
                let at = match known {
                    Some(at) => at,
                    None if names.len() == MAX_SERVERS => return Err(ShardError::TooMany),
                    None => {
                        servers.push(single(server).ok_or_else(|| ShardError::Nested(Arc::clone(&name)))?);
                        names.push(Arc::clone(&name));
                        names.len() - 1
                    }
                };
                set.push(Candidate::new(name, weight, at));
            }
            if set.is_empty() { Err(ShardError::Empty) } else { Ok(set.into()) }
        };
        let current = add(self.current)?;
        let previous = match self.previous {
            Some((shards, during)) => Some((add(shards)?, during)),
            None => None,
        };
        let routes = Routes { names: names.into(), current, previous, by: self.by };
        Ok((servers.into(), Arc::new(routes)))
    }
}

impl<T, const N: usize> From<[Shard<T>; N]> for Shards<T> {
    fn from(servers: [Shard<T>; N]) -> Self {
        Self::new(servers)
    }
}

impl<T> From<Vec<Shard<T>>> for Shards<T> {
    fn from(servers: Vec<Shard<T>>) -> Self {
        Self::new(servers)
    }
}

impl<T: fmt::Debug> fmt::Debug for Shards<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards")
            .field("current", &self.current)
            .field("previous", &self.previous)
            .field("by", &self.by.as_ref().map(|(name, _)| name))
            .finish()
    }
}

/// Why a set of servers is invalid.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardError {
    /// The set, or the previous set, has no server.
    Empty,
    /// This name is empty, too long, or has other characters than ASCII letters, digits, `.`, `_` and `-`.
    Name(Arc<str>),
    /// Two servers of a set have this name.
    Duplicate(Arc<str>),
    /// The server of this name has the weight 0.
    Weight(Arc<str>),
    /// The server of this name is itself a set of servers.
    Nested(Arc<str>),
    /// There are more than 128 servers.
    TooMany,
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a set of servers needs at least one server"),
            Self::Name(name) => {
                write!(
                    f,
                    "the server name {name:?} needs 1 to {LONGEST_NAME} ASCII letters, digits, '.', '_' or '-'"
                )
            }
            Self::Duplicate(name) => {
                write!(f, "two servers have the name {name:?}; give each server its own name")
            }
            Self::Weight(name) => {
                write!(
                    f,
                    "the server {name:?} has the weight 0; use at least 1, or leave the server out of the set"
                )
            }
            Self::Nested(name) => {
                write!(
                    f,
                    "the server {name:?} is itself a set of servers; use a client of one server or of one Cluster"
                )
            }
            Self::TooMany => {
                write!(f, "a client can have at most {MAX_SERVERS} servers, including the previous set")
            }
        }
    }
}

tollgate::internals::debug_shows_message!(ShardError);

impl std::error::Error for ShardError {}

/// Which server holds a key.
#[derive(Default)]
pub struct Routes {
    /// The names of all servers of the client. Empty if there is one server, without a name.
    names: Box<[Arc<str>]>,
    current: Box<[Candidate]>,
    previous: Option<(Box<[Candidate]>, Duration)>,
    by: Option<(Arc<str>, KeyPart)>,
}

impl Routes {
    /// The names of the servers, in the order of [`Place::server`]. Empty if there is one server, without a name.
    pub(crate) fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// The number of servers, at least 1.
    pub(crate) fn len(&self) -> usize {
        self.names.len().max(1)
    }

    /// How long a limiter uses the previous set after it is built.
    pub(crate) fn previous_during(&self) -> Duration {
        self.previous.as_ref().map_or(Duration::ZERO, |(_, during)| *during)
    }

    /// The place of a key. `tag` is its name in Redis, and `key` is the key that the caller passed.
    fn place(&self, key: &[u8], tag: &[u8]) -> Place {
        if self.names.is_empty() {
            return Place::default();
        }
        let shard_key = self.by.as_ref().map_or(tag, |(_, part)| part(key));
        // A set is not empty.
        let at = |set: &[Candidate]| owner(set, shard_key).map_or(0, |owner| owner.at);
        let server = at(&self.current);
        let before = self.previous.as_ref().map(|(set, _)| at(set)).filter(|before| *before != server);
        Place { server, before }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routes")
            .field("servers", &self.names)
            .field("by", &self.by.as_ref().map(|(name, _)| name))
            .finish_non_exhaustive()
    }
}

/// The names of a limiter's keys in Redis, and the servers that hold them.
#[derive(Clone, Default, Debug)]
pub struct KeyPlaces {
    /// The first bytes of every key; see `tag`.
    head: Arc<[u8]>,
    pub(crate) routes: Arc<Routes>,
}

impl KeyPlaces {
    /// `head` is the common start of the limiter's keys.
    pub(crate) fn new(head: &[u8], routes: &Arc<Routes>) -> Self {
        Self { head: head.into(), routes: Arc::clone(routes) }
    }

    /// The name of a key in Redis. The suffixes of the limits follow.
    pub fn tag(&self, key: &[u8]) -> Vec<u8> {
        tagged(&self.head, key)
    }

    /// The server that holds a key.
    pub fn server(&self, key: &[u8]) -> usize {
        let Routes { names, by, .. } = &*self.routes;
        if names.is_empty() {
            return 0;
        }
        let tag = if by.is_some() { Vec::new() } else { self.tag(key) };
        self.routes.place(key, &tag).server
    }

    /// A call about a key. Without a time, the server's time decides.
    pub(crate) fn call(&self, plan: &Arc<Plan>, key: &[u8], ask: Question, now: Option<Timestamp>) -> Call {
        let tag = self.tag(key);
        let place = self.routes.place(key, &tag);
        Call { tag, plan: Arc::clone(plan), ask, now, place, scope: Scope::Limits }
    }
}
