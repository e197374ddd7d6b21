//! Rules as what decides.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

#[cfg(feature = "redis")]
use super::awaited::AwaitedLimit;
use super::head::Head;
use super::key::KeyExtractor;
use super::layer::RateLimitLayer;
use super::limit::{Limit, Ruling};
use crate::base::clock::Clock;
use crate::base::quota::Quota;
use crate::edge::http::Policy;
use crate::edge::rules::{Answer, Applied, Descriptors, Limit as RuleLimit, Rules, RulesError};

/// The rules of one domain, as what a layer asks.
pub struct InDomain<C> {
    rules: Arc<Rules<C>>,
    domain: Box<str>,
}

impl<C> fmt::Debug for InDomain<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InDomain").field("domain", &self.domain).field("rules", &self.rules).finish()
    }
}

impl<C: Clock + Send + Sync + 'static> Limit<Descriptors> for InDomain<C> {
    type Ruling = Answer;

    fn check(&self, key: &Descriptors, cost: u64) -> Answer {
        key.with(|descriptors| self.rules.check_n(&self.domain, descriptors, cost))
    }

    fn refund(&self, key: &Descriptors, ruling: &Answer) {
        key.with(|descriptors| self.rules.refund(descriptors, ruling));
    }

    fn policies(&self, ruling: &Answer, tell: &mut dyn FnMut(&[Policy<'_>])) {
        tell_policies(ruling, tell);
    }
}

fn tell_policies(ruling: &Answer, tell: &mut dyn FnMut(&[Policy<'_>])) {
    let policies: SmallVec<[Policy<'_>; 4]> = ruling.limits().filter_map(|limit| policy(&limit)).collect();
    tell(&policies);
}

/// Rules that processes share ask their server: [`RateLimitLayer::awaited`].
#[cfg(feature = "redis")]
impl<C: Clock + Send + Sync + 'static> AwaitedLimit<Descriptors> for InDomain<C> {
    type Ruling = Answer;

    async fn check(&self, key: &Descriptors, cost: u64) -> Answer {
        let entries = key.pairs();
        self.rules.check_n_async(&self.domain, &key.each_of(&entries), cost).await
    }

    async fn refund(&self, key: &Descriptors, ruling: &Answer) {
        let entries = key.pairs();
        self.rules.refund_async(&key.each_of(&entries), ruling).await;
    }

    fn policies(&self, ruling: &Answer, tell: &mut dyn FnMut(&[Policy<'_>])) {
        tell_policies(ruling, tell);
    }
}

impl Ruling for Answer {
    fn is_allowed(&self) -> bool {
        Self::is_allowed(self)
    }

    fn retry_after(&self) -> Option<Duration> {
        Self::retry_after(self)
    }

    fn is_soft_limited(&self) -> bool {
        Self::is_soft_limited(self)
    }
}

/// What a client is told of a rule: nothing of one without a limit, nothing of one that only reports, and nothing of one
/// of which nobody knows: since its server could not be asked, or since this process holds a part of it only.
fn policy<'a>(limit: &Applied<'a>) -> Option<Policy<'a>> {
    let decision = *limit.decision().filter(|_| limit.knows_remaining())?;
    let policy = match &limit.rule().limit {
        RuleLimit::Unlimited => return None,
        RuleLimit::Blocked { period } if decision.is_allowed() => {
            Policy::blocked_by(limit.name(), *period, decision)
        }
        RuleLimit::Blocked { period } => Policy::blocked(limit.name(), *period, decision.at()),
        // A request's own limit is another than its rule's.
        RuleLimit::Quota { quota, .. } => match Quota::try_new(limit.quota(), limit.window()) {
            Ok(own) if limit.is_of_request() => Policy::new(limit.name(), &own, decision),
            _ => Policy::new(limit.name(), quota, decision),
        },
    };
    Some(policy.enforced(limit.is_enforced()))
}

/// A request's descriptors, by a function.
#[derive(Clone)]
pub struct Describe<F>(F);

impl<F> fmt::Debug for Describe<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Describe")
    }
}

impl<F> KeyExtractor for Describe<F>
where
    F: Fn(Head<'_>, &mut Descriptors) -> Option<()> + Send + Sync + 'static,
{
    type Key = Descriptors;

    #[inline]
    fn key(&self, head: Head<'_>) -> Option<Descriptors> {
        let mut descriptors = Descriptors::new();
        (self.0)(head, &mut descriptors)?;
        Some(descriptors)
    }
}

impl<C, F> RateLimitLayer<InDomain<C>, Describe<F>>
where
    C: Clock + Send + Sync + 'static,
    F: Fn(Head<'_>, &mut Descriptors) -> Option<()> + Send + Sync + 'static,
{
    /// A layer of the [rules](Rules) of a domain. `describe` says what a request is: its descriptors. If it cannot, since the request
    /// does not say whose it is, it answers `None`, and [`RateLimitLayer::missing`] says what happens: by default the request is
    /// refused. A request that no rule is for goes.
    ///
    /// **Rules that processes share (`store: redis`) need [`awaited`](RateLimitLayer::awaited)**, unless the client is a blocking one: without
    /// it a rule of the mode `atomic` is never asked, and each process decides by the rule's `on_failure`.
    ///
    /// The rules stay yours to load again, watch and publish. Requests beyond a rule's soft limit go on with
    /// [`SoftLimited`](super::SoftLimited) among their extensions.
    ///
    /// From then on the domain is in use: a load that would remove it fails, as
    /// [`require_domain`](Rules::require_domain) says.
    ///
    /// # Errors
    /// If there are no rules of the domain, since such a layer would limit nothing.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::rules::Rules;
    /// use tollgate::tower::{ClientIp, KeyExtractor, RateLimitLayer};
    ///
    /// let rules = Arc::new(Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - key: remote_address
    ///     rate_limit: { unit: second, requests_per_unit: 10 }
    ///   - key: path
    ///     value: /login
    ///     descriptors:
    ///       - key: remote_address
    ///         rate_limit: { unit: minute, requests_per_unit: 5 }
    /// ")?);
    /// let client = ClientIp::peer();
    /// let layer = RateLimitLayer::rules(Arc::clone(&rules), "edge", move |head, descriptors| {
    ///     let address = client.key(head)?;
    ///     descriptors.begin().address("remote_address", address);
    ///     descriptors.begin().entry("path", head.path()).address("remote_address", address);
    ///     Some(())
    /// })?;
    /// # drop(layer);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn rules(rules: Arc<Rules<C>>, domain: impl Into<Box<str>>, describe: F) -> Result<Self, RulesError> {
        let domain = domain.into();
        rules.require_domain(&domain)?;
        Ok(Self::new(InDomain { rules, domain }, Describe(describe)))
    }
}
