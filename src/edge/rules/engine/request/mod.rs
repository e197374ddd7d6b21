//! Requests: what the rules decide, charge, settle and refund.
//!
//! [`route`] decides one request. [`plain`] is its short form for requests that most services have.

mod answer;
mod check;
mod count_denials;
mod counted_by;
mod decided;
mod hold_check;
mod holds;
mod plain;
mod refund;
mod report;
mod route;
mod rule_check;
#[cfg(feature = "redis")]
mod waiting;
mod without_rule;

pub use self::answer::{Answer, Applied, Verdict};
pub(super) use self::check::{HoldUse, Request, RequestCheck};
pub(super) use self::counted_by::CountedBy;
pub(super) use self::decided::{Decided, Few};
pub(super) use self::refund::refund_in_use;
#[cfg(all(test, tollgate_loom))]
pub(super) use self::route::{Here, Route};
pub(super) use self::rule_check::RuleCheck;

use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::edge::rules::engine::state::{DomainId, Rules};
use crate::edge::rules::matching::Descriptor;
use crate::limiter::At;

impl<C: Clock> Rules<C> {
    /// Decides a request with these descriptors. Charges all rules that apply, or none.
    ///
    /// A request is admitted if its domain has no rules, or if no rule applies to its descriptors. Call
    /// [`Rules::require_domain`] once to make sure that the domain exists and that no reload removes it.
    ///
    /// # Shared rules
    /// With an async client, this method never waits. **A rule with `store: redis, mode: atomic` is then not asked**:
    /// it decides by its `on_failure`, as if the server did not answer, and its metrics count it so. Rules in the other
    /// modes decide from the units that this process holds. Use `check_async` for `atomic` rules; with a blocking
    /// client, this method waits for them. See [the guide](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    ///
    /// # Complexity
    /// One search for each descriptor by its entries, and one check of a store for each rule that applies. The search
    /// takes constant time, except for wildcards that begin with `*`. Never allocates for up to two rules that count by
    /// one value each. Takes no lock.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.decide_by_name(domain, descriptors, 1, CheckTime::read(&self.clock))
    }

    /// Does what [`Rules::check`] does for a request that costs `hits`, unless its descriptors set a cost. A cost of 0
    /// only peeks. (A server of Envoy's protocol must pass 1 if a request's `hits_addend` is 0, but 0 if a descriptor's
    /// `hits_addend` is 0.)
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide_by_name(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// Returns these rules at a time that the caller gives, to check requests and to replace rules.
    #[inline(always)]
    pub const fn at(&self, now: Timestamp) -> At<'_, Self> {
        At::new(self, now)
    }

    #[inline(always)]
    fn decide_by_name(
        &self,
        name: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        when: CheckTime,
    ) -> Answer {
        self.decide(self.in_force.load(), DomainId::Name(name), descriptors, hits, when)
    }
}

impl<C: Clock> At<'_, Rules<C>> {
    /// [`Rules::check`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check(self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n(domain, descriptors, 1)
    }

    /// [`Rules::check_n`] at this time.
    #[must_use = "the rules limit nothing unless the caller obeys the answer"]
    pub fn check_n(self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.limiter.decide_by_name(domain, descriptors, hits, CheckTime::given(self.now))
    }
}
