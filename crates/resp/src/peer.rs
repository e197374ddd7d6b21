//! The client of a connection, and what all connections share.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tollgate::{Clock, DefaultClock};

use super::commands::Known;
use super::counts::RespCounts;
use super::quotas::Quotas;
use super::read::Limits;
use super::transaction::{QueueRoom, Transaction};
use super::users::{User, Users};
use super::write::Replies;
use tollgate_serve::answer::{AddedMethod, Answerer};
use tollgate_serve::endpoint::Stats;

/// The reason why a command has no answer, with its code.
pub type Problem = Cow<'static, str>;

/// The answer to a client that has given no password.
pub const NO_USER: Problem = Cow::Borrowed("NOAUTH Authentication required.");

/// What all connections share.
#[derive(Debug)]
pub struct RespShared<C = DefaultClock> {
    /// Answers by the rules of the file.
    pub answerer: Arc<Answerer<C>>,
    /// The method of `TOLLGATE.CHECK`.
    pub check: Arc<AddedMethod>,
    /// Answers by the quotas that clients send.
    pub quotas: Arc<Quotas<C>>,
    /// The users, and what they may send. `None`: everyone may send everything.
    pub users: Option<Users>,
    /// The bounds of a command.
    pub limits: Limits,
    /// The time that an answer by rules may take.
    pub deadline: Duration,
    /// The memory for long transactions.
    pub queues: QueueRoom,
    /// The counts of the service.
    pub stats: Arc<Stats>,
    /// The counts of this endpoint.
    pub counts: RespCounts,
    /// The number of the last connection. Ordering: Relaxed. It publishes no other data.
    pub last_id: AtomicU64,
}

impl<C: Clock> RespShared<C> {
    /// Creates what connections share, before the first connection.
    pub fn new(
        answerer: Arc<Answerer<C>>,
        quotas: Arc<Quotas<C>>,
        users: Option<Users>,
        limits: Limits,
        deadline: Duration,
        stats: Arc<Stats>,
    ) -> Self {
        let counts = RespCounts::of(&stats);
        let (check, queues) = (answerer.method("TOLLGATE.CHECK"), QueueRoom::default());
        Self { answerer, check, quotas, users, limits, deadline, queues, stats, counts, last_id: 0.into() }
    }
}

/// What is known about the client of a connection.
#[derive(Debug)]
pub struct RespPeer<C> {
    pub shared: Arc<RespShared<C>>,
    pub replies: Replies,
    /// `None` until the client has given a password.
    pub user: Option<Arc<User>>,
    /// The number of changes of users when `user` was found.
    changes: u64,
    pub id: u64,
    pub address: String,
    /// `CLIENT SETNAME`, and the library's name and version.
    pub names: [Vec<u8>; 3],
    /// The commands after `MULTI`.
    pub queue: Option<Transaction>,
    /// The commands that `EXEC` runs.
    pub running: Option<Transaction>,
    /// Wrong passwords.
    pub failures: u32,
    /// When the last command that rules answered was answered. `None` at the first command of those that arrived together, and after
    /// other commands.
    pub answered_at: Option<Instant>,
}

impl<C: Clock + Clone> RespPeer<C> {
    /// Creates the client of a new connection.
    pub fn new(shared: Arc<RespShared<C>>, address: String) -> Self {
        let id = shared.last_id.fetch_add(1, Relaxed) + 1;
        let mut peer = Self {
            shared,
            replies: Replies::new(),
            user: None,
            changes: 0,
            id,
            address,
            names: Default::default(),
            queue: None,
            running: None,
            failures: 0,
            answered_at: None,
        };
        peer.forget_user();
        peer
    }

    /// Returns an error if the client may not send the command.
    pub fn permit(&self, known: &Known) -> Result<(), Problem> {
        match &self.user {
            None => Err(NO_USER),
            Some(user) if user.may_send(known.name) => Ok(()),
            Some(user) => {
                let (user, name) = (&user.name, known.name);
                Err(format!("NOPERM User {user} has no permissions to run the '{name}' command").into())
            }
        }
    }

    /// Makes the client one that has given no password.
    pub fn forget_user(&mut self) {
        self.user = match &self.shared.users {
            None => Some(Arc::new(User::anyone())),
            Some(users) => {
                self.changes = users.changes();
                users.before_password()
            }
        };
    }

    /// After a change of the users, looks the client's own one up again.
    pub fn find_user_again(&mut self) {
        if let Some(users) = &self.shared.users
            && users.changes() != self.changes
        {
            self.changes = users.changes();
            self.user = match &self.user {
                Some(user) => users.again(user),
                None => users.before_password(),
            };
        }
    }
}
