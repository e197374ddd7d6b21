//! Limits for several prefixes of an address, charged together.

use std::array::from_fn;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use tollgate::joint::{AllOf, BoundLimit, JointDecision};
use tollgate::stores::{ManyKeys, Store};
use tollgate::{Clock, Compact, Decision, DefaultClock, Quota, RateLimiter};
use tollgate_http::Policy;

use crate::client::{ClientIp, PrefixError, ipv4_or_ipv6};
use crate::layer::RateLimitLayer;
use crate::limit::{RequestLimit, Ruling};
use tollgate::address_prefix;

/// Limits a client's network, and the wider networks around it: a request is charged to all of them, or to none.
///
/// One number of leading bits is right for no two providers. A client that rents a /48 has 65,536 networks of 64 bits, so
/// a limit for each /64 alone gives it 65,536 budgets. Here, each step has an IPv4 length, an IPv6 length and a quota. The
/// lengths become shorter from step to step, and the quotas become higher.
///
/// An IPv4 address in IPv6 form (`::ffff:203.0.113.7`, or `64:ff9b::203.0.113.7` of a NAT64) is an IPv4 address, whatever
/// extractor it comes from.
///
/// Make the layer with [`ClientIp::limit_prefixes`]. Its clients see a policy for each step, such as `ipv6/64`.
///
/// # Complexity
/// Three checks for three steps, with one clock reading. All keys are prefetched before the first one is read. Does not
/// allocate.
///
/// # Examples
/// ```
/// use tollgate::Quota;
/// use tollgate_tower::{ClientIp, PrefixLimits};
///
/// let limits = PrefixLimits::new([
///     (32, 64, Quota::per_second(100)),
///     (24, 56, Quota::per_second(400)),
///     (24, 48, Quota::per_second(1_000)),
/// ])?;
/// let layer = ClientIp::peer().limit_prefixes(limits);
/// # drop(layer);
/// # Ok::<(), tollgate_tower::PrefixError>(())
/// ```
#[derive(Debug)]
pub struct PrefixLimits<const N: usize, S = Compact, C = DefaultClock> {
    steps: [PrefixStep<S, C>; N],
}

#[derive(Debug)]
struct PrefixStep<S, C> {
    ipv4: u8,
    ipv6: u8,
    quota: Quota,
    /// The names of the policy, for both kinds of addresses.
    names: [Box<str>; 2],
    limiter: RateLimiter<S, C>,
}

impl<const N: usize> PrefixLimits<N> {
    /// Creates limits from steps: the leading bits of an IPv4 address, those of an IPv6 address, and the quota. The
    /// longest prefixes come first. Each step has a limiter of its own, [`RateLimiter::new`].
    ///
    /// # Errors
    /// If a length is more than 32 for IPv4 or 128 for IPv6, is longer than the one before it, or if a quota's rate is
    /// below that of the step before it.
    pub fn new(steps: [(u8, u8, Quota); N]) -> Result<Self, PrefixError> {
        Self::with(steps, RateLimiter::new)
    }
}

impl<const N: usize, S, C> PrefixLimits<N, S, C> {
    /// Does the same, with limiters of any algorithm, store and clock. `limiter` makes the limiter of a quota.
    ///
    /// # Errors
    /// Same as [`PrefixLimits::new`].
    ///
    /// # Examples
    /// ```
    /// use std::net::IpAddr;
    /// use tollgate::{Gcra, Keyed, Quota, RateLimiter};
    /// use tollgate_tower::PrefixLimits;
    ///
    /// let steps = [(32, 64, Quota::per_second(100)), (24, 48, Quota::per_second(1_000))];
    /// let limits: PrefixLimits<2, Keyed<IpAddr, Gcra>> =
    ///     PrefixLimits::with(steps, |quota| RateLimiter::builder(Gcra::new(quota)).keyed())?;
    /// # drop(limits);
    /// # Ok::<(), tollgate_tower::PrefixError>(())
    /// ```
    pub fn with(
        steps: [(u8, u8, Quota); N],
        mut limiter: impl FnMut(Quota) -> RateLimiter<S, C>,
    ) -> Result<Self, PrefixError> {
        let mut before: Option<(u8, u8, Quota)> = None;
        for (ipv4, ipv6, quota) in steps {
            let (most_ipv4, most_ipv6) = before.map_or((32, 128), |(ipv4, ipv6, _)| (ipv4, ipv6));
            PrefixError::check(ipv4, most_ipv4)?;
            PrefixError::check(ipv6, most_ipv6)?;
            let rate = |of: Quota, other: Quota| u128::from(of.limit()) * other.period().as_nanos();
            if before.is_some_and(|(_, _, before)| rate(quota, before) < rate(before, quota)) {
                return Err(PrefixError::lower(ipv6));
            }
            before = Some((ipv4, ipv6, quota));
        }
        let steps = steps.map(|(ipv4, ipv6, quota)| PrefixStep {
            ipv4,
            ipv6,
            quota,
            names: [format!("ipv4/{ipv4}").into(), format!("ipv6/{ipv6}").into()],
            limiter: limiter(quota),
        });
        Ok(Self { steps })
    }

    /// Returns the prefix of an address that each step counts. `address` is in the form of [`ipv4_or_ipv6`].
    fn keys(&self, address: IpAddr) -> [IpAddr; N] {
        from_fn(|at| address_prefix(address, self.steps[at].ipv4, self.steps[at].ipv6))
    }

    fn limits<'a>(&'a self, keys: &'a [IpAddr; N]) -> [BoundLimit<'a, S, C, IpAddr>; N]
    where
        S: ManyKeys,
        C: Clock,
    {
        from_fn(|at| self.steps[at].limiter.on(&keys[at]))
    }
}

/// The decision of [`PrefixLimits`]: one for each step.
pub struct PrefixRuling<const N: usize> {
    joint: JointDecision<[Decision; N]>,
    is_ipv6: bool,
}

impl<const N: usize> fmt::Debug for PrefixRuling<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PrefixRuling").field(&self.joint).finish()
    }
}

impl<const N: usize> Ruling for PrefixRuling<N> {
    #[inline]
    fn is_allowed(&self) -> bool {
        self.joint.is_allowed()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.joint.retry_after()
    }
}

impl<const N: usize, S, C> RequestLimit<IpAddr> for PrefixLimits<N, S, C>
where
    S: ManyKeys + Store<IpAddr> + Send + Sync + 'static,
    C: Clock + Send + Sync + 'static,
{
    type Ruling = PrefixRuling<N>;

    fn check(&self, key: &IpAddr, cost: u64) -> PrefixRuling<N> {
        let address = ipv4_or_ipv6(*key);
        let keys = self.keys(address);
        let joint = AllOf::new(self.limits(&keys).map(|limit| limit.cost(cost))).check();
        PrefixRuling { joint, is_ipv6: address.is_ipv6() }
    }

    fn refund(&self, key: &IpAddr, ruling: &PrefixRuling<N>) {
        let keys = self.keys(ipv4_or_ipv6(*key));
        AllOf::new(self.limits(&keys)).refund(&ruling.joint);
    }

    fn policies(&self, ruling: &PrefixRuling<N>, tell: &mut dyn FnMut(&[Policy<'_>])) {
        let each: [Policy<'_>; N] = from_fn(|at| {
            let PrefixStep { names, quota, .. } = &self.steps[at];
            Policy::new(&names[usize::from(ruling.is_ipv6)], quota, ruling.joint.each()[at])
        });
        tell(&each);
    }
}

impl ClientIp {
    /// Returns a layer that limits several prefixes of the client's address together. Each step of `limits` sets how many
    /// leading bits count, so [`ClientIp::ipv4_prefix`] and [`ClientIp::ipv6_prefix`] have no effect.
    ///
    /// # Examples
    /// ```
    /// use tollgate::Quota;
    /// use tollgate_tower::{ClientIp, PrefixLimits, Proxies};
    ///
    /// let limits = PrefixLimits::new([(32, 64, Quota::per_second(10)), (24, 48, Quota::per_second(50))])?;
    /// let layer = ClientIp::x_forwarded_for(Proxies::hops(1)).limit_prefixes(limits).fields_on_allowed(true);
    /// # drop(layer);
    /// # Ok::<(), tollgate_tower::PrefixError>(())
    /// ```
    #[must_use]
    pub fn limit_prefixes<const N: usize, S, C>(
        self,
        limits: PrefixLimits<N, S, C>,
    ) -> RateLimitLayer<PrefixLimits<N, S, C>, Self> {
        RateLimitLayer::new(limits, self.whole())
    }
}
