//! The builder of rules.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tollgate::IntoClock;
use tollgate::internals::migrate::Published;
use tollgate::telemetry::{DenialLog, NearLimit, TopDenied};
use tollgate_config::{Charging, Config};

use crate::counting::{Servers, SharedStore};
use crate::engine::state::{
    LoadOptions, Loading, Observers, OnceFlag, Restoring, RuleSet, Rules, RulesError, RulesSnapshot,
    WithoutRule, hasher_of, new_seeds,
};
use crate::telemetry::Reloads;

/// Sets the options of rules. Created by [`Rules::builder`].
///
/// # Examples
/// ```
/// use tollgate_rules::{Config, Descriptor, Rules};
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
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until rules are loaded"]
pub struct RulesBuilder<C = ()> {
    pub(super) options: LoadOptions,
    pub(super) observers: Observers,
    pub(super) servers: Servers,
    pub(super) clock: C,
    pub(super) snapshot: Option<RulesSnapshot>,
}

impl Rules {
    /// Creates rules from YAML, with the default clock.
    ///
    /// # Errors
    /// If the text does not follow the
    /// [language](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    /// The error lists all problems by line.
    pub fn from_yaml(text: &str) -> Result<Self, RulesError> {
        Self::builder().load([Config::from_yaml("rules", text)?])
    }

    /// Reads rules from a YAML, JSON or TOML file, with the default clock. The file's extension selects the format. A
    /// path may be a [folder](RulesBuilder::read).
    ///
    /// # Errors
    /// If the file cannot be read, or does not follow the
    /// [language](https://docs.rs/crate/tollgate/latest/source/docs/rules.md).
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RulesError> {
        Self::builder().read([path])
    }

    /// Returns a builder, for another clock, several files, a dry run and other options.
    pub fn builder() -> RulesBuilder {
        RulesBuilder::default()
    }
}

impl<C> RulesBuilder<C> {
    /// Sets the clock. Default: [`DefaultClock`](tollgate::DefaultClock). For windows to follow the calendar, the clock must return the time
    /// since the Unix epoch, as the clocks of this crate do.
    pub fn clock<D>(self, clock: D) -> RulesBuilder<D> {
        let Self { options, observers, servers, clock: _, snapshot } = self;
        RulesBuilder { options, observers, servers, clock, snapshot }
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

    /// Sets whether a load may remove a domain that is in use if all of the domain's files are gone: the operator has
    /// deleted them. Default: no. [`ReloadCounts::removed_domains`](crate::telemetry::ReloadCounts::removed_domains)
    /// counts such removals, and with the feature `tracing` each one is logged as a warning.
    ///
    /// A load still fails in these cases, because they are probably mistakes:
    ///
    /// - A file of the domain is still there, but has another domain or no rules.
    /// - [`Rules::require_domain`] was called for the domain, or a layer was created for it.
    pub fn allow_file_removals(mut self, allow: bool) -> Self {
        self.options.allow_file_removals = allow;
        self
    }

    /// Sets whether [`read`](Self::read) succeeds if the first load fails, or if the folders have no files. Default: no,
    /// because a wrong path would mean that there are no limits. [`Rules::last_error`] has the error, and
    /// [`ReloadCounts::successes`](crate::telemetry::ReloadCounts::successes) is 0 until a load succeeds. Until then,
    /// all requests are admitted, so the caller should ask for this number first.
    pub fn start_without_rules(mut self, allow: bool) -> Self {
        self.options.start_without_rules = allow;
        self
    }

    /// Sets what happens to a request to which no rule applies, in a layer and in the program's own calls. Default: it is
    /// admitted, without a word.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Descriptor, Rules, WithoutRule};
    ///
    /// let text = "{ domain: shop, descriptors: [ { key: user, rate_limit: { unit: day, requests_per_unit: 100 } } ] }";
    /// let config = Config::from_yaml("limits.yaml", text)?;
    /// let rules = Rules::builder().without_rule(WithoutRule::Deny).load([config])?;
    /// assert!(rules.check("shop", &[Descriptor::new(&[("user", "alice")])]).is_allowed());
    /// assert!(rules.check("shop", &[Descriptor::new(&[("usr", "alice")])]).is_denied());
    /// assert!(rules.check("shopp", &[Descriptor::new(&[("user", "alice")])]).is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn without_rule(mut self, action: WithoutRule) -> Self {
        self.options.without_rule = action;
        self
    }

    /// Sets whether denied requests are charged, and overrides the files. Default: the setting of each file, or
    /// [`default_charging`](Self::default_charging) if a file has none.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.options.charging = Some(charging);
        self
    }

    /// Sets whether denied requests are charged, for files that do not set `charging`. Default:
    /// [`Charging::AllOrNothing`].
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Charging, Config, Descriptor, Rules};
    ///
    /// const FILE: &str = "
    /// domain: gateway
    /// descriptors: [{ key: model, rate_limit: { unit: hour, requests_per_unit: 100 } }]
    /// ";
    /// let config = Config::from_yaml("limits.yaml", FILE)?;
    /// let rules = Rules::builder().default_charging(Charging::CountDenials).load([config])?;
    /// let tokens = |used| rules.check_n("gateway", &[Descriptor::new(&[("model", "large")])], used);
    /// assert!(tokens(0).is_allowed() && tokens(60).is_allowed());
    /// assert!(tokens(0).is_allowed() && tokens(60).is_denied()); // the report of 120 in total stays counted
    /// assert!(tokens(0).is_denied());
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    pub fn default_charging(mut self, charging: Charging) -> Self {
        self.options.default_charging = charging;
        self
    }

    /// Sets the share of a limit above which admitted units count as near it, in
    /// [`MeterCounts::near_limit`](tollgate::telemetry::MeterCounts::near_limit). Default: four fifths.
    pub fn near_limit(mut self, near: NearLimit) -> Self {
        self.options.near_limit = near;
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

    /// Sets the store that counts rules with `store: redis`. Default: none, and such rules are rejected. With the
    /// package `tollgate-redis` and its feature `rules`, the store can be:
    ///
    /// - a `tollgate_redis::Client` for async code,
    /// - a `tollgate_redis::Blocking<Client>` for threads that may wait,
    /// - a `tollgate_redis::InProcess`, a model of a server for tests.
    ///
    /// A program can also bring [a store of its own](SharedStore). Rules with the same
    /// [identity](crate::Rule::identity) in one store share their counters, in all processes.
    pub fn shared(mut self, store: impl SharedStore) -> Self {
        self.servers.set(store);
        self
    }

    /// Sets the prefix of the keys that count rules with `store: redis`. Default: `tollgate`. Processes share counters only
    /// if they have the same prefix. `tollgate_redis::LimiterBuilder::prefix` says how Redis writes it.
    pub fn shared_prefix(mut self, prefix: &str) -> Self {
        self.servers.prefix = Some(prefix.into());
        self
    }

    /// Sets whether rules with `store: redis` are counted in this process alone, without a server. Use it for tests, or
    /// to find out what rules would have done. Default: no.
    pub fn alone(mut self, alone: bool) -> Self {
        self.servers.alone = alone;
        self
    }

    /// Sets whether requests can [hold](Rules::hold) units of every rule that can give units back, for at most ten
    /// minutes, also if its `rate_limit` has no `hold`. Default: no. Logs, sketches, `store: redis` and
    /// `charging: count-first` cannot. Checks of one or two rules take longer with this option.
    pub fn hold_all(mut self, hold: bool) -> Self {
        self.options.hold_all = hold;
        self
    }

    /// Sets whether loads and watchers keep the rules that they replace, until the program calls [`Rules::free_replaced`].
    /// Default: no. Use it if rules are loaded by a thread of low priority: many allocators free memory under a lock of the
    /// thread that allocated it. Here, that is a thread that checks. It would wait while a thread of low priority holds the
    /// lock and has no core.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Rules};
    ///
    /// let config = |limit| {
    ///     let rule = format!("{{ key: user, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}");
    ///     Config::from_yaml("limits.yaml", &format!("{{ domain: shop, descriptors: [ {rule} ] }}"))
    /// };
    /// let rules = Rules::builder().keep_replaced(true).load([config(100)?])?;
    /// rules.replace([config(200)?])?;
    /// let some_are_left = rules.free_replaced(); // another thread can do this
    /// assert!(!some_are_left);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep_replaced(mut self, keep: bool) -> Self {
        self.options.keep_replaced = keep;
        self
    }

    /// Restores what [`Rules::snapshot`] has saved in an earlier process. The first load with rules takes the usage over, as
    /// if it were a [reload](Rules::reload) of the rules of the snapshot:
    ///
    /// - A rule with the same [identity](crate::Rule::identity) and numbers continues exactly.
    /// - A rule with other numbers takes the usage over. If its calendar changed, it starts without usage.
    /// - The usage of other rules is dropped, and a new rule starts without usage.
    ///
    /// No request can be decided before, so no usage since the start is lost. [`Rules::restored`] returns what was taken over.
    ///
    /// # Time
    /// Debts are paid for the time since the snapshot, by the clock of the system. If the clock is now behind the time of the
    /// snapshot, no time counts as passed: all debts and holds continue from the present time.
    ///
    /// # Secrets
    /// The rules also take over the seeds of the hashes of keys, so the snapshot must come from a place that no client can
    /// read or write.
    pub fn restore(mut self, snapshot: RulesSnapshot) -> Self {
        self.snapshot = Some(snapshot);
        self
    }

    /// Sets whether all rules only report and deny nothing: a dry run. Default: no.
    pub fn shadow(mut self, shadow: bool) -> Self {
        self.options.shadow = shadow;
        self
    }

    /// Sets whether all rules work as with `quota_mode`: they deny a request only if all of its rules deny it. A
    /// descriptor to which no rule applies, or only a replaced one, then always has quota left. Default: no.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Descriptor, Rules};
    ///
    /// const FILE: &str = "
    /// domain: gateway
    /// descriptors: [{ key: backend, rate_limit: { unit: hour, requests_per_unit: 1 } }]
    /// ";
    /// let rules = Rules::builder().quota(true).load([Config::from_yaml("limits.yaml", FILE)?])?;
    /// let ask = |backend| rules.check("gateway", &[Descriptor::new(&[("backend", backend)]), Descriptor::new(&[("backend", "b")])]);
    /// assert!(ask("a").is_allowed()); // one unit of each
    /// assert!(ask("c").is_allowed()); // "c" has quota left
    /// assert!(ask("a").is_denied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn quota(mut self, quota: bool) -> Self {
        self.options.quota = quota;
        self
    }
}

impl<C: IntoClock> RulesBuilder<C> {
    /// Loads rules from files and folders, which [`Rules::reload`] reads again. For a folder, loads its files named
    /// `*.yaml`, `*.yml`, `*.json` and `*.toml`, except those whose names begin with a dot. Links are followed, and a file
    /// that is reached in several ways is read once. Folders inside a folder are not read.
    ///
    /// # Errors
    /// If the folders have no file. Otherwise, same as [`Rules::read`].
    pub fn read<P: AsRef<Path>>(
        self,
        files: impl IntoIterator<Item = P>,
    ) -> Result<Rules<C::Clock>, RulesError> {
        let files: Vec<PathBuf> = files.into_iter().map(|file| file.as_ref().to_owned()).collect();
        let rules = self.build();
        rules.loading().files = files;
        match rules.reload() {
            Err(error) if !rules.options.start_without_rules => Err(error),
            _ => Ok(rules),
        }
    }

    /// Loads rules from configurations that are already read.
    ///
    /// # Errors
    /// If two files have rules of one domain, or if there is not enough memory for a rule's store.
    pub fn load(self, configs: impl IntoIterator<Item = Config>) -> Result<Rules<C::Clock>, RulesError> {
        let rules = self.build();
        rules.replace(configs)?;
        Ok(rules)
    }

    /// Creates rules without any domain.
    pub(crate) fn build(self) -> Rules<C::Clock> {
        let snapshot = self.snapshot;
        let seeds = snapshot.as_ref().map_or_else(new_seeds, |snapshot| snapshot.seeds);
        let hasher = hasher_of(seeds);
        let earlier = snapshot.as_ref().map_or(0, |snapshot| snapshot.load);
        Rules {
            in_force: Published::new(RuleSet::empty(earlier, &hasher)),
            loading: Mutex::new(Loading::default()),
            restoring: Mutex::new(Restoring { snapshot: snapshot.map(Arc::new), report: None }),
            seeds,
            last_error: Mutex::default(),
            options: self.options,
            hasher,
            clock: self.clock.into_clock(),
            reloads: Reloads::new(),
            observers: self.observers,
            servers: self.servers,
            has_holds: OnceFlag::default(),
        }
    }
}
