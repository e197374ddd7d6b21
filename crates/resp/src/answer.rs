//! From a command to its answer. [`Session`] turns bytes into bytes, and has no socket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollgate::{Clock, Decision, DefaultClock};
use tonic::{Code as Grpc, Status};

use super::commands::{self, Known, Limit, Name};
use super::connect;
pub use super::peer::RespShared;
use super::peer::{NO_USER, Problem, RespPeer};
use super::quotas::ClientQuota;
use super::read::{Args, Reader, integer, nanos};
use super::transaction::Transaction;
use super::write::{Replies, Shown};
use tollgate_serve::answer::{Entry, Nearest, SingleAnswer, SingleRequest};
use tollgate_serve::proto::{self, Code, CommitRequest, RateLimitDescriptor, ReserveRequest};

/// The most commands before other connections have their turn.
pub const TURN: usize = 256;

/// The bytes of answers that are sent before the next command is answered. A client that reads nothing holds up to twice as much, because a
/// list that is full doubles.
pub const FULL: usize = 16 << 10;

/// The room for answers that a connection keeps. Many connections that are idle would take a lot of memory with [`FULL`] each.
const KEPT: usize = 4 << 10;

/// A second.
const SECOND_NS: u64 = 1_000_000_000;

/// Stands for a number without a limit.
const NO_FIGURES: i64 = -1;

/// What a connection does next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// Sends the answers, and reads more.
    Read,
    /// Sends the answers, and goes on with the commands that it has.
    GoOn,
    /// Sends the answers, and ends.
    End,
}

/// A client's connection, without its socket.
#[derive(Debug)]
pub struct Session<C = DefaultClock> {
    reader: Reader,
    /// The commands that `EXEC` runs, and the number of those that are answered.
    running: Option<(Transaction, usize)>,
    pub(super) peer: RespPeer<C>,
}

impl<C: Clock + Clone> Session<C> {
    /// Begins a connection with this client.
    pub fn new(shared: Arc<RespShared<C>>, address: String) -> Self {
        Self { reader: Reader::default(), running: None, peer: RespPeer::new(shared, address) }
    }

    /// Whether the client must still give a password.
    pub fn is_unauthenticated(&self) -> bool {
        self.peer.user.is_none()
    }

    /// Whether the client has queued commands in memory that all connections share.
    pub fn has_long_queue(&self) -> bool {
        self.peer.queue.as_ref().is_some_and(Transaction::is_long)
    }

    /// The answers that are to be sent.
    pub fn replies(&self) -> &[u8] {
        self.peer.replies.bytes()
    }

    /// Notes that the answers were sent.
    pub fn sent(&mut self) {
        self.peer.replies.clear(KEPT);
    }

    /// Answers the commands at the front of `input`, and removes them from it.
    pub async fn answer(&mut self, input: &mut Vec<u8>) -> Step {
        let Self { reader, running, peer } = self;
        peer.find_user_again();
        peer.answered_at = None;
        let (mut used, mut commands, mut ran, mut refused) = (0, 0, 0, 0);
        let step = loop {
            if commands + ran >= TURN || peer.replies.bytes().len() >= FULL {
                break Step::GoOn;
            }
            if let Some((queue, answered)) = running {
                let Some(args) = queue.get(*answered) else {
                    *running = None;
                    continue;
                };
                *answered += 1;
                ran += 1;
                if !peer.answer(args, &mut refused).await {
                    break Step::End;
                }
                continue;
            }
            let limits = match peer.user {
                Some(_) => peer.shared.limits,
                None => peer.shared.limits.before_password(),
            };
            match reader.read(&mut input[used..], limits) {
                Ok(None) => break Step::Read,
                Ok(Some(length)) => {
                    let args = reader.args(&input[used..]);
                    if args.len() > 0 {
                        commands += 1;
                        if !peer.answer(args, &mut refused).await {
                            break Step::End;
                        }
                        *running = peer.running.take().map(|queue| (queue, 0));
                    }
                    used += length;
                }
                Err(fault) => {
                    refused += 1;
                    peer.replies.error(format_args!("ERR Protocol error: {fault}"));
                    peer.shared.stats.protocol_errors.add();
                    break Step::End;
                }
            }
        };
        input.drain(..used);
        peer.shared.counts.commands.add_n(commands as u64);
        peer.shared.counts.errors.add_n(refused);
        step
    }
}

impl<C: Clock + Clone> RespPeer<C> {
    /// Answers a command. Returns whether the connection goes on.
    async fn answer(&mut self, args: Args<'_>, refused: &mut u64) -> bool {
        match self.run_or_queue(args).await {
            Ok(goes_on) => goes_on,
            Err(problem) => {
                *refused += 1;
                self.replies.error(problem);
                self.failures < connect::MOST_FAILURES
            }
        }
    }

    /// Runs a command, or queues it. Returns whether the connection goes on.
    async fn run_or_queue(&mut self, args: Args<'_>) -> Result<bool, Problem> {
        let name = args.get(0).unwrap_or_default();
        let found = self.find(name, args.len());
        if found.is_err() && is_http(name) {
            return Ok(false);
        }
        match (&mut self.queue, found) {
            (None, Err(problem)) => Err(problem),
            (None, Ok(known)) => self.run(known, args).await,
            (Some(queue), Err(problem)) => {
                queue.spoil();
                Err(problem)
            }
            (Some(_), Ok(known)) if known.is_at_once() => self.run(known, args).await,
            (Some(queue), Ok(_)) => {
                // After a command that could not be queued, the others are read for their errors only.
                if !queue.is_spoilt {
                    queue.push(args, &self.shared.queues)?;
                }
                self.replies.simple("QUEUED");
                Ok(true)
            }
        }
    }

    /// Returns the command with this name and number of texts.
    ///
    /// # Errors
    /// If there is none, or if the client may not send it.
    fn find(&self, name: &[u8], texts: usize) -> Result<&'static Known, Problem> {
        let known = commands::find(name).ok_or_else(|| unknown(name))?;
        if !known.takes(texts) {
            return Err(wrong_number(known));
        }
        if known.is_limit() {
            self.permit(known)?;
        } else if self.user.is_none() && !known.is_for_strangers() {
            return Err(NO_USER);
        }
        Ok(known)
    }

    /// Runs a command. Returns whether the connection goes on.
    async fn run(&mut self, known: &Known, args: Args<'_>) -> Result<bool, Problem> {
        let began = self.answered_at.take();
        match known.command {
            Name::Limit(Limit::Throttle) => self.throttle(args)?,
            Name::Limit(Limit::Gcra) => self.gcra(args)?,
            Name::Limit(of_rules) => self.ask_rules(of_rules, args, began).await?,
            other => return connect::run(self, other, args),
        }
        Ok(true)
    }

    /// `CL.THROTTLE key max_burst count period [quantity]`.
    fn throttle(&mut self, args: Args<'_>) -> Result<(), Problem> {
        if args.len() > 6 {
            return Err("ERR wrong number of arguments for 'cl.throttle' command".into());
        }
        let quantity = if args.len() == 6 { whole(args, 5, "quantity", 0)? } else { 1 };
        let period = whole(args, 4, "period", 1)?.checked_mul(SECOND_NS).ok_or(TOO_LONG)?;
        let decision = self.charge(args, period, quantity)?;
        self.put_decision(&decision);
        self.replies.seconds(retry_after(&decision));
        self.replies.seconds(Some(decision.reset_after()));
        Ok(())
    }

    /// `GCRA key max_burst tokens_per_period period [TOKENS n]`.
    fn gcra(&mut self, args: Args<'_>) -> Result<(), Problem> {
        let option = args.get(5).unwrap_or(b"tokens");
        let is_option =
            option.eq_ignore_ascii_case(b"tokens") || option.eq_ignore_ascii_case(b"num_requests");
        if !is_option || !matches!(args.len(), 5 | 7) {
            return Err(
                "ERR syntax error; expected GCRA key max_burst tokens_per_period period [TOKENS n]".into()
            );
        }
        let tokens = if args.len() == 7 { whole(args, 6, "TOKENS", 0)? } else { 1 };
        let period = args.get(4).and_then(nanos).filter(|period| *period > 0);
        let period = period.ok_or("ERR period is no number of seconds above 0, or more than 584 years")?;
        let decision = self.charge(args, period, tokens)?;
        let reset = decision.reset_after();
        self.put_decision(&decision);
        self.replies.fraction(retry_after(&decision));
        self.replies.fraction(Some(reset).filter(|reset| !reset.is_zero()));
        Ok(())
    }

    fn charge(&self, args: Args<'_>, period_ns: u64, units: u64) -> Result<Decision, Problem> {
        let burst = whole(args, 2, "max_burst", 0)? + 1;
        let count = whole(args, 3, "count", 1)?;
        let key = args.get(1).unwrap_or_default();
        let user = self.user.as_ref().ok_or(NO_USER)?;
        let decided = self.shared.quotas.check(ClientQuota { burst, count, period_ns }, key, units, user);
        let decision = decided.map_err(|refused| {
            self.shared.counts.quotas_refused.add();
            Problem::from(format!("ERR {refused}"))
        })?;
        if decision.is_denied() {
            self.shared.counts.denied.add();
        }
        Ok(decision)
    }

    /// Writes the first three of the five numbers.
    fn put_decision(&mut self, decision: &Decision) {
        self.replies.array(5);
        self.replies.integer(decision.is_denied().into());
        self.replies.count(decision.limit());
        self.replies.count(decision.remaining());
    }

    /// The commands that rules of the file answer. A check begins at the time that is given.
    async fn ask_rules(
        &mut self,
        command: Limit,
        args: Args<'_>,
        began: Option<Instant>,
    ) -> Result<(), Problem> {
        let Self { shared, replies, user, answered_at, .. } = self;
        let (answerer, domain) = (&*shared.answerer, args.get(1).unwrap_or_default());
        if !user.as_ref().is_some_and(|user| user.may_ask(domain)) {
            return Err(format!("NOPERM No permissions to ask about the domain {}", Shown(domain)).into());
        }
        #[expect(clippy::disallowed_methods, reason = "the client waits in real time")]
        let deadline = || Instant::now() + shared.deadline;
        let failed = |status: Status| problem_of(&status);
        match command {
            Limit::TollgateHold | Limit::TollgateCommit if answerer.lacks_domain(domain) => {
                return Err(format!("ERR no rules have the domain {}", Shown(domain)).into());
            }
            Limit::TollgateHold => {
                let query = RuleQuery::of(args, &[HITS, TTL], 2)?;
                let request = ReserveRequest {
                    domain: Bytes::copy_from_slice(domain),
                    descriptors: vec![query.descriptor()],
                    amount: query.hits.unwrap_or(1),
                    ttl: query.ttl,
                };
                let reserved = answerer.reserve(request, deadline()).await.map_err(failed)?;
                let is_over = reserved.code != Code::Ok as i32;
                replies.array(2);
                replies.integer(is_over.into());
                match is_over {
                    true => replies.null(),
                    false => replies.bulk(reserved.reservation_id.as_bytes()),
                }
            }
            Limit::TollgateCommit => {
                let actual_amount = whole(args, 3, "actual", 0)?;
                let request = CommitRequest {
                    domain: Bytes::copy_from_slice(domain),
                    descriptors: vec![RuleQuery::of(args, &[], 4)?.descriptor()],
                    reservation_id: Bytes::copy_from_slice(args.get(2).unwrap_or_default()),
                    actual_amount,
                };
                let committed = answerer.commit(request, deadline()).await.map_err(failed)?;
                replies.integer(committed.reservation_released.into());
            }
            _ => {
                let (entry, options): (_, &[_]) = match command {
                    Limit::TollgatePeek => (Entry::Check, &[]),
                    _ => (Entry::Added(&shared.check), &[HITS]),
                };
                let query = RuleQuery::of(args, options, 2)?;
                let (entries, hits, patience) = (query.entries(), query.hits, shared.deadline);
                let request = SingleRequest { domain, entries, hits, entry, patience };
                let told = |answer: &SingleAnswer<'_>| put_answer(replies, answer);
                let (answered, ended) = answerer.answer_single(request, began, told).await;
                *answered_at = Some(ended);
                answered.map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Writes the five numbers of an answer by rules, and the name of the nearest rule.
fn put_answer(to: &mut Replies, answer: &SingleAnswer<'_>) {
    to.array(6);
    to.integer(answer.is_over.into());
    match &answer.limit {
        Some(Nearest { units, remaining, reset_after, name }) => {
            to.count(*units);
            to.count(*remaining);
            to.seconds(answer.retry_after);
            to.seconds(Some(*reset_after));
            to.bulk(name.as_bytes());
        }
        None => {
            to.integer(NO_FIGURES);
            to.integer(NO_FIGURES);
            to.seconds(answer.retry_after);
            to.integer(NO_FIGURES);
            to.bulk(b"");
        }
    }
}

const TOO_LONG: &str = "ERR period is longer than 584 years";

/// The options before the entries. Their names are in upper case, so that an entry may have such a name in other letters.
const HITS: &str = "HITS";
const TTL: &str = "TTL";

/// Ends the options: a pair follows in any case. Without it, a number of texts that is odd is an error.
const ENTRIES: &str = "ENTRIES";

/// What a command asks the rules.
struct RuleQuery<'a> {
    /// Pairs of a key and a value.
    pairs: Args<'a>,
    hits: Option<u64>,
    ttl: Option<prost_types::Duration>,
}

impl<'a> RuleQuery<'a> {
    /// Reads the options from the text `first` on, and then pairs of a key and a value.
    fn of(args: Args<'a>, options: &[&str], first: usize) -> Result<Self, Problem> {
        let mut query = Self { pairs: args.from(first), hits: None, ttl: None };
        while let Some(option) = options.iter().find(|option| {
            query.pairs.get(0).is_some_and(|text| option.as_bytes().eq_ignore_ascii_case(text))
        }) {
            if query.pairs.get(0) != Some(option.as_bytes()) {
                return Err(ambiguous(option));
            }
            if *option == HITS {
                query.hits = Some(whole(query.pairs, 1, "HITS", 0)?);
            } else {
                query.ttl = Some(life(query.pairs.get(1).unwrap_or_default())?);
            }
            query.pairs = query.pairs.from(2);
        }
        let is_marker = |text: &[u8]| ENTRIES.as_bytes().eq_ignore_ascii_case(text);
        if query.pairs.len() % 2 == 1 && query.pairs.get(0).is_some_and(is_marker) {
            query.pairs = query.pairs.from(1);
        }
        match query.pairs.len() {
            1.. if query.pairs.len().is_multiple_of(2) => Ok(query),
            _ => Err("ERR expected pairs of a key and a value after the domain and the options".into()),
        }
    }

    fn entries(&self) -> impl ExactSizeIterator<Item = [&'a [u8]; 2]> + Clone + use<'a> {
        let pairs = self.pairs;
        let text = move |at| pairs.get(at).unwrap_or_default();
        (0..pairs.len()).step_by(2).map(move |at| [text(at), text(at + 1)])
    }

    fn descriptor(&self) -> RateLimitDescriptor {
        let entries = self.entries().map(|pair| {
            let [key, value] = pair.map(Bytes::copy_from_slice);
            proto::Entry { key, value }
        });
        RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
    }
}

fn life(text: &[u8]) -> Result<prost_types::Duration, Problem> {
    let wrong = || Problem::Borrowed("ERR TTL is no number of seconds");
    prost_types::Duration::try_from(Duration::from_nanos(nanos(text).ok_or_else(wrong)?)).map_err(|_| wrong())
}

/// Returns a whole number that a command contains.
fn whole(args: Args<'_>, index: usize, what: &str, least: u64) -> Result<u64, Problem> {
    let text = args.get(index).unwrap_or_default();
    let number = integer(text).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number >= least).ok_or_else(|| wrong_whole(text, what, least))
}

#[cold]
fn wrong_whole(text: &[u8], what: &str, least: u64) -> Problem {
    format!("ERR {what} is {}; expected a whole number of {least} or more, below 2^63", Shown(text)).into()
}

/// An entry could be meant, or an option. Neither is silently taken for the other.
#[cold]
fn ambiguous(option: &str) -> Problem {
    format!(
        "ERR {} may be the option {option} or the key of an entry; write {option} in upper case, or ENTRIES before the first key",
        option.to_ascii_lowercase()
    )
    .into()
}

#[cold]
fn wrong_number(known: &Known) -> Problem {
    format!("ERR wrong number of arguments for '{}' command", known.name).into()
}

/// Whether a name is the beginning of a request of HTTP. A page in a browser can send requests to this port, and a line of its body
/// could be a command, so such a request ends the connection.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

#[cold]
fn unknown(name: &[u8]) -> Problem {
    let name = Shown(name);
    format!(
        "ERR unknown command {name}; COMMAND LIST shows those of Tollgate, which keeps limits and no data"
    )
    .into()
}

fn retry_after(decision: &Decision) -> Option<Duration> {
    if decision.is_denied() { decision.retry_after() } else { None }
}

#[cold]
fn problem_of(status: &Status) -> Problem {
    let code = if status.code() == Grpc::Unavailable { "UNAVAILABLE" } else { "ERR" };
    format!("{code} {}", status.message()).into()
}
