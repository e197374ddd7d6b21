//! Loads that replace the rules in force, domains that no load may remove, and rules that matched no request.
//!
//! A domain is in use after a layer was created for it, after a call of [`Rules::require_domain`], or after its first
//! request. From then on, a load without rules for it fails: a misspelt name in a file must not disable all limits.

#[cfg(feature = "watch")]
use std::fs;
#[cfg(feature = "watch")]
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};
#[cfg(feature = "watch")]
use std::time::SystemTime;

use super::Rules;
use super::error::RulesError;
use super::load_report::{ChangeKind, LoadReport};
use super::restore::Restoring;
use super::rule_set::RuleSet;
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::edge::rules::config::{Config, ConfigError, Domain, Problem, are_files_gone, removed, rule_files};
use crate::edge::rules::rule::Rule;
use crate::edge::telemetry::ReloadCounts;

#[derive(Debug, Default)]
pub(super) struct Loading {
    /// Files and folders.
    pub(super) files: Vec<PathBuf>,
    /// The hashes of the files at the last read.
    #[cfg(feature = "watch")]
    seen: Vec<(PathBuf, Option<u64>)>,
    /// The domains that layers were created for.
    required: Vec<Box<str>>,
}

/// Returns the files at these paths, each with a hash of its contents, to detect changes. `None` if the file or folder
/// cannot be read.
#[cfg(feature = "watch")]
fn hashes_of(paths: &[PathBuf]) -> Vec<(PathBuf, Option<u64>)> {
    let of = |file: &PathBuf| {
        // A load reads the file again, so this must not consume a pipe.
        if !fs::metadata(file).ok()?.is_file() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        fs::read(file).ok()?.hash(&mut hasher);
        Some(hasher.finish())
    };
    let files = rule_files(paths).unwrap_or_else(|_| paths.to_vec());
    files.into_iter().map(|file| (file.clone(), of(&file))).collect()
}

impl<C: Clock> Rules<C> {
    /// Locks the state of the loads. Waits until no other load is in progress.
    pub(super) fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks what the first load takes over. Waits for no load.
    pub(super) fn restoring(&self) -> MutexGuard<'_, Restoring> {
        self.restoring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that the rules came from.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn files(&self) -> Vec<PathBuf> {
        self.loading().files.clone()
    }

    /// Does what [`Rules::reload`] does, but only if the files differ from the last read, whether that load succeeded
    /// or failed.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn reload_if_changed(&self) -> Option<Result<LoadReport, RulesError>> {
        let is_other = |loading: &Loading| hashes_of(&loading.files) != loading.seen;
        let changed = is_other(&self.loading());
        changed.then(|| self.reload())
    }

    /// Reads the files again and puts their rules in force. Returns what changed.
    ///
    /// A rule keeps its identity if its keys and values stay the same; clients then keep their usage. If the rule's
    /// numbers, algorithm or store change, usage carries over unit for unit, also beyond a lower limit. It refills as
    /// the new algorithm defines; windows free it at their end. A client may exceed the new rule by what it used under
    /// the old rule, and by nothing else.
    ///
    /// Usage beyond a lower limit is cut to what the new store can hold. A sliding log stores a time for each unit. It
    /// holds four times its limit or 1,024 units, whichever is more, but no more than [its largest
    /// limit](crate::SlidingLog::MAX_LIMIT). If no word of the new algorithm or store can hold the higher limit, it
    /// holds the lower limit and forgets all usage beyond it. A rule with a `block` also holds only its own limit. Its keys
    /// stay in their blocks, which end at the same times.
    ///
    /// A sketch keeps its counts if the windows stay the same and its counters have room for the new limit; otherwise
    /// it restarts at zero. A rule also restarts at zero if its `share_threshold` is switched on or off.
    ///
    /// # Memory
    /// The first charge of a rule creates its store. If there is no memory for it, the request is denied. A store of more
    /// than 16 MiB is created by the load.
    ///
    /// A changed rule keeps its old states until it changes again. It takes keys over from them when their next
    /// requests arrive.
    ///
    /// # Errors
    /// In these cases, the rules stay unchanged, and the failure is counted:
    ///
    /// - A file or folder cannot be read, a file has a problem, or there is no file.
    /// - A domain that is [in use](crate::rules::RulesBuilder::allow_removals) would be removed or left without any
    ///   rule.
    /// - These rules were not read from files.
    pub fn reload(&self) -> Result<LoadReport, RulesError> {
        self.load(
            || CheckTime::read(&self.clock),
            |loading| {
                if loading.files.is_empty() {
                    return Err(RulesError::no_source());
                }
                // Hashed before the files are read. A change between the two steps causes one extra load, never a
                // missed one.
                #[cfg(feature = "watch")]
                {
                    loading.seen = hashes_of(&loading.files);
                }
                let files = rule_files(&loading.files)?;
                if files.is_empty() && !self.may_have_no_files() {
                    return Err(RulesError::no_files(&loading.files));
                }
                Ok(ConfigError::of_all(files.iter().map(Config::read))?)
            },
        )
    }

    /// Whether a load may find folders without any file. At the start, this is probably a wrong path.
    fn may_have_no_files(&self) -> bool {
        self.options.start_without_rules
            || (self.options.allow_file_removals && self.reloads.counts().successes > 0)
    }

    /// Puts other rules in force, as [`Rules::reload`] does with the rules of its files.
    ///
    /// # Errors
    /// Same as [`Rules::reload`].
    pub fn replace(&self, configs: impl IntoIterator<Item = Config>) -> Result<LoadReport, RulesError> {
        self.load(|| CheckTime::read(&self.clock), |_| Ok(configs.into_iter().collect()))
    }

    /// Does what [`Rules::replace`] does with the rules that `read` returns. An error of `read` is a failed load.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn replace_by(
        &self,
        read: impl FnOnce() -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        self.load(|| CheckTime::read(&self.clock), |_| read())
    }

    /// Records the answer of a source, or the reason why it gave no rules that can be used.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn note_poll(&self, answered: bool, error: Option<&RulesError>) {
        self.reloads.polled(answered, error.map(|error| error as _));
        self.set_last_error(error.cloned());
    }

    /// Records the version in force.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn note_version(&self, version: u64, written_at: Option<SystemTime>) {
        self.reloads.version(version, written_at);
    }

    pub(super) fn load(
        &self,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        let mut loading = self.loading();
        let last = self.in_force.load();
        let next = read(&mut loading).and_then(|configs| {
            let hash = Config::hash_of(&configs);
            let removals = self.rejected_removals(&last, &loading, &configs);
            let domains = Domain::merge(configs, self.options.merge_domains)?;
            if !removals.is_empty() {
                return Err(ConfigError::of(removals).into());
            }
            let with = (&self.hasher, &self.servers);
            let waiting = self.restoring().snapshot.clone();
            let waiting = waiting.filter(|_| domains.iter().any(|domain| !domain.rules().is_empty()));
            let (next, report) = last.after(domains, &self.options, with, waiting.as_deref(), now)?;
            Ok((next, hash, report))
        });
        match next {
            Ok((next, hash, restored)) => {
                if next.has_holds() {
                    self.has_holds.set();
                }
                let next = Arc::new(next);
                self.in_force.publish(Arc::clone(&next));
                let rules = next.domains.iter().map(|domain| domain.rules.len()).sum::<usize>();
                let report = LoadReport::between(&last, &next);
                for change in report.of_kind(ChangeKind::Removed).filter(|change| change.rule().is_none()) {
                    self.reloads.removed_domain(change.domain());
                }
                self.reloads.loaded_from(u32::try_from(rules).unwrap_or(u32::MAX), hash);
                // From here on, a snapshot is one of these rules.
                if restored.is_some() {
                    *self.restoring() = Restoring { snapshot: None, report: restored };
                }
                self.set_last_error(None);
                Ok(report)
            }
            Err(error) => {
                self.reloads.failed(&error);
                self.set_last_error(Some(error.clone()));
                Err(error)
            }
        }
    }

    /// Returns the counts of all loads, including the first.
    #[must_use]
    pub fn reloads(&self) -> ReloadCounts {
        self.reloads.counts()
    }

    /// Returns why the last load failed, or `None` if it succeeded. For rules that follow a source, this is also the
    /// reason why the source gives no rules that can be used.
    #[must_use]
    pub fn last_error(&self) -> Option<RulesError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_last_error(&self, error: Option<RulesError>) {
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }

    /// Marks a domain as in use. From now on, a load that would remove the domain, or all its rules, fails, unless
    /// [`RulesBuilder::allow_removals`](crate::rules::RulesBuilder::allow_removals) permits it. A layer of the domain
    /// calls this when it is created. Call it yourself if your own code checks the rules. A domain is also in use after
    /// its first request.
    ///
    /// # Errors
    /// If the domain has no rules. The error contains its name and the most similar domain.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Config, Rules};
    ///
    /// let text = |domain| format!("
    /// domain: {domain}
    /// descriptors:
    ///   - key: user
    ///     rate_limit: {{ unit: day, requests_per_unit: 100 }}
    /// ");
    /// let rules = Rules::from_yaml(&text("shop"))?;
    /// let error = rules.require_domain("shopp").unwrap_err();
    /// assert!(error.to_string().contains("the most similar domain is \"shop\""));
    ///
    /// rules.require_domain("shop")?;
    /// let renamed = Config::from_yaml("limits.yaml", &text("store"))?;
    /// assert!(rules.replace([renamed]).is_err()); // the old limits stay in force
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn require_domain(&self, domain: &str) -> Result<(), RulesError> {
        // This lock prevents a load at the same time.
        let mut loading = self.loading();
        let live = self.in_force.load();
        if live.domain(domain).is_none() {
            let likeness = |name: &str| strsim::jaro_winkler(domain, name);
            let nearest = live
                .domains
                .iter()
                .max_by(|one, other| likeness(&one.name).total_cmp(&likeness(&other.name)));
            let nearest = nearest.map(|near| (&*near.name, near.files.names().next().unwrap_or_default()));
            return Err(RulesError::no_domain(domain, nearest));
        }
        if !loading.required.iter().any(|required| &**required == domain) {
            loading.required.push(domain.into());
        }
        Ok(())
    }

    /// Returns the rules in force that matched no request since the last load although their domain had requests, each
    /// with its domain. Such a rule has a misspelt key or value, in the file or in the caller, or another rule hides
    /// it.
    ///
    /// With the feature `metrics`, `rules::publish_rules` publishes their number in each domain:
    /// `tollgate_rules_unmatched`.
    ///
    /// # Examples
    /// ```
    /// use tollgate::rules::{Descriptor, Rules};
    ///
    /// let rules = Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - key: user
    ///     rate_limit: { unit: day, requests_per_unit: 100 }
    ///   - key: remote_adress
    ///     rate_limit: { unit: second, requests_per_unit: 10 }
    /// ")?;
    /// let request = [Descriptor::new(&[("user", "alice")]), Descriptor::new(&[("remote_address", "192.0.2.1")])];
    /// assert!(rules.check("edge", &request).is_allowed());
    /// let unmatched: Vec<_> = rules.unmatched().iter().map(|(_, rule)| rule.identity.to_string()).collect();
    /// assert_eq!(unmatched, ["edge|remote_adress"]);
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn unmatched(&self) -> Vec<(Box<str>, Rule)> {
        let live = self.in_force.load();
        let each = live
            .domains
            .iter()
            .flat_map(|domain| domain.unmatched().map(|active| (domain.name.clone(), active.rule.clone())));
        each.collect()
    }

    /// Returns the problems with files that would remove domains in use, unless removals are allowed.
    pub(super) fn rejected_removals(
        &self,
        last: &RuleSet,
        loading: &Loading,
        configs: &[Config],
    ) -> Vec<Problem> {
        if self.options.allow_removals {
            return Vec::new();
        }
        let is_required = |name: &str| loading.required.iter().any(|required| &**required == name);
        let in_use = last.domains.iter().filter(|domain| {
            let may_go = self.options.allow_file_removals && are_files_gone(configs, &domain.files);
            is_required(&domain.name) || (domain.was_asked() && !may_go)
        });
        in_use
            .filter_map(|domain| removed(configs, &domain.name, &domain.files, !domain.rules.is_empty()))
            .collect()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The request found the rules of one load, and is marked after the next load. A further load must see the mark.
    #[test]
    fn domain_asked_during_a_load_is_in_use() {
        let config = |domain: &str| {
            let limit = "{ unit: hour, requests_per_unit: 1 }";
            let text = format!("{{ domain: {domain}, descriptors: [ {{ key: a, rate_limit: {limit} }} ] }}");
            Config::from_yaml("test.yaml", &text).expect("the file is valid")
        };
        let rules = Rules::builder().load([config("shop")]).expect("the rules load");
        let found = rules.in_force.load();
        rules.replace([config("shop")]).expect("the rules load");
        found.domain("shop").expect("there are rules").note_asked();
        assert!(rules.replace([config("store")]).is_err());
    }
}
