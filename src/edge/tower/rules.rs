//! Rules as the limit of a layer.

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
use crate::edge::http::Policy;
use crate::edge::rules::{Answer, Descriptors, Rules, RulesError};

/// The rules of one domain, as a limit of a layer.
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
    let policies: SmallVec<[Policy<'_>; 4]> =
        ruling.limits().filter_map(|limit| limit.policy(limit.name())).collect();
    tell(&policies);
}

/// Rules that processes share ask their server, so the layer awaits them: [`RateLimitLayer::awaited`].
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

/// Builds a request's descriptors with a function.
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
    /// Creates a layer that applies the [rules](Rules) of a domain. `describe` adds the descriptors of a request. It
    /// returns `None` if the request does not identify its client; [`RateLimitLayer::missing`] then decides, and by
    /// default the request is denied. A request that matches no rule is admitted.
    ///
    /// **Rules that processes share (`store: redis`) need [`awaited`](RateLimitLayer::awaited)**, unless the client is
    /// a blocking one. Without `awaited`, a rule in the mode `atomic` never asks the server: each process decides by
    /// the rule's `on_failure`.
    ///
    /// The caller can still reload, watch and publish the rules. A request beyond a rule's soft limit has
    /// [`SoftLimited`](super::SoftLimited) among its extensions.
    ///
    /// The layer marks the domain as required: a later load that would remove the domain fails (see
    /// [`require_domain`](Rules::require_domain)).
    ///
    /// # Errors
    /// If the domain has no rules, because such a layer would limit nothing.
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
