//! The builder of rules.

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
use crate::edge::telemetry::{DenialLog, Reloads, TopDenied};
use crate::store::migrate::Published;

#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LoadOptions {
    pub(super) merge_domains: bool,
    pub(super) shadow: bool,
    pub(super) charging: Option<Charging>,
    pub(super) allow_removals: bool,
}

/// Sets the options of rules. Created by [`Rules::builder`].
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
    /// Sets the clock. Default: [`QuantaClock`]. For windows to follow the calendar, the clock must return the time
    /// since the Unix epoch, as the clocks of this crate do.
    pub fn clock<D>(self, clock: D) -> RulesBuilder<D> {
        let Self { options, observers, servers, clock: _ } = self;
        RulesBuilder { options, observers, servers, clock }
    }

    /// Sets whether several files may have rules of one domain. Default: no, this is an error.
    pub fn merge_domains(mut self, merge: bool) -> Self {
        self.options.merge_domains = merge;
        self
    }

    /// Sets whether a load may remove a domain that is in use, or all its rules. The requests of such a domain would be
    /// unlimited. Default: no. Such a load fails, and the previous rules stay. A domain is in use after a layer was
    /// created for it, after a call of [`Rules::require_domain`], or after its first request.
    pub fn allow_removals(mut self, allow: bool) -> Self {
        self.options.allow_removals = allow;
        self
    }

    /// Sets whether denied requests are charged, and overrides the files. Default: the setting of each file, or
    /// [`Charging::AllOrNothing`] if a file has none.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.options.charging = Some(charging);
        self
    }

    /// Keeps the most-denied keys for [`Rules::top_denied`]. Default: they are not kept.
    pub fn top_denied(mut self, top: TopDenied) -> Self {
        self.observers.top = Some(top);
        self
    }

    /// Sets how denials are logged, with the feature `tracing`. Default: at the level DEBUG, without keys.
    pub fn log(mut self, log: DenialLog) -> Self {
        self.observers.log = log;
        self
    }

    /// Sets the server that counts rules with `store: redis`. Default: none, and such rules are rejected. The server
    /// can be:
    ///
    /// - a [`Client`](crate::edge::redis::Client) for async code,
    /// - a [`BlockingClient`](crate::edge::redis::BlockingClient) for threads that may wait,
    /// - an [`InProcess`](crate::edge::redis::InProcess), a model of a server for tests.
    ///
    /// Rules with the same [identity](crate::rules::Rule::identity) on one server share their counters, in all
    /// processes.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, server: impl Into<Server>) -> Self {
        self.servers.set(server.into());
        self
    }

    /// Sets whether rules with `store: redis` are counted in this process alone, without a server. Use it for tests, or
    /// to find out what rules would have done. Default: no.
    pub fn alone(mut self, alone: bool) -> Self {
        self.servers.alone = alone;
        self
    }

    /// Sets whether all rules only report and deny nothing: a dry run. Default: no.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }
}

impl RulesBuilder {
    /// Loads rules from files, which [`Rules::reload`] reads again.
    ///
    /// # Errors
    /// Same as [`Rules::read`].
    pub fn read<P: AsRef<Path>>(self, files: impl IntoIterator<Item = P>) -> Result<Rules, RulesError> {
        self.clock(QuantaClock::new()).read(files)
    }

    /// Loads rules from configurations that are already read.
    ///
    /// # Errors
    /// If two files have rules of one domain, or if there is not enough memory for a rule's store.
    pub fn load(self, configs: impl IntoIterator<Item = Config>) -> Result<Rules, RulesError> {
        self.clock(QuantaClock::new()).load(configs)
    }
}

impl<C: Clock> RulesBuilder<C> {
    /// Loads rules from files, which [`Rules::reload`] reads again.
    ///
    /// # Errors
    /// Same as [`Rules::read`].
    pub fn read<P: AsRef<Path>>(self, files: impl IntoIterator<Item = P>) -> Result<Rules<C>, RulesError> {
        let files: Vec<PathBuf> = files.into_iter().map(|file| file.as_ref().to_owned()).collect();
        let rules = self.build();
        rules.loading().files = files;
        rules.reload()?;
        Ok(rules)
    }

    /// Loads rules from configurations that are already read.
    ///
    /// # Errors
    /// If two files have rules of one domain, or if there is not enough memory for a rule's store.
    pub fn load(self, configs: impl IntoIterator<Item = Config>) -> Result<Rules<C>, RulesError> {
        let rules = self.build();
        rules.replace(configs)?;
        Ok(rules)
    }

    /// Creates rules without any domain.
    pub(in crate::edge::rules) fn build(self) -> Rules<C> {
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
