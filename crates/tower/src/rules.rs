//! Rules as the limit of a layer.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use smallvec::SmallVec;
use tollgate::Clock;
use tollgate::holds::HoldId;
use tollgate_http::Policy;
use tollgate_rules::internals::Pairs;
use tollgate_rules::{Answer, Descriptor, Descriptors, Rules, RulesError};

use crate::awaited::AwaitedLimit;
use crate::head::{CutAddress, Head};
use crate::holds::{HeldCost, SettledAt};
use crate::key::KeyExtractor;
use crate::layer::RateLimitLayer;
use crate::limit::{RequestLimit, Ruling, Settles};
use crate::settle::Unsettled;

/// The rules of one domain, as a limit of a layer.
///
/// If rules have `hold` or `in_progress`, a request holds their units until the body of its response has ended. The
/// response can tell the cost that is charged then: see [`Holds`](crate::Holds).
pub struct InDomain<C> {
    rules: Arc<Rules<C>>,
    domain: Arc<str>,
}

impl<C> fmt::Debug for InDomain<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InDomain").field("domain", &self.domain).field("rules", &self.rules).finish()
    }
}

impl<C: Clock + Send + Sync + 'static> RequestLimit<Descriptors> for InDomain<C> {
    type Ruling = Ruled;

    fn check(&self, key: &Descriptors, cost: u64) -> Ruled {
        if self.rules.has_holds() {
            let of = |descriptors: &[Descriptor<'_>]| {
                self.rules.hold(&self.domain, descriptors, cost, Duration::MAX)
            };
            return self.ruled(key.with(of), key, cost);
        }
        Ruled {
            answer: key.with(|descriptors| self.rules.check_n(&self.domain, descriptors, cost)),
            held: None,
        }
    }

    /// The units that the request holds are settled in another way.
    fn refund(&self, key: &Descriptors, ruling: &Ruled) {
        key.with(|descriptors| self.rules.refund(descriptors, &ruling.answer));
    }

    fn policies(&self, ruling: &Ruled, tell: &mut dyn FnMut(&[Policy<'_>])) {
        tell_policies(&ruling.answer, tell);
    }
}

impl<C> InDomain<C> {
    #[cold]
    fn ruled(&self, (answer, id): (Answer, Option<HoldId>), key: &Descriptors, units: u64) -> Ruled
    where
        C: Clock + Send + Sync + 'static,
    {
        let held = id.map(|id| {
            let (rules, domain, key) = (Arc::clone(&self.rules), Arc::clone(&self.domain), key.clone());
            let commit = move |actual: Option<u64>| {
                let cost = |descriptor: &Descriptor<'_>| actual.unwrap_or_else(|| descriptor.cost(units));
                key.with(|descriptors| rules.commit_each(&domain, descriptors, id, cost));
            };
            Box::new(HeldCost::new(units, SettledAt::End, commit))
        });
        Ruled { answer, held }
    }
}

/// The answer of rules, and the units that an admitted request holds.
pub struct Ruled {
    answer: Answer,
    held: Option<Box<HeldCost>>,
}

impl Settles for Ruled {}

impl fmt::Debug for Ruled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let holds = self.held.is_some();
        f.debug_struct("Ruled").field("answer", &self.answer).field("holds", &holds).finish()
    }
}

fn tell_policies(ruling: &Answer, tell: &mut dyn FnMut(&[Policy<'_>])) {
    let policies: SmallVec<[Policy<'_>; 4]> =
        ruling.limits().filter_map(|limit| Policy::of_rule(limit.name(), &limit)).collect();
    tell(&policies);
}

/// Rules that processes share ask their server, so the layer awaits them: [`RateLimitLayer::awaited`].
impl<C: Clock + Send + Sync + 'static> AwaitedLimit<Descriptors> for InDomain<C> {
    type Ruling = Ruled;

    async fn check(&self, key: &Descriptors, cost: u64) -> Ruled {
        let pairs = Pairs::of(key);
        let (rules, domain, descriptors) = (&self.rules, &*self.domain, pairs.each());
        if rules.has_holds() {
            let held = rules.hold_async(domain, &descriptors, cost, Duration::MAX).await;
            return self.ruled(held, key, cost);
        }
        Ruled { answer: rules.check_n_async(domain, &descriptors, cost).await, held: None }
    }

    async fn refund(&self, key: &Descriptors, ruling: &Ruled) {
        let pairs = Pairs::of(key);
        self.rules.refund_async(&pairs.each(), &ruling.answer).await;
    }

    fn policies(&self, ruling: &Ruled, tell: &mut dyn FnMut(&[Policy<'_>])) {
        tell_policies(&ruling.answer, tell);
    }
}

impl Ruling for Ruled {
    fn is_allowed(&self) -> bool {
        self.answer.is_allowed()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.answer.retry_after()
    }

    fn is_soft_limited(&self) -> bool {
        self.answer.is_soft_limited()
    }

    #[inline]
    fn is_unsettled(&self) -> bool {
        self.held.is_some()
    }

    fn unsettled(&mut self) -> Option<Box<dyn Unsettled>> {
        Some(self.held.take()?)
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
        let (mut descriptors, cut) = (Descriptors::new(), OnceLock::new());
        (self.0)(head.with_cut(&cut), &mut descriptors)?;
        if let Some(&CutAddress { network, address }) = cut.get() {
            descriptors.match_whole(network, address);
        }
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
    /// **Rules match the client's whole address and count its network**, if `describe` takes the value from the key of a
    /// [`ClientIp`](crate::ClientIp). So a rule for `2001:db8::1` or a range of 80 bits applies to its addresses alone,
    /// and a rule that counts each address counts each /64, or what [`ipv6_prefix`](crate::ClientIp::ipv6_prefix) sets.
    /// If `describe` asks several of them, this is true of the first that cuts an address. [`Rules::warnings`] lists values that
    /// no request has, such as an address in another spelling or with a port.
    ///
    /// **Rules that processes share (`store: redis`) need [`awaited`](RateLimitLayer::awaited)**, unless the client is
    /// a blocking one. Without `awaited`, a rule in the mode `atomic` never asks the server: each process decides by
    /// the rule's `on_failure`.
    ///
    /// The caller can still reload, watch and publish the rules. A request beyond a rule's soft limit has
    /// [`SoftLimited`](crate::SoftLimited) among its extensions.
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
    /// use tollgate_rules::Rules;
    /// use tollgate_tower::{ClientIp, KeyExtractor, RateLimitLayer};
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
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    pub fn rules(rules: Arc<Rules<C>>, domain: impl Into<Arc<str>>, describe: F) -> Result<Self, RulesError> {
        let domain = domain.into();
        rules.require_domain(&domain)?;
        Ok(Self::new(InDomain { rules, domain }, Describe(describe)))
    }
}
