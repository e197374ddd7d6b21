//! Answers in numbers, for clients that have no messages of gateways.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use tollgate::Clock;
use tollgate_redis::DecidedBy;
use tollgate_rules::{Applied, Descriptor};
use tonic::Status;

use super::text::{Pairs, utf8};
use super::{Answerer, Code, Entry, meters};

/// A request with one descriptor. `E` iterates over its keys and values.
#[derive(Copy, Clone, Debug)]
pub struct SingleRequest<'a, E> {
    /// The domain.
    pub domain: &'a [u8],
    /// The keys and values.
    pub entries: E,
    /// What the request costs, if it sets it.
    pub hits: Option<u64>,
    /// The method. With [`Entry::Check`], nothing is charged, and the request is over a limit if one hit would be.
    pub entry: Entry<'a>,
    /// The most time that the answer may take.
    pub patience: Duration,
}

/// The answer to a request with one descriptor.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SingleAnswer<'r> {
    /// Whether the request is over a limit.
    pub is_over: bool,
    /// The strictest limit. `None` if no rule limits the request, or if the rule's server is away.
    pub limit: Option<Nearest<'r>>,
    /// The time until the same request can be admitted. `None` if it is admitted, or never can be. After a query without a charge, the
    /// time until the limit has units again, or for some algorithms all of its units.
    pub retry_after: Option<Duration>,
}

/// The limit that a request is nearest to.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Nearest<'r> {
    /// The units that a fresh key may use at once.
    pub units: u64,
    /// The units that are left. 0 if this limit denied the request.
    pub remaining: u64,
    /// The time until all units are available again.
    pub reset_after: Duration,
    /// The rule's name in its file. Empty if it has none.
    pub name: &'r str,
}

impl<C: Clock> Answerer<C> {
    /// Whether rules were loaded, and the domain has none.
    pub fn lacks_domain(&self, domain: &[u8]) -> bool {
        let has_rules = |domain| self.rules.peek(domain, &[]).has_domain();
        self.is_loaded() && !str::from_utf8(domain).is_ok_and(has_rules)
    }

    /// Answers a request with one descriptor: passes the answer to `told`. A command of a pipeline begins when the one before it is
    /// answered, so its caller need not read the clock again: it passes the time that this function has returned with that answer.
    ///
    /// # Errors
    /// Those of [`Answerer::answer`], and `NOT_FOUND` if the domain has no rules.
    pub async fn answer_single<'e>(
        &self,
        request: SingleRequest<'_, impl ExactSizeIterator<Item = [&'e [u8]; 2]> + Clone>,
        began: Option<Instant>,
        told: impl FnOnce(&SingleAnswer<'_>),
    ) -> (Result<(), Status>, Instant) {
        let (entry, began) = (request.entry, began.unwrap_or_else(meters::now));
        let in_flight = match self.begin_at(entry, began) {
            Ok(in_flight) => in_flight,
            Err(refused) => return (Err(refused), began),
        };
        let deadline = began + request.patience;
        let is_over = self.decide_one(request, deadline, told).await;
        let (ended, code) = (meters::now(), is_over.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok));
        in_flight.end_at(ended, code, Some(deadline));
        if is_over.as_ref().is_ok_and(|is_over| *is_over) {
            self.meters.over_limit();
        }
        (is_over.map(drop), ended)
    }

    /// Returns whether the request is over a limit.
    async fn decide_one<'e>(
        &self,
        request: SingleRequest<'_, impl ExactSizeIterator<Item = [&'e [u8]; 2]> + Clone>,
        deadline: Instant,
        told: impl FnOnce(&SingleAnswer<'_>),
    ) -> Result<bool, Status> {
        let SingleRequest { domain, entries, hits, entry, .. } = request;
        self.check_form(domain, [entries.len()].into_iter())?;
        let domain = utf8(domain);
        let replaced: Vec<[Cow<'_, str>; 2]>;
        let mut pairs = Pairs::new();
        if !push_texts(entries.clone(), &mut pairs) {
            replaced = entries.map(|pair| pair.map(utf8)).collect();
            pairs.clear();
            pairs.extend(replaced.iter().map(|[key, value]| (&**key, &**value)));
        }
        let descriptors = &[Descriptor::new(&pairs)];
        let (answer, code) = match entry {
            Entry::Check => self.peek(&domain, descriptors, deadline).await?,
            _ => {
                let hits = hits.unwrap_or(1).min(self.settings.max_hits);
                self.decide(&domain, descriptors, hits, entry, deadline).await?
            }
        };
        self.near.note(&answer, descriptors, self.settings.near_limit);
        if !answer.has_domain() {
            // A client may send a long name, and the answer must not be longer than the command.
            let domain = domain.chars().take(64).collect::<String>();
            return Err(Status::not_found(format!("no rules have the domain {domain:?}")));
        }
        if answer.is_shadow_denied() {
            self.meters.shadow_denied();
        }
        let is_over = code == Code::OverLimit;
        let mut strictest = answer.strictest(0);
        if strictest.is_some_and(|limit| !limit.rule().headers) {
            strictest = answer.strictest_shown(0);
        }
        let has_figures =
            |limit: &Applied<'_>| !matches!(limit.decided_by(), Some(DecidedBy::Open | DecidedBy::Closed));
        let limit = strictest.filter(has_figures).and_then(|limit| {
            let decision = limit.decision()?;
            Some(Nearest {
                units: limit.quota(),
                remaining: if decision.is_denied() { 0 } else { limit.remaining() },
                reset_after: decision.reset_after(),
                // A name that the file does not set is a path, with values of other clients.
                name: if limit.rule().is_named { limit.name() } else { "" },
            })
        });
        let retry_after = match is_over {
            false => None,
            true if answer.is_denied() => answer.retry_after(),
            // A query without a charge is not denied, so it does not know when the next unit is back.
            true => strictest.and_then(|limit| limit.reset_after()),
        };
        told(&SingleAnswer { is_over, limit, retry_after });
        Ok(is_over)
    }
}

/// Adds the keys and values to `pairs`. Returns `false` at a text that is not UTF-8.
fn push_texts<'p, 'a: 'p>(entries: impl Iterator<Item = [&'a [u8]; 2]>, pairs: &mut Pairs<'p>) -> bool {
    for [key, value] in entries {
        let (Ok(key), Ok(value)) = (str::from_utf8(key), str::from_utf8(value)) else { return false };
        pairs.push((key, value));
    }
    true
}
