//! Asks the rules. This is the only place that knows how the rules charge a request.

use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use tollgate::{Clock, Decision};
use tollgate_redis::DecidedBy;
use tollgate_rules::{Answer, Applied, Descriptor};
use tonic::Status;

use super::{Answerer, Code, Entry};

impl<C: Clock> Answerer<C> {
    /// Decides a request, and returns the code for the whole request.
    pub(super) async fn decide(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        entry: Entry<'_>,
        deadline: Instant,
    ) -> Result<(Answer, Code), Status> {
        let (answer, is_over) = if entry == Entry::Check {
            let queries: Vec<_> = descriptors.iter().map(|descriptor| descriptor.hits(0)).collect();
            let (answer, id) = self.hold(domain, &queries, (0, Duration::MAX), deadline).await?;
            let is_over = id.is_none();
            (answer, is_over)
        } else {
            let answer = self.rules.check_until(domain, descriptors, hits, deadline).await;
            self.demand_store(&answer, descriptors, deadline).await?;
            let is_over = answer.is_denied();
            (answer, is_over)
        };
        Ok((answer, if is_over { Code::OverLimit } else { Code::Ok }))
    }

    /// Asks the rules without a charge or a hold. The code is that of one hit.
    pub(super) async fn peek(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        deadline: Instant,
    ) -> Result<(Answer, Code), Status> {
        let answer = self.rules.peek_until(domain, descriptors, deadline).await;
        self.demand_store(&answer, descriptors, deadline).await?;
        let code = if is_full(&answer) { Code::OverLimit } else { Code::Ok };
        Ok((answer, code))
    }

    /// Counts the hits of each descriptor. If the limit of one descriptor is exceeded, the others
    /// still count.
    pub(super) async fn report(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        deadline: Instant,
    ) -> Result<(), Status> {
        let mut reported = Ok(());
        for descriptor in descriptors.chunks(1) {
            let answer = self.rules.check_until(domain, descriptor, hits, deadline).await;
            self.near.note(&answer, descriptor, self.settings.near_limit);
            // An error does not end the loop, because the other descriptors must be counted too.
            reported = reported.and(self.demand_store(&answer, descriptor, deadline).await);
        }
        reported
    }

    /// Refunds the hits of the descriptors that `is_back` selects, and empties these descriptors, so that a decision
    /// passes over them. Returns the answer to a query of them, by the same indices.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` if one of their rules cannot refund. Nothing is refunded then.
    #[cold]
    pub(super) fn refund(
        &self,
        domain: &str,
        descriptors: &mut [Descriptor<'_>],
        hits: u64,
        is_back: impl Fn(usize) -> bool,
    ) -> Result<Answer, Status> {
        const EMPTY: Descriptor<'static> = Descriptor::new(&[]);
        let mut backs = vec![EMPTY; descriptors.len()];
        for (index, (descriptor, back)) in descriptors.iter_mut().zip(&mut backs).enumerate() {
            if is_back(index) {
                *back = std::mem::replace(descriptor, EMPTY);
            }
        }
        if !self.rules.refund_n(domain, &backs, hits) {
            let message = "a rule with `store: redis`, a log or a sketch takes no hits back";
            return Err(Status::unimplemented(message));
        }
        Ok(self.rules.peek(domain, &backs))
    }

    /// Refuses to answer without the server of a shared rule that could deny the request, if the settings say so. If
    /// another rule denies the request in any case, its denial is the answer.
    pub(super) async fn demand_store(
        &self,
        answer: &Answer,
        descriptors: &[Descriptor<'_>],
        deadline: Instant,
    ) -> Result<(), Status> {
        let is_away = |limit: &Applied<'_>| limit.decided_by().is_some_and(DecidedBy::is_failure);
        if !self.settings.unavailable_without_store
            || !answer.limits().any(|limit| limit.is_enforced() && is_away(&limit))
            || answer.denied_by().any(|limit| !limit.is_quota() && !is_away(&limit))
        {
            return Ok(());
        }
        // The refunds that are not finished by the deadline continue in tasks.
        let _ = timeout_at(deadline.into(), self.rules.refund_async(descriptors, answer)).await;
        Err(Status::unavailable("the server of a shared rule is away"))
    }
}

/// Whether a rule denies the request, or would deny one more hit after a query.
pub(super) fn is_full(answer: &Answer) -> bool {
    let is_full = |limit: &Applied<'_>| {
        let is_over =
            |decision: &Decision| decision.is_denied() || (decision.cost() == 0 && limit.remaining() == 0);
        limit.decided_by() != Some(DecidedBy::Open) && limit.decision().is_some_and(is_over)
    };
    let enforced = || answer.limits().filter(Applied::is_enforced);
    let quotas = || enforced().filter(Applied::is_quota);
    enforced().any(|limit| !limit.is_quota() && is_full(&limit))
        || (quotas().count() > 0 && quotas().all(|limit| is_full(&limit)))
}
