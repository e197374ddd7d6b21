//! How rules are made.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::Rules;
use super::check::Observers;
use super::error::RulesError;
use super::rule_set::RuleSet;
use crate::base::clock::{Clock, QuantaClock};
use crate::edge::rules::config::Config;
#[cfg(feature = "redis")]
use crate::edge::rules::counting::Server;
use crate::edge::rules::counting::{Hasher, Servers};
use crate::edge::rules::rule::Charging;
use crate::edge::telemetry::{RefusalLog, Reloads, TopDenied};
use crate::store::migrate::Published;

#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LoadOptions {
    pub(super) merge_domains: bool,
    pub(super) shadow: bool,
    pub(super) charging: Option<Charging>,
    pub(super) allow_removals: bool,
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
    pub(super) options: LoadOptions,
    pub(super) observers: Observers,
    pub(super) servers: Servers,
    pub(super) clock: C,
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
    /// Rules of the same [identity](crate::rules::Rule::identity) on one server are one, whichever process has them.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, server: impl Into<Server>) -> Self {
        self.servers.set(server.into());
        self
    }

    /// Whether rules with `store: redis` are counted in this process alone, without a server: for tests, and to look at what rules
    /// would have done. Default: no.
    pub fn alone(mut self, alone: bool) -> Self {
        self.servers.alone = alone;
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
        rules.loading().files = files;
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
            in_force: Published::new(RuleSet::empty(&hasher)),
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
