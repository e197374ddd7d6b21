//! Loads that replace the rules in force; domains that no load may remove; and rules that apply to no request.
//!
//! A domain is in use once a layer was made for it, [`Rules::require_domain`] was called, or a request has asked it. From then on a load
//! without rules of it fails: a misspelt name in a file must not turn all limits off.

#[cfg(feature = "watch")]
use std::fs;
#[cfg(feature = "watch")]
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Rules;
use super::error::RulesError;
use super::load_report::LoadReport;
use super::rule_set::RuleSet;
use crate::base::check_time::CheckTime;
use crate::base::clock::{Clock, Timestamp};
use crate::edge::rules::config::{Config, ConfigError, Domain, Problem, removed};
use crate::edge::rules::rule::Rule;
use crate::edge::telemetry::ReloadCounts;

#[derive(Debug, Default)]
pub(super) struct Loading {
    pub(super) files: Vec<PathBuf>,
    /// What the files were when they were read last.
    #[cfg(feature = "watch")]
    seen: Vec<Option<u64>>,
    last_error: Option<RulesError>,
    /// Domains that layers were made for.
    required: Vec<Box<str>>,
}

/// A hash of each file's contents, which tells whether it has changed; `None` if it cannot be read.
#[cfg(feature = "watch")]
fn hashes_of(files: &[PathBuf]) -> Vec<Option<u64>> {
    let of = |file: &PathBuf| {
        // What is read here is read again to be loaded, so no pipe.
        if !fs::metadata(file).ok()?.is_file() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        fs::read(file).ok()?.hash(&mut hasher);
        Some(hasher.finish())
    };
    files.iter().map(of).collect()
}

impl<C: Clock> Rules<C> {
    /// What is loaded, and waits until no load is under way.
    pub(super) fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that were read.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn files(&self) -> Vec<PathBuf> {
        self.loading().files.clone()
    }

    /// [`Rules::reload`], if the files are not what they were when they were read last, whatever came of it.
    #[cfg(feature = "watch")]
    pub(in crate::edge::rules) fn reload_if_changed(&self) -> Option<Result<LoadReport, RulesError>> {
        let is_other = |loading: &Loading| hashes_of(&loading.files) != loading.seen;
        let changed = is_other(&self.loading());
        changed.then(|| self.reload())
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
    /// If a file cannot be read or is wrong; if a domain that is [in use](crate::rules::RulesBuilder::allow_removals) would be removed or left
    /// without any rule; if these rules were not read from files. Then nothing is changed, and the failure is counted.
    pub fn reload(&self) -> Result<LoadReport, RulesError> {
        self.load(
            || CheckTime::read(&self.clock),
            |loading| {
                if loading.files.is_empty() {
                    return Err(RulesError::no_source());
                }
                // Before they are read, so that a change between the two is one more load, and never one too few.
                #[cfg(feature = "watch")]
                {
                    loading.seen = hashes_of(&loading.files);
                }
                Ok(ConfigError::of_all(loading.files.iter().map(Config::read))?)
            },
        )
    }

    /// Puts other rules in force, as [`Rules::reload`] does those of its files.
    ///
    /// # Errors
    /// As [`Rules::reload`].
    pub fn replace(&self, configs: impl IntoIterator<Item = Config>) -> Result<LoadReport, RulesError> {
        self.load(|| CheckTime::read(&self.clock), |_| Ok(configs.into_iter().collect()))
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
        self.load(|| CheckTime::given(now), |_| Ok(configs.into_iter().collect()))
    }

    fn load(
        &self,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        let mut loading = self.loading();
        let last = self.in_force.load();
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
                let rules = next.domains.iter().map(|domain| domain.rules.len()).sum::<usize>();
                let report = LoadReport::between(&last, &next);
                self.in_force.publish(Arc::new(next));
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
        self.loading().last_error.clone()
    }

    /// Says that a domain is in use: from now on a load that would remove it, or leave it without any rule, fails, unless
    /// [`RulesBuilder::allow_removals`](crate::rules::RulesBuilder::allow_removals) says otherwise. A layer of the domain calls this when it is
    /// made; call it where your own code asks the rules. A domain that a request has asked is in use as well.
    ///
    /// # Errors
    /// If there are no rules of the domain: with its name, and the nearest that there is.
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
    /// assert!(error.to_string().contains("the nearest is \"shop\""));
    ///
    /// rules.require_domain("shop")?;
    /// let renamed = Config::from_yaml("limits.yaml", &text("store"))?;
    /// assert!(rules.replace([renamed]).is_err()); // the old limits stay
    /// # Ok::<(), tollgate::rules::RulesError>(())
    /// ```
    pub fn require_domain(&self, domain: &str) -> Result<(), RulesError> {
        // No load is under way meanwhile.
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

    /// The rules in force that have applied to no request since the last load, although their domain was asked: a key or a value that is
    /// misspelt, in the file or by what asks; or a rule that another one hides. Each with its domain.
    ///
    /// With feature `metrics`, `rules::publish_rules` publishes how many there are in each domain: `tollgate_rules_unmatched`.
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

    /// What a load of these files would take from domains in use, unless it may.
    pub(super) fn refused_removals(
        &self,
        last: &RuleSet,
        loading: &Loading,
        configs: &[Config],
    ) -> Vec<Problem> {
        if self.options.allow_removals {
            return Vec::new();
        }
        let is_used = |name: &str| loading.required.iter().any(|required| &**required == name);
        let in_use = last.domains.iter().filter(|domain| domain.was_asked() || is_used(&domain.name));
        in_use
            .filter_map(|domain| removed(configs, &domain.name, &domain.files, !domain.rules.is_empty()))
            .collect()
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// The request found the rules of one load, and asked them after the next one. A load that follows has to know of it.
    #[test]
    fn domain_asked_during_a_load_is_in_use() {
        let config = |domain: &str| {
            let limit = "{ unit: hour, requests_per_unit: 1 }";
            let text = format!("{{ domain: {domain}, descriptors: [ {{ key: a, rate_limit: {limit} }} ] }}");
            Config::from_yaml("test.yaml", &text).expect("it is right")
        };
        let rules = Rules::builder().load([config("shop")]).expect("they load");
        let found = rules.in_force.load();
        rules.replace([config("shop")]).expect("they load");
        found.domain("shop").expect("there are rules").note_asked();
        assert!(rules.replace([config("store")]).is_err());
    }
}
