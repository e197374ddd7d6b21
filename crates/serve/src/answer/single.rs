//! Answers in numbers, for clients that have no messages of gateways.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tollgate::Clock;
use tollgate_redis::DecidedBy;
use tollgate_rules::{Applied, Descriptor};
use tonic::Status;

use super::text::{Pairs, utf8};
use super::{Answerer, Code, Entry};

/// The answer to a request with one descriptor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SingleAnswer {
    /// Whether the request is over a limit.
    pub is_over: bool,
    /// The strictest limit. `None` if no rule limits the request, or if the rule's server is away.
    pub limit: Option<Nearest>,
    /// The time until the same request can be admitted. `None` if it is admitted, or never can be. After a query without a charge, the
    /// time until the limit has units again, or for some algorithms all of its units.
    pub retry_after: Option<Duration>,
}

/// The limit that a request is nearest to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nearest {
    /// The units that a fresh key may use at once.
    pub units: u64,
    /// The units that are left. 0 if this limit denied the request.
    pub remaining: u64,
    /// The time until all units are available again.
    pub reset_after: Duration,
    /// The rule's name in its file. Empty if it has none.
    pub name: Box<str>,
}

impl<C: Clock> Answerer<C> {
    /// Whether rules were loaded, and the domain has none.
    pub fn lacks_domain(&self, domain: &[u8]) -> bool {
        let has_rules = |domain| self.rules.peek(domain, &[]).has_domain();
        self.is_loaded() && !str::from_utf8(domain).is_ok_and(has_rules)
    }

    /// Answers a request with one descriptor, after at most this time. `entries` are keys and values. With [`Entry::Check`],
    /// charges nothing, and the request is over a limit if one hit would be.
    ///
    /// # Errors
    /// Those of [`Answerer::answer`], and `NOT_FOUND` if the domain has no rules.
    pub async fn answer_single<'a>(
        &self,
        domain: &[u8],
        entries: impl ExactSizeIterator<Item = [&'a [u8]; 2]>,
        hits: Option<u64>,
        entry: Entry,
        patience: Duration,
    ) -> Result<SingleAnswer, Status> {
        let in_flight = self.begin(entry)?;
        let deadline = in_flight.began() + patience;
        let answer = self.decide_one(domain, entries, hits.unwrap_or(1), entry, deadline).await;
        in_flight.end(answer.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok), Some(deadline));
        if answer.as_ref().is_ok_and(|answer| answer.is_over) {
            self.meters.over_limit();
        }
        answer
    }

    async fn decide_one<'a>(
        &self,
        domain: &[u8],
        entries: impl ExactSizeIterator<Item = [&'a [u8]; 2]>,
        hits: u64,
        entry: Entry,
        deadline: Instant,
    ) -> Result<SingleAnswer, Status> {
        self.check_form(domain, [entries.len()].into_iter())?;
        let domain = utf8(domain);
        let texts: SmallVec<[[Cow<'_, str>; 2]; 4]> = entries.map(|pair| pair.map(utf8)).collect();
        let pairs: Pairs<'_> = texts.iter().map(|[key, value]| (&**key, &**value)).collect();
        let descriptors = &[Descriptor::new(&pairs)];
        let (answer, code) = match entry {
            Entry::Check => self.peek(&domain, descriptors, deadline).await?,
            _ => {
                let hits = hits.min(self.settings.max_hits);
                self.decide(&domain, descriptors, hits, entry, deadline).await?
            }
        };
        self.near.note(&answer, descriptors, self.settings.near_limit);
        if !answer.has_domain() {
            // A Redis client may send a long name, and the answer must not be longer than the command.
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
                name: if limit.rule().is_named { limit.rule().name.clone() } else { "".into() },
            })
        });
        let retry_after = match is_over {
            false => None,
            true if answer.is_denied() => answer.retry_after(),
            // A query without a charge is not denied, so it does not know when the next unit is back.
            true => strictest.and_then(|limit| limit.reset_after()),
        };
        Ok(SingleAnswer { is_over, limit, retry_after })
    }
}
