//! Units that are held: `Reserve` and `Commit` of Kuadrant's service, and a query that holds units.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use tollgate::Clock;
use tollgate::holds::HoldId;
use tollgate_rules::{Answer, Descriptor};
use tonic::Status;

use super::decide::is_full;
use super::{Answerer, Code, Entry, RateLimitRequest};
use crate::proto::{CommitRequest, CommitResponse, ReserveRequest, ReserveResponse};

const CANNOT_HOLD: &str = "a rule of these descriptors cannot hold units: it has store: redis, a log or a sketch, or it needs \
                           `hold: {}` in its rate_limit";

/// The identity of an admitted request that holds nothing, such as one that only a dry run admits. No hold has it, so a commit
/// under it counts the actual amount, also at a rule that a load has added since.
fn nothing() -> HoldId {
    HoldId::from_bytes([0; 24])
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
        let amount = amount.min(self.settings.max_hits);
        let reserve = async |request: &RateLimitRequest, domain: &str, pairs: &[(&str, &str)]| {
            let descriptors = self.descriptors(request, pairs)?;
            if !self.rules.can_hold(domain, &descriptors) {
                return Err(Status::unimplemented(CANNOT_HOLD));
            }
            let (answer, id) = self.hold(domain, &descriptors, (amount, life), deadline).await?;
            if answer.is_shadow_denied() {
                self.meters.shadow_denied();
            }
            Ok(id)
        };
        Ok(match self.counted(request, Entry::Reserve, deadline, reserve).await? {
            Some(id) => ReserveResponse {
                code: Code::Ok as i32,
                reservation_id: BASE64_URL_SAFE_NO_PAD.encode(id.to_bytes()),
            },
            None => {
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
        // A commit without a known identity is a report.
        let id = bytes.and_then(|bytes| bytes.try_into().ok()).map_or(nothing(), HoldId::from_bytes);
        let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let actual = actual_amount.min(self.settings.max_hits);
        let commit = async |request: &RateLimitRequest, domain: &str, pairs: &[(&str, &str)]| {
            let descriptors = self.descriptors(request, pairs)?;
            let settled = self.rules.commit(domain, &descriptors, id, actual);
            // A hold is settled also if a load has taken `hold` away from its rule.
            match settled || self.rules.can_hold(domain, &descriptors) {
                true => Ok(settled),
                false => Err(Status::unimplemented(CANNOT_HOLD)),
            }
        };
        let reservation_released = self.counted(request, Entry::Commit, deadline, commit).await?;
        Ok(CommitResponse { reservation_released })
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
