//! Units that are held: `Reserve` and `Commit` of Kuadrant's service, and a query that holds units. Also figures, which are asked alike.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tollgate::Clock;
use tollgate::holds::HoldId;
use tollgate::rules::{Answer, Descriptor};
use tonic::Status;

use super::decide::is_full;
use super::figures::Figures;
use super::text::{self, Texts};
use super::{Answerer, Code, Entry, RateLimitRequest};
use crate::serve::proto::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse};

/// What a call asks.
#[derive(Copy, Clone, Debug)]
enum Ask {
    /// To decide by this entry.
    Figures(Entry),
    /// To hold units, for at most this time.
    Reserve(u64, Duration),
    /// To settle a hold for this number of units.
    Commit(HoldId, u64),
}

/// The answer to a call.
#[derive(Clone, Debug)]
enum Told {
    Figures(Figures),
    OverLimit,
    /// The units are held under this identity.
    Reserved(HoldId),
    /// Whether the hold was still there.
    Committed(bool),
}

/// The identity of an admitted request that holds nothing, such as one that only a dry run admits.
fn nothing() -> HoldId {
    HoldId::from_bytes([0xFF; 24])
}

impl<C: Clock> Answerer<C> {
    /// Holds units of all limits of the descriptors, or of none.
    ///
    /// # Errors
    /// Those of [`Answerer::answer`]. `INVALID_ARGUMENT` if `ttl` is negative, and `UNIMPLEMENTED` if one of the limits
    /// cannot hold units.
    pub async fn reserve(
        &self,
        request: ReserveRequest,
        deadline: Instant,
    ) -> Result<ReserveResponse, Status> {
        let ReserveRequest { domain, descriptors, amount, ttl } = request;
        let life = match ttl {
            // Each rule has a longest life.
            None => Duration::MAX,
            Some(ttl) => {
                Duration::try_from(ttl).map_err(|_| Status::invalid_argument("the ttl is negative"))?
            }
        };
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let ask = Ask::Reserve(amount.min(self.settings.max_hits), life);
        Ok(match self.counted(request, Entry::Reserve, ask, deadline).await? {
            Told::Reserved(id) => ReserveResponse {
                code: Code::Ok as i32,
                reservation_id: BASE64_URL_SAFE_NO_PAD.encode(id.to_bytes()),
            },
            _ => {
                self.meters.over_limit();
                ReserveResponse { code: Code::OverLimit as i32, reservation_id: String::new() }
            }
        })
    }

    /// Settles units that were held. Units that were used are counted in any case.
    ///
    /// # Errors
    /// Those of [`Answerer::reserve`].
    pub async fn commit(&self, request: CommitRequest, deadline: Instant) -> Result<CommitResponse, Status> {
        let CommitRequest { domain, descriptors, reservation_id, actual_amount } = request;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&reservation_id).ok();
        // No hold has the identity of zeros, so a commit without a known one is a report.
        let id = bytes.and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; 24]);
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let ask = Ask::Commit(HoldId::from_bytes(id), actual_amount.min(self.settings.max_hits));
        let told = self.counted(request, Entry::Commit, ask, deadline).await?;
        Ok(CommitResponse { reservation_released: matches!(told, Told::Committed(true)) })
    }

    /// Answers a request with one descriptor in figures. With [`Entry::Check`], charges nothing, and the request is over a limit if one hit
    /// would be.
    ///
    /// # Errors
    /// Those of [`Answerer::answer`], and `NOT_FOUND` if the domain has no rules.
    pub async fn figures(
        &self,
        request: RateLimitRequest,
        entry: Entry,
        deadline: Instant,
    ) -> Result<Figures, Status> {
        match self.counted(request, entry, Ask::Figures(entry), deadline).await? {
            Told::Figures(figures) => {
                if figures.is_over {
                    self.meters.over_limit();
                }
                Ok(figures)
            }
            _ => Err(Status::internal("the answer is one to another question")),
        }
    }

    /// Asks and counts the answer.
    async fn counted(
        &self,
        mut request: RateLimitRequest,
        entry: Entry,
        ask: Ask,
        deadline: Instant,
    ) -> Result<Told, Status> {
        let in_flight = self.begin(entry)?;
        let told = async {
            self.check_form(&request)?;
            if text::texts(&request).is_none() {
                text::make_texts(&mut request);
            }
            self.tell(&request, ask, deadline).await
        };
        let told = told.await;
        in_flight.end(told.as_ref().map_or_else(Status::code, |_| tonic::Code::Ok), Some(deadline));
        told
    }

    async fn tell(&self, request: &RateLimitRequest, ask: Ask, deadline: Instant) -> Result<Told, Status> {
        let Some(Texts { domain, pairs }) = text::texts(request) else {
            return Err(Status::internal("a text is not UTF-8"));
        };
        let descriptors = self.descriptors(request, &pairs)?;
        if let Ask::Figures(entry) = ask {
            return self.figures_of(domain, &descriptors, entry, deadline).await.map(Told::Figures);
        }
        let can_hold = self.rules.can_hold(domain, &descriptors);
        let settled = match ask {
            Ask::Commit(id, actual) if id != nothing() => self.rules.commit(domain, &descriptors, id, actual),
            _ => false,
        };
        // A hold is settled also if a load has taken `hold` away from its rule.
        if !can_hold && !settled {
            let message = "a rule of these descriptors cannot hold units: it has store: redis, a log or a sketch, or it \
                           needs `hold: {}` in its rate_limit";
            return Err(Status::unimplemented(message));
        }
        match ask {
            Ask::Reserve(amount, life) => {
                let (answer, id) = self.hold(domain, &descriptors, (amount, life), deadline).await?;
                if answer.is_shadow_denied() {
                    self.meters.shadow_denied();
                }
                Ok(id.map_or(Told::OverLimit, Told::Reserved))
            }
            Ask::Commit(..) | Ask::Figures(_) => Ok(Told::Committed(settled)),
        }
    }

    /// Holds units. Returns no identity if a rule denies the request, or has no unit left after a query.
    pub(super) async fn hold(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        (units, life): (u64, Duration),
        deadline: Instant,
    ) -> Result<(Answer, Option<HoldId>), Status> {
        let (answer, id) = self.rules.hold_until(domain, descriptors, units, life, deadline).await;
        let demanded = self.demand_store(&answer, descriptors, deadline).await;
        let is_over = is_full(&answer);
        if let Some(id) = id.filter(|_| is_over || demanded.is_err()) {
            self.rules.commit(domain, descriptors, id, 0);
        }
        demanded?;
        Ok((answer, (!is_over).then(|| id.unwrap_or(nothing()))))
    }
}
