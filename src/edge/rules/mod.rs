//! Rules in the language of Envoy's rate limit service, which reload while requests are decided.
//!
//! ```
//! use tollgate::rules::{Descriptor, Rules};
//!
//! let rules = Rules::from_yaml("
//! domain: edge
//! descriptors:
//!   - key: remote_address
//!     rate_limit: { unit: second, requests_per_unit: 10 }
//!   - key: path
//!     value: /login
//!     descriptors:
//!       - key: remote_address
//!         rate_limit: { unit: minute, requests_per_unit: 5 }
//! ")?;
//! let answer = rules.check("edge", &[
//!     Descriptor::new(&[("remote_address", "192.0.2.1")]),
//!     Descriptor::new(&[("path", "/login"), ("remote_address", "192.0.2.1")]),
//! ]);
//! assert!(answer.is_allowed());
//! assert_eq!(answer.limits().map(|limit| limit.remaining()).collect::<Vec<_>>(), [9, 4]);
//! # Ok::<(), tollgate::rules::RulesError>(())
//! ```
//!
//! Rules count in fixed windows unless they name an algorithm, as Envoy's service does. Limiters that are made in code default to GCRA
//! ([`RateLimiter::new`](crate::RateLimiter::new)).
//!
//! [The guide](crate::guide::rules) has the language. A request that several rules apply to is charged to all of them or to none,
//! as by [`check_all`](crate::check_all), unless the file says `charging: count-first`.
//!
//! # How rules are replaced
//! ```text
//! Rules ──► Live n: trees, and for each rule the generation that counts for it
//!              │ a rule that is as before keeps its generation
//!              ▼ a rule whose numbers, algorithm or store changed: one that takes over what clients have used, by units
//!           Live n − 1
//! ```
//! All rules are published by one pointer, so a request is decided by the old ones or the new ones, never by some of each. Who has
//! charged looks afterwards whether the pointer has moved, and if what it charged does not count any more, gives it back and decides
//! anew: so no charge is lost, as with [`Adjustable`](crate::Adjustable) limiters, whose generations these are.

mod answer;
#[cfg(feature = "redis")]
mod awaited;
mod charge;
mod chosen;
mod config;
mod decide;
mod descriptors;
mod error;
mod in_use;
mod live;
mod load_report;
#[cfg(all(test, tollgate_loom))]
mod models;
mod overrides;
mod request;
#[cfg(feature = "redis")]
mod shared;
#[cfg(not(feature = "redis"))]
#[path = "unshared.rs"]
mod shared;
mod spec;
mod tree;
#[cfg(feature = "watch")]
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::answer::Decided;
pub use self::answer::{Answer, Applied, Code, Status, Verdict};
use self::chosen::Hasher;
pub use self::config::{Config, ConfigError, Domain, Problem};
use self::decide::{Asks, Observers};
pub use self::descriptors::{Added, Descriptors};
pub use self::error::RulesError;
use self::live::{Active, InForce, Live};
pub use self::load_report::{Change, ChangeKind, Difference, LoadReport};
pub use self::request::Descriptor;
use self::request::Key;
#[cfg(feature = "redis")]
pub use self::shared::Server;
use self::shared::Servers;
pub use self::spec::{Algorithm, Charging, Limit, Metric, Mode, OnFailure, Rule, Shared, Store, Unit};
#[cfg(feature = "watch")]
pub use self::watch::Watcher;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, QuantaClock, Timestamp};
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::{Loaded, fence_after_rmw};
use crate::edge::telemetry::{DeniedKey, MeterCounts, Reading, RefusalLog, ReloadCounts, Reloads, TopDenied};
use crate::store::migrate::Published;
use crate::store::op::Store as _;

/// Rules, and what their clients have used.
///
/// Shared by reference or in an `Arc`; every method takes `&self`. A check takes no lock.
///
/// # Consistency
/// Each request is decided by all rules of one load. What is charged is never lost in a reload; a request that is under way in one
/// may be charged twice, against the client: by rules that cannot give back (logs, sketches), by those that count first, and if the
/// charge was carried over before it could be given back.
///
/// # Examples
/// ```
/// use tollgate::rules::{Config, Descriptor, Rules};
///
/// let text = |limit| format!("domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: day, requests_per_unit: {limit} }}");
/// let rules = Rules::from_yaml(&text(2))?;
/// let ask = || rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
/// assert!(ask().is_allowed() && ask().is_allowed() && ask().is_denied());
///
/// rules.replace([Config::from_yaml("rules", &text(3))?])?; // two are used still
/// assert!(ask().is_allowed() && ask().is_denied());
/// assert!(rules.replace([Config::from_yaml("rules", &text(4))?]).is_ok());
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
pub struct Rules<C = QuantaClock> {
    live: Published<Live>,
    /// One load at a time. Checks never take it.
    loading: Mutex<Loading>,
    options: Options,
    hasher: Hasher,
    clock: C,
    reloads: Reloads,
    observers: Observers,
    servers: Servers,
}

#[derive(Debug, Default)]
struct Loading {
    files: Vec<PathBuf>,
    /// What the files were when they were read last.
    #[cfg(feature = "watch")]
    seen: Vec<Option<u64>>,
    last_error: Option<RulesError>,
    /// Domains that layers were made for.
    required: Vec<Box<str>>,
}

#[derive(Copy, Clone, Debug, Default)]
struct Options {
    merge_domains: bool,
    shadow: bool,
    charging: Option<Charging>,
    allow_removals: bool,
}

/// Sets what is optional about rules; made by [`Rules::builder`].
///
/// # Examples
/// ```
/// use tollgate::rules::{Config, Descriptor, Rules};
///
/// let config = Config::from_yaml("rules", "
/// domain: shop
/// descriptors:
///   - key: user
///     rate_limit: { unit: day, requests_per_unit: 1 }
/// ")?;
/// let dry_run = Rules::builder().shadow(true).load([config])?;
/// let ask = || dry_run.check("shop", &[Descriptor::new(&[("user", "alice")])]);
/// assert!(ask().is_allowed());
/// assert!(ask().is_shadow_denied() && ask().is_allowed());
/// # Ok::<(), tollgate::rules::RulesError>(())
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until rules are loaded"]
pub struct RulesBuilder<C = ()> {
    options: Options,
    observers: Observers,
    servers: Servers,
    clock: C,
}

impl Rules {
    /// Rules by the default clock, from YAML.
    ///
    /// # Errors
    /// If the text is not what the [language](crate::guide::rules) says: with all that is wrong, by line.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        Self::builder().load([Config::from_yaml("rules", text)?])
    }

    /// Rules by the default clock, from a YAML, JSON or TOML file, by its extension.
    ///
    /// # Errors
    /// If the file cannot be read, or is not what the [language](crate::guide::rules) says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Self::builder().read([path])
    }

    /// Rules with another clock, from several files, or for a dry run.
    pub fn builder() -> RulesBuilder {
        RulesBuilder {
            options: Options::default(),
            observers: Observers::default(),
            servers: Servers::default(),
            clock: (),
        }
    }
}

impl<C> RulesBuilder<C> {
    /// The clock. Default: [`QuantaClock`]. It should tell the time since the Unix epoch, as ours do, for windows to be those of
    /// the calendar.
    pub fn clock<D>(self, clock: D) -> RulesBuilder<D> {
        let Self { options, observers, servers, clock: _ } = self;
        RulesBuilder { options, observers, servers, clock }
    }

    /// Whether several files may have rules of one domain. Default: no, that is an error.
    pub fn merge_domains(mut self, merge: bool) -> Self {
        self.options.merge_domains = merge;
        self
    }

    /// Whether a load may remove a domain that is in use, or leave it without any rule; its requests are then limited by nothing.
    /// Default: no, such a load fails, and the rules stay. A domain is in use once a layer was made for it,
    /// [`Rules::require_domain`] was called, or a request has asked it.
    pub fn allow_removals(mut self, allow: bool) -> Self {
        self.options.allow_removals = allow;
        self
    }

    /// What is charged for requests that are refused, whatever the files say. Default: as each file says, and
    /// [`Charging::AllOrNothing`] if it says nothing.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.options.charging = Some(charging);
        self
    }

    /// Keeps the keys that are refused most, for [`Rules::top_denied`]. Default: none are.
    pub fn top_denied(mut self, top: TopDenied) -> Self {
        self.observers.top = Some(top);
        self
    }

    /// How refusals are logged, with feature `tracing`. Default: at the level DEBUG, without keys.
    pub fn log(mut self, log: RefusalLog) -> Self {
        self.observers.log = log;
        self
    }

    /// The server in which rules with `store: redis` are counted: a [`Client`](crate::edge::redis::Client) for async code, a
    /// [`BlockingClient`](crate::edge::redis::BlockingClient) for threads that may wait, or an [`InProcess`](crate::edge::redis::InProcess), which
    /// models one for tests. Default: none, and such rules are refused.
    ///
    /// Rules of the same [identity](Rule::identity) on one server are one, whichever process has them.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, server: impl Into<Server>) -> Self {
        self.servers.set(server.into());
        self
    }

    /// Whether rules with `store: redis` are counted in this process alone, without a server: for tests, and to look at what rules
    /// would have done. Default: no.
    pub fn alone(mut self, alone: bool) -> Self {
        self.servers.set_alone(alone);
        self
    }

    /// Whether to refuse nothing at all, and only report: a dry run of everything. Default: no.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }
}

impl RulesBuilder {
    /// Loads rules from files, which [`Rules::reload`] reads again.
    ///
    /// # Errors
    /// As [`Rules::read`].
    pub fn read<P: AsRef<Path>>(self, files: impl IntoIterator<Item = P>) -> Result<Rules, RulesError> {
        self.clock(QuantaClock::new()).read(files)
    }

    /// Loads rules that have been read.
    ///
    /// # Errors
    /// If two files have rules of one domain, or there is no memory for a rule's store.
    pub fn load(self, configs: impl IntoIterator<Item = Config>) -> Result<Rules, RulesError> {
        self.clock(QuantaClock::new()).load(configs)
    }
}

impl<C: Clock> RulesBuilder<C> {
    /// Loads rules from files, which [`Rules::reload`] reads again.
    ///
    /// # Errors
    /// As [`Rules::read`].
    pub fn read<P: AsRef<Path>>(self, files: impl IntoIterator<Item = P>) -> Result<Rules<C>, RulesError> {
        let files: Vec<PathBuf> = files.into_iter().map(|file| file.as_ref().to_owned()).collect();
        let rules = self.build();
        rules.loading.lock().unwrap_or_else(PoisonError::into_inner).files = files;
        rules.reload()?;
        Ok(rules)
    }

    /// Loads rules that have been read.
    ///
    /// # Errors
    /// If two files have rules of one domain, or there is no memory for a rule's store.
    pub fn load(self, configs: impl IntoIterator<Item = Config>) -> Result<Rules<C>, RulesError> {
        let rules = self.build();
        rules.replace(configs)?;
        Ok(rules)
    }

    fn build(self) -> Rules<C> {
        let hasher = Hasher::new();
        Rules {
            live: Published::new(Live::empty(&hasher)),
            loading: Mutex::default(),
            options: self.options,
            hasher,
            clock: self.clock,
            reloads: Reloads::new(),
            observers: self.observers,
            servers: self.servers,
        }
    }
}

impl<C: Clock> Rules<C> {
    /// Decides a request that says this of itself, and charges it: to all rules that apply, or none.
    ///
    /// A domain without rules allows, as do descriptors that no rule applies to. Call [`Rules::require_domain`] once, so that the domain is there and
    /// stays.
    ///
    /// # Rules that are shared
    /// This never waits for an async client. **A rule with `store: redis, mode: atomic` is then not asked**: it decides by its
    /// `on_failure`, as if the server were gone, and is counted so. Rules of the other modes decide by what this process holds.
    /// Use `check_async` for them; with a blocking client this waits. See [the guide](crate::guide::rules).
    ///
    /// # Complexity
    /// For each descriptor a search by its entries (constant but for wildcards that begin with `*`), and for each rule that
    /// applies a check of its store. Never allocates for up to two rules that count by one value each. Takes no lock.
    #[must_use = "an answer that nobody reads limits nothing"]
    pub fn check(&self, domain: &str, descriptors: &[Descriptor<'_>]) -> Answer {
        self.check_n(domain, descriptors, 1)
    }

    /// [`Rules::check`] of a request that costs `hits`, where its descriptors do not say otherwise; 0 only looks. (A server of
    /// Envoy's protocol has to say 1 where a request's `hits_addend` is 0, and 0 where a descriptor's is.)
    #[must_use = "an answer that nobody reads limits nothing"]
    pub fn check_n(&self, domain: &str, descriptors: &[Descriptor<'_>], hits: u64) -> Answer {
        self.decide(domain, descriptors, hits, CheckTime::read(&self.clock))
    }

    /// [`Rules::check_n`] at a time that the caller says. If rules are loaded in between, use [`Rules::replace_at`].
    #[must_use = "an answer that nobody reads limits nothing"]
    pub fn check_at(
        &self,
        domain: &str,
        descriptors: &[Descriptor<'_>],
        hits: u64,
        now: Timestamp,
    ) -> Answer {
        self.decide(domain, descriptors, hits, CheckTime::given(now))
    }

    fn decide(&self, name: &str, descriptors: &[Descriptor<'_>], hits: u64, when: CheckTime) -> Answer {
        loop {
            let live = self.live.load();
            let Some((place, domain)) = live.domain(name) else {
                return self.unknown(live);
            };
            let mut asks = Asks::default();
            asks.find(domain, descriptors, hits, when.ns(), &self.hasher);
            let outcome = domain.timer.time(|| asks.decide(domain.charging, when));
            if asks.charged() {
                fence_after_rmw();
                if asks.missed_twin(domain)
                    || (!self.live.is_present(&live)
                        && !asks.still_count_in(self.live.load().domain(name).map(|(_, domain)| domain)))
                {
                    asks.undo(when);
                    continue;
                }
            }
            let ((outcome, shadow, quotas_refuse), wait_besides) =
                self.come_of(domain, &mut asks, outcome, descriptors, when);
            let decided = asks.said();
            let domain = Some(place);
            return Answer { live, domain, outcome, shadow, quotas_refuse, wait_besides, decided };
        }
    }

    /// What came of a request, which is told: its outcome, whether that is a dry run, and whether all quotas refuse; and how long those
    /// that admitted and counted it all the same would refuse it now.
    #[inline]
    fn come_of(
        &self,
        domain: &InForce,
        asks: &mut Asks<'_>,
        outcome: Outcome,
        descriptors: &[Descriptor<'_>],
        when: CheckTime,
    ) -> ((Outcome, bool, bool), Duration) {
        let shadow = self.options.shadow || domain.shadow;
        let came_of_it = (outcome, shadow, asks.all_quotas_refuse());
        asks.report(domain, descriptors, came_of_it, &self.observers);
        let wait_besides = match (domain.charging, outcome) {
            (Charging::CountFirst, Outcome::Denied) => asks.wait_besides(when),
            _ => Duration::ZERO,
        };
        (came_of_it, wait_besides)
    }

    /// The answer to a request of a domain without rules.
    fn unknown(&self, live: Loaded<Live>) -> Answer {
        self.reloads.unknown_domain();
        Answer {
            live,
            domain: None,
            outcome: Outcome::Allowed,
            shadow: self.options.shadow,
            quotas_refuse: false,
            wait_besides: Duration::ZERO,
            decided: smallvec::SmallVec::new(),
        }
    }

    /// Takes back what an answer has charged, as far as that is possible: as [`refund_all`](crate::refund_all). The descriptors are
    /// those of the request. Nothing is given back by rules that count first, nor by those that have changed since.
    ///
    /// A shared rule of the mode `atomic` gives back only through a `BlockingClient`, which waits, or
    /// by `refund_async`.
    pub fn refund(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        self.refund_local(descriptors, answer);
        let Some(domain) = self.refundable(answer) else { return };
        let live = self.live.load();
        let now = live.domain(&domain.name).map(|(_, domain)| domain);
        for (descriptor, active, decided, charge) in charges(domain, descriptors, answer) {
            if let Some(shared) = active.shared().filter(|_| active.counts_in(now)) {
                let key = Key::of(&domain.name, descriptor, active);
                shared.limiter.refund(key.as_str(), charge, decided.by);
            }
        }
    }

    /// The domain in which an answer's charges can be taken back.
    fn refundable<'a>(&self, answer: &'a Answer) -> Option<&'a InForce> {
        let domain = answer.live.domain_at(answer.domain?)?;
        let refunds = domain.charging != Charging::CountFirst && answer.outcome == Outcome::Allowed;
        refunds.then_some(domain)
    }

    /// What was charged in this process.
    fn refund_local(&self, descriptors: &[Descriptor<'_>], answer: &Answer) {
        let Some(domain) = self.refundable(answer) else { return };
        let when = CheckTime::read(&self.clock);
        let live = self.live.load();
        let now = live.domain(&domain.name).map(|(_, domain)| domain);
        for (descriptor, active, _, charge) in charges(domain, descriptors, answer) {
            if let Some(limiter) = active.limiter()
                && (descriptor.own_limit().is_some() || active.counts_in(now))
            {
                let key = Key::of(&domain.name, descriptor, active);
                limiter.generation.store().refund(key.as_str(), when, charge, charge.charged());
            }
        }
    }

    /// Reads the files again and puts their rules in force; clients keep what they have used under rules that stay.
    ///
    /// A rule stays if its keys and values do, whatever becomes of its numbers. If those change, or its algorithm or store, what
    /// clients have used stays used, unit for unit, also beyond a lower limit; it is paid as the new algorithm says, windows
    /// at their end. A client may be ahead of the new rule by what it used under the old one, and by nothing else.
    ///
    /// What is used beyond a lower limit is cut to what the new store holds. A sliding log, which keeps a time for each unit, holds four
    /// times its limit or 1,024 units, whichever is more, but no more than [its largest limit](crate::SlidingLog::MAX_LIMIT). Where no
    /// word of the new algorithm or store holds the higher limit, it holds the lower one, and all beyond that is forgotten.
    ///
    /// What a sketch has counted stays if the windows do and its counters have room for the new limit, and begins anew else. So does
    /// what a rule has counted whose `share_threshold` is switched.
    ///
    /// # Memory
    /// A rule that changed keeps its old states, from which keys are taken over as they come, until it changes again.
    ///
    /// Says what has changed.
    ///
    /// # Errors
    /// If a file cannot be read or is wrong; if a domain that is [in use](RulesBuilder::allow_removals) would be removed or left
    /// without any rule; if these rules were not read from files. Then nothing is changed, and the failure is counted.
    pub fn reload(&self) -> Result<LoadReport, RulesError> {
        self.load(|loading| {
            if loading.files.is_empty() {
                return Err(RulesError::no_source());
            }
            // Before they are read, so that a change between the two is one more load, and never one too few.
            #[cfg(feature = "watch")]
            {
                loading.seen = watch::seen(&loading.files);
            }
            Ok(ConfigError::of_all(loading.files.iter().map(Config::read))?)
        })
    }

    /// Puts other rules in force, as [`Rules::reload`] does those of its files.
    ///
    /// # Errors
    /// As [`Rules::reload`].
    pub fn replace(&self, configs: impl IntoIterator<Item = Config>) -> Result<LoadReport, RulesError> {
        self.load(|_| Ok(configs.into_iter().collect()))
    }

    /// [`Rules::replace`] as of a time that the caller says: for requests whose times are [given](Rules::check_at). What those have
    /// used is looked up as of then.
    ///
    /// # Errors
    /// As [`Rules::reload`].
    pub fn replace_at(
        &self,
        configs: impl IntoIterator<Item = Config>,
        now: Timestamp,
    ) -> Result<LoadReport, RulesError> {
        self.load_at(|| CheckTime::given(now), |_| Ok(configs.into_iter().collect()))
    }

    fn load(
        &self,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        self.load_at(|| CheckTime::read(&self.clock), read)
    }

    fn load_at(
        &self,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        let mut loading = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let last = self.live.load();
        let next = read(&mut loading).and_then(|configs| {
            let hash = Config::hash_of(&configs);
            let removals = self.refused_removals(&last, &loading, &configs);
            let domains = Domain::merge(configs, self.options.merge_domains)?;
            if !removals.is_empty() {
                return Err(ConfigError::of(removals).into());
            }
            let next = last.after(domains, self.options.charging, (&self.hasher, &self.servers), now)?;
            Ok((next, hash))
        });
        match next {
            Ok((next, hash)) => {
                let rules = next.domains().map(|domain| domain.rules().len()).sum::<usize>();
                let report = LoadReport::between(&last, &next);
                self.live.publish(Arc::new(next));
                self.reloads.loaded_from(u32::try_from(rules).unwrap_or(u32::MAX), hash);
                loading.last_error = None;
                Ok(report)
            }
            Err(error) => {
                self.reloads.failed(&error);
                loading.last_error = Some(error.clone());
                Err(error)
            }
        }
    }

    /// How loads went, the first included.
    #[must_use]
    pub fn reloads(&self) -> ReloadCounts {
        self.reloads.counts()
    }

    /// Why the last load failed; `None` if it succeeded.
    #[must_use]
    pub fn last_error(&self) -> Option<RulesError> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner).last_error.clone()
    }

    /// The keys that were refused most, and by which rule, if they are [kept](RulesBuilder::top_denied).
    #[must_use]
    pub fn top_denied(&self, most: usize) -> Vec<DeniedKey> {
        self.observers.top.as_ref().map(|top| top.top(most)).unwrap_or_default()
    }

    /// The clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// Calls `visit` with the name of each domain, each rule in force, and what was counted of it since it came in force: a rule
    /// that stays in a reload goes on counting.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("{ domain: edge, descriptors: [ { key: a, rate_limit: { unit: hour, requests_per_unit: 1 } } ] }")?;
    /// for _ in 0..3 {
    ///     let _ = rules.check("edge", &[Descriptor::new(&[("a", "x")])]);
    /// }
    /// rules.for_each(|domain, rule, counts| {
    ///     assert_eq!((domain, &*rule.name, counts.allowed, counts.denied), ("edge", "edge.a", 1, 2));
    /// });
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn for_each(&self, mut visit: impl FnMut(&str, &Rule, MeterCounts)) {
        for domain in self.live.load().domains() {
            for active in domain.rules() {
                visit(&domain.name, &active.rule, active.meters.counts());
            }
        }
    }

    /// Calls `visit` with the domain and the name of each rule and what its store says of itself: keys, evictions, how full it is. For gauges, when
    /// they are scraped; with feature `metrics`, `telemetry::publish_rules` does that.
    ///
    /// # Complexity
    /// O(slots) of all compact stores.
    pub fn readings(&self, mut visit: impl FnMut(&str, &str, &[Reading])) {
        let now_ns = self.clock.now().as_nanos();
        for domain in self.live.load().domains() {
            for active in domain.rules() {
                if let Some(limiter) = active.limiter() {
                    visit(&domain.name, &active.rule.name, &limiter.generation.store().readings(now_ns));
                } else if let Some(shared) = active.shared() {
                    visit(&domain.name, &active.rule.name, &shared.limiter.readings());
                }
            }
        }
    }
}

/// The rules that an answer has charged, each with its descriptor and what it was charged.
fn charges<'a>(
    domain: &'a InForce,
    descriptors: &'a [Descriptor<'a>],
    answer: &'a Answer,
) -> impl Iterator<Item = (&'a Descriptor<'a>, &'a Active, &'a Decided, &'a Decision)> {
    answer.decided.iter().filter_map(move |decided| {
        let charge = decided.decision.as_ref().filter(|charge| charge.charged() > 0)?;
        let descriptor = descriptors.get(decided.descriptor as usize)?;
        Some((descriptor, domain.active(decided.rule)?, decided, charge))
    })
}

impl<C> std::fmt::Debug for Rules<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the rules themselves, whose values may be customers' names and keys.
        let live = self.live.load();
        let domains: Vec<(&str, usize)> =
            live.domains().map(|domain| (&*domain.name, domain.rules().len())).collect();
        f.debug_struct("Rules").field("rules_by_domain", &domains).finish_non_exhaustive()
    }
}
