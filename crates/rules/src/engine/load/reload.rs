//! Loads that replace the rules in force, and domains that no load may remove.
//!
//! A domain is in use after a layer was created for it, after a call of [`Rules::require_domain`], or after its first
//! request. From then on, a load without rules for it fails: a misspelt name in a file must not disable all limits.

#[cfg(feature = "watch")]
use std::collections::HashSet;
use std::fs;
#[cfg(feature = "watch")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
#[cfg(feature = "watch")]
use std::time::SystemTime;

use tollgate::Clock;
use tollgate::internals::CheckTime;
use tollgate_config::internals::bytes_of;
use tollgate_config::{Config, ConfigError, Domain, Format, Problem, rule_files};

use super::load_report::{ChangeKind, LoadReport};
use super::removed::{are_files_gone, removed};
use crate::engine::state::{Loading, ReadFile, Restoring, RuleSet, Rules, RulesAt, RulesError};
use crate::telemetry::ReloadCounts;

impl ReadFile {
    fn read(path: PathBuf) -> Self {
        let is_file = fs::metadata(&path).is_ok_and(|found| found.is_file());
        let text = if is_file { bytes_of(&path).ok() } else { None };
        Self { path, text }
    }

    fn config(&self) -> Result<Config, ConfigError> {
        match (&self.text, Format::of_path(&self.path)) {
            (Some(text), Some(format)) => {
                Config::from_bytes(&self.path.display().to_string(), format, text.clone())
            }
            // The error says why the file has no text, or no format.
            _ => Config::read(&self.path),
        }
    }
}

/// Returns the files at these paths. If a folder cannot be read, the paths count as the files.
fn files_at(paths: &[PathBuf]) -> Vec<PathBuf> {
    rule_files(paths).unwrap_or_else(|_| paths.to_vec())
}

/// The result of [`Rules::reload_if_changed`].
#[cfg(feature = "watch")]
#[must_use]
pub(crate) enum FileCheck {
    /// The files are as they were read last.
    Unchanged,
    /// Some rules in force are missing. If they are also missing when the files are read again, the files are loaded.
    RulesMissing,
    /// The files have changed, and this is the result of the load.
    Loaded(Result<LoadReport, RulesError>),
}

impl<C: Clock> Rules<C> {
    /// The files that the rules came from.
    #[cfg(feature = "watch")]
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.loading().files.clone()
    }

    /// Does what [`Rules::reload`] does, but only if the files differ from the last read, whether that load succeeded
    /// or failed. A file for which `is_written` is true counts as in the last load that succeeded, and is left out if it is
    /// new: a part of a file must not come into force.
    ///
    /// A program may pause while it writes a file, and then `is_written` is false too early. A part of a file has fewer
    /// rules than the whole. So a load that would remove rules is made only if the reading before would
    /// have removed them, too. If even more rules are missing by then, the load is made as well: a file that is being written
    /// only gains rules, and a program that removes some at each change must not wait for ever.
    #[cfg(feature = "watch")]
    pub(crate) fn reload_if_changed(&self, is_written: impl Fn(&Path) -> bool) -> FileCheck {
        let mut loading = self.loading();
        let look = |path: PathBuf| match is_written(&path) {
            true => {
                loading.good.as_ref().unwrap_or(&loading.seen).iter().find(|good| good.path == path).cloned()
            }
            false => Some(ReadFile::read(path)),
        };
        let files: Vec<ReadFile> = files_at(&loading.files).into_iter().filter_map(look).collect();
        if files == loading.seen {
            loading.missing.clear();
            return FileCheck::Unchanged;
        }
        let configs = ConfigError::of_all(files.iter().map(ReadFile::config));
        let missing = configs.as_ref().map_or_else(|_| Vec::new(), |configs| self.missing_in(configs));
        let now_missing: HashSet<&str> = missing.iter().map(|identity| &**identity).collect();
        let had_missing = !loading.missing.is_empty();
        let is_confirmed =
            had_missing && loading.missing.iter().all(|identity| now_missing.contains(&**identity));
        if !missing.is_empty() && !is_confirmed {
            loading.missing = missing;
            return FileCheck::RulesMissing;
        }
        loading.missing.clear();
        let read = |loading: &mut Loading| self.take_read(loading, files, configs);
        FileCheck::Loaded(self.load_locked(&mut loading, || CheckTime::read(&self.clock), read))
    }

    /// Frees the rules of earlier loads that no [`Answer`](crate::Answer) uses any more, on this thread. Returns whether some are
    /// left. Loads and watchers do this, so a program needs it only with [`RulesBuilder::keep_replaced`].
    ///
    /// [`RulesBuilder::keep_replaced`]: crate::RulesBuilder::keep_replaced
    ///
    /// # Complexity
    /// Proportional to the number of replaced rules and their keys. It waits for a load in progress, and the next load waits for it.
    pub fn free_replaced(&self) -> bool {
        self.loading().free_unused()
    }

    /// Does what [`Rules::free_replaced`] does, unless the program does it.
    #[cfg(feature = "watch")]
    pub(crate) fn free_unless_kept(&self) -> bool {
        !self.options.keep_replaced && self.free_replaced()
    }

    /// Returns the identities of the rules in force that these files do not have.
    #[cfg(feature = "watch")]
    fn missing_in(&self, configs: &[Config]) -> Vec<Box<str>> {
        let found: HashSet<&str> =
            configs.iter().flat_map(Config::rules).map(|rule| &*rule.identity).collect();
        let in_force = self.in_force.load();
        let rules = in_force.domains.iter().flat_map(|domain| &domain.rules);
        let identities = rules.map(|active| &active.rule.identity);
        identities.filter(|identity| !found.contains(&***identity)).cloned().collect()
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
    /// limit](tollgate::SlidingLog::MAX_LIMIT). If no word of the new algorithm or store can hold the higher limit, it
    /// holds the lower limit and forgets all usage beyond it. A rule with a `block` also holds only its own limit. Its keys
    /// stay in their blocks, which end at the same times.
    ///
    /// A sketch keeps its counts if the windows stay the same and its counters have room for the new limit; otherwise
    /// it restarts at zero. A rule also restarts at zero if its `share_threshold` is switched on or off.
    ///
    /// # Memory
    /// The load frees the rules that it replaces. If an [`Answer`](crate::Answer) still uses them, they stay, and the last
    /// such answer does not free them either, because its request would wait for that: the next load does. Rules that are
    /// watched or that follow a source free them soon after the last answer. [`RulesBuilder::keep_replaced`] leaves this to another thread.
    ///
    /// [`RulesBuilder::keep_replaced`]: crate::RulesBuilder::keep_replaced
    ///
    /// The ninth key of a rule, or its first charge, creates its store. If there is no memory for it, the request is denied. A store of more
    /// than 16 MiB is created by the load.
    ///
    /// A changed rule keeps its old states until it changes again. It takes keys over from them when their next
    /// requests arrive.
    ///
    /// # Errors
    /// In these cases, the rules stay unchanged, and the failure is counted:
    ///
    /// - A file or folder cannot be read, a file has a problem, or there is no file.
    /// - A domain that is [in use](crate::RulesBuilder::allow_removals) would be removed or left without any
    ///   rule.
    /// - These rules were not read from files.
    pub fn reload(&self) -> Result<LoadReport, RulesError> {
        self.load(
            || CheckTime::read(&self.clock),
            |loading| {
                if loading.files.is_empty() {
                    return Err(RulesError::no_source());
                }
                let files: Vec<ReadFile> = files_at(&loading.files).into_iter().map(ReadFile::read).collect();
                let configs = ConfigError::of_all(files.iter().map(ReadFile::config));
                self.take_read(loading, files, configs)
            },
        )
    }

    /// Remembers what was read, so that the same files are not loaded again. Returns the rules, if they can be loaded.
    fn take_read(
        &self,
        loading: &mut Loading,
        files: Vec<ReadFile>,
        configs: Result<Vec<Config>, ConfigError>,
    ) -> Result<Vec<Config>, RulesError> {
        let has_files = !files.is_empty();
        #[cfg(feature = "watch")]
        {
            let last = std::mem::replace(&mut loading.seen, files);
            loading.good.get_or_insert(last);
        }
        rule_files(&loading.files)?;
        if !has_files && !self.may_have_no_files() {
            return Err(RulesError::no_files(&loading.files));
        }
        Ok(configs?)
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
    pub(crate) fn replace_by(
        &self,
        read: impl FnOnce() -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        self.load(|| CheckTime::read(&self.clock), |_| read())
    }

    /// Records the answer of a source, or the reason why it gave no rules that can be used.
    #[cfg(feature = "watch")]
    pub(crate) fn note_poll(&self, answered: bool, error: Option<&RulesError>) {
        self.reloads.polled(answered, error.map(|error| error as _));
        self.set_last_error(error.cloned());
        self.free_unless_kept();
    }

    /// Records the version in force.
    #[cfg(feature = "watch")]
    pub(crate) fn note_version(&self, version: u64, written_at: Option<SystemTime>) {
        self.reloads.version(version, written_at);
    }

    pub(super) fn load(
        &self,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        self.load_locked(&mut self.loading(), now, read)
    }

    fn load_locked(
        &self,
        loading: &mut Loading,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        let loaded = self.load_next(loading, now, read);
        #[cfg(feature = "watch")]
        if loaded.is_ok() {
            loading.good = None;
        }
        if !self.options.keep_replaced {
            loading.free_unused();
        }
        loaded
    }

    fn load_next(
        &self,
        loading: &mut Loading,
        now: impl Fn() -> CheckTime,
        read: impl FnOnce(&mut Loading) -> Result<Vec<Config>, RulesError>,
    ) -> Result<LoadReport, RulesError> {
        let last = self.in_force.load();
        let next = read(loading).and_then(|configs| {
            let hash = Config::hash_of(&configs);
            let removals = self.rejected_removals(&last, loading, &configs);
            let mut warnings: Vec<Problem> = configs.iter().flat_map(Config::warnings).cloned().collect();
            let domains = Domain::merge(configs, self.options.merge_domains)?;
            warnings.extend(domains.iter().flat_map(Domain::warnings).cloned());
            if !removals.is_empty() {
                return Err(ConfigError::new(removals).into());
            }
            let with = (&self.hasher, &self.servers);
            let waiting = self.restoring().snapshot.clone();
            let waiting = waiting.filter(|_| domains.iter().any(|domain| !domain.rules().is_empty()));
            let (next, report) = last.after(domains, &self.options, with, waiting.as_deref(), now)?;
            Ok((next, hash, report, warnings))
        });
        match next {
            Ok((next, hash, restored, warnings)) => {
                if next.has_holds() {
                    self.has_holds.set();
                }
                let next = Arc::new(next);
                self.in_force.publish(Arc::clone(&next), &mut loading.replaced);
                loading.held.extend(last.held_before(&next).cloned());
                let rules = next.domains.iter().map(|domain| domain.rules.len()).sum::<usize>();
                // A reload does not repeat the warnings of the files that it did not change.
                let is_new = |warning: &&Problem| !loading.warnings.contains(warning);
                warnings.iter().filter(is_new).for_each(|warning| self.reloads.warned(warning));
                loading.warnings.clone_from(&warnings);
                let report = LoadReport::between(&last, &next, warnings);
                for change in report.of_kind(ChangeKind::Removed).filter(|change| change.rule().is_none()) {
                    self.reloads.removed_domain(change.domain());
                }
                report.lost().for_each(|domain| self.reloads.lost_rules(domain));
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

    /// Returns the warnings about the rules in force: settings that are allowed but are probably mistakes, such as a value
    /// that no request has. [`Config::warnings`] and [`Domain::warnings`] have them before a load. With the feature
    /// `tracing`, a load logs those that are new. Waits for a load that is running.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::Rules;
    ///
    /// let rules = Rules::from_yaml("
    /// domain: edge
    /// descriptors:
    ///   - key: remote_address
    ///     value: 192.0.2.1:8080
    ///     rate_limit: { unit: minute, requests_per_unit: 0 }
    /// ")?;
    /// let warnings = rules.warnings();
    /// assert_eq!(warnings[0].remedy(), "write \"192.0.2.1\"");
    /// # Ok::<(), tollgate_rules::RulesError>(())
    /// ```
    #[must_use]
    pub fn warnings(&self) -> Vec<Problem> {
        self.loading().warnings.clone()
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
    /// [`RulesBuilder::allow_removals`](crate::RulesBuilder::allow_removals) permits it. A layer of the domain
    /// calls this when it is created. Call it yourself if your own code checks the rules. A domain is also in use after
    /// its first request.
    ///
    /// # Errors
    /// If the domain has no rules. The error contains its name and the most similar domain.
    ///
    /// # Examples
    /// ```
    /// use tollgate_rules::{Config, Rules};
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
    /// # Ok::<(), tollgate_rules::RulesError>(())
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

impl<C: Clock> RulesAt<'_, C> {
    /// [`Rules::replace`] at this time: for requests whose times the caller gives. Usage is read as of this time, or as
    /// of the latest charge if that is later.
    ///
    /// # Errors
    /// Same as [`Rules::reload`].
    pub fn replace(self, configs: impl IntoIterator<Item = Config>) -> Result<LoadReport, RulesError> {
        self.rules.load(|| CheckTime::given(self.now), |_| Ok(configs.into_iter().collect()))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::descriptor::Descriptor;

    /// Returns a file with one rule. `limit` can have more settings.
    fn text(domain: &str, key: &str, limit: &str) -> String {
        let limit = format!("{{ unit: day, requests_per_unit: {limit} }}");
        format!(
            "{{ domain: {domain}, tollgate: {{}}, descriptors: [ {{ key: {key}, rate_limit: {limit} }} ] }}"
        )
    }

    fn config(domain: &str, key: &str, limit: &str) -> Config {
        Config::from_yaml("test.yaml", &text(domain, key, limit)).expect("the file is valid")
    }

    /// A hold of a rule that was removed was the last to use its store, and freed all keys when it ended, while other requests waited
    /// for its shard.
    // G108
    #[test]
    fn ended_hold_frees_no_store() {
        let config = |key| config("d", key, "9, store: keyed, hold: {}");
        let rules = Rules::builder().load([config("a")]).expect("the rules load");
        let request = [Descriptor::new(&[("a", "x")])];
        let id = rules.hold("d", &request, 1, std::time::Duration::MAX).1;
        let store = {
            let domains = &rules.in_force.load().domains;
            let counter = domains[0].rules[0].counter.local().expect("this process counts the rule");
            Arc::downgrade(&counter.generation)
        };
        rules.replace([config("b")]).expect("the rules load");
        let in_force = rules.in_force.load();
        let book = in_force.book.as_ref().expect("there are holds");
        let mut hashes = Vec::new();
        book.for_each(|hash, _, _| hashes.push(hash));
        assert!(book.take(hashes[0], id.expect("the rule holds a unit"), |_, _| ()).is_some());
        assert!(store.upgrade().is_some(), "the hold does not free the store");
        rules.replace([config("b")]).expect("the rules load");
        assert!(store.upgrade().is_none(), "the next load frees it");
    }

    // G108
    #[test]
    fn kept_rules_are_freed_by_the_program_alone() {
        let config = |limit| config("d", "a", limit);
        let rules = Rules::builder().keep_replaced(true).load([config("1")]).expect("the rules load");
        let first = Arc::downgrade(&rules.in_force.load().to_arc());
        let used = rules.in_force.load();
        rules.replace([config("2")]).expect("the rules load");
        assert!(rules.free_replaced(), "an answer uses the first rules");
        drop(used);
        rules.replace([config("3")]).expect("the rules load");
        #[cfg(feature = "watch")]
        rules.note_poll(true, None);
        assert!(first.upgrade().is_some(), "no load frees them");
        assert!(!rules.free_replaced());
        assert!(first.upgrade().is_none());
    }

    /// The request found the rules of one load, and is marked after the next load. A further load must see the mark.
    // G64
    #[test]
    fn domain_asked_during_a_load_is_in_use() {
        let config = |domain| config(domain, "a", "1");
        let rules = Rules::builder().load([config("shop")]).expect("the rules load");
        let found = rules.in_force.load();
        rules.replace([config("shop")]).expect("the rules load");
        found.domain("shop").expect("there are rules").note_asked();
        assert!(rules.replace([config("store")]).is_err());
    }

    /// A part of a file has fewer rules, and the next reading finds others. Each text is what a reader can see while
    /// another program writes the file.
    // G104
    #[cfg(feature = "watch")]
    #[test]
    fn rules_are_removed_after_two_readings() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, rules: std::ops::Range<u32>| {
            let rule =
                |key| format!("  - {{ key: k{key}, rate_limit: {{ unit: day, requests_per_unit: 9 }} }}\n");
            let text = format!("domain: {name}\ndescriptors:\n{}", rules.map(rule).collect::<String>());
            fs::write(path(name).with_extension("yaml"), text).expect("the file is written");
        };
        write("a", 0..4);
        write("b", 0..4);
        let rules = Rules::builder().allow_file_removals(true).read([folder.path()]).expect("the rules load");
        let count = || rules.in_force.load().domains.iter().map(|domain| domain.rules.len()).sum::<usize>();
        let look = || match rules.reload_if_changed(|_| false) {
            FileCheck::Unchanged => "same",
            FileCheck::RulesMissing => "missing",
            FileCheck::Loaded(Ok(_)) => "loaded",
            FileCheck::Loaded(Err(_)) => "failed",
        };
        // The file is written slowly, and the rules come back one by one.
        for part in 1..4 {
            write("a", 0..part);
            assert_eq!((look(), count()), ("missing", 8));
        }
        write("a", 0..5);
        assert_eq!((look(), count()), ("loaded", 9));
        // A removal is confirmed, also while other files keep changing.
        write("a", 0..2);
        assert_eq!(look(), "missing");
        write("b", 0..6);
        assert_eq!((look(), count(), look()), ("loaded", 8, "same"));
        // More rules go at each reading.
        write("b", 0..5);
        assert_eq!((look(), count()), ("missing", 8));
        write("b", 0..4);
        assert_eq!((look(), count()), ("loaded", 6));
        write("b", 0..6);
        assert_eq!((look(), count()), ("loaded", 8));
        // The file is gone only while another one takes its place.
        fs::remove_file(path("a.yaml")).expect("the file is removed");
        assert_eq!((look(), count()), ("missing", 8));
        write("a", 0..2);
        assert_eq!((look(), count()), ("same", 8));
        fs::remove_file(path("a.yaml")).expect("the file is removed");
        assert_eq!([look(), look()], ["missing", "loaded"]);
        assert_eq!(count(), 6);
        // An explicit reload needs one reading.
        write("b", 0..1);
        rules.reload().expect("the rules load");
        assert_eq!((count(), look()), (1, "same"));
    }

    // G104
    #[cfg(feature = "watch")]
    #[test]
    fn file_that_is_written_counts_as_before() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let write = |name: &str, limit| {
            fs::write(folder.path().join(name), text(name, "k", limit)).expect("the file is written");
        };
        write("a.yaml", "1");
        write("b.yaml", "1");
        let rules = Rules::read(folder.path()).expect("the rules load");
        for (file, limit) in [("a.yaml", "2"), ("b.yaml", "3"), ("c.yaml", "4")] {
            write(file, limit);
        }
        let is_written = |path: &Path| path.ends_with("a.yaml") || path.ends_with("c.yaml");
        let changed = |look| match look {
            FileCheck::Loaded(Ok(report)) => {
                report.changes().iter().map(|change| change.domain().to_owned()).collect()
            }
            _ => Vec::new(),
        };
        assert_eq!(changed(rules.reload_if_changed(is_written)), ["b.yaml"]);
        assert!(matches!(rules.reload_if_changed(is_written), FileCheck::Unchanged));
        assert_eq!(changed(rules.reload_if_changed(|_| false)), ["a.yaml", "c.yaml", "c.yaml"]);
    }

    /// Cause: a look read a file after another program had emptied it and before the event of the first write. That load failed, and
    /// the empty text stood in for the file while it was written. Symptom: no other file was loaded until the writing ended.
    // G104
    #[cfg(feature = "watch")]
    #[test]
    fn file_that_is_written_holds_no_other_back_after_a_failed_load() {
        let folder = tempfile::tempdir().expect("there is a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("the file is written");
        };
        let text = |name, limit: u32| text(name, "k", &limit.to_string());
        write("a.yaml", &text("a", 1));
        write("b.yaml", &text("b", 1));
        let rules = Rules::read(folder.path()).expect("the rules load");
        let is_loaded = |look| matches!(look, FileCheck::Loaded(Ok(_)));
        for limit in 2..5 {
            write("a.yaml", "");
            write("b.yaml", &text("b", limit));
            let empty = rules.reload_if_changed(|_| false);
            assert!(matches!(empty, FileCheck::Loaded(Err(_))));
            let is_written = |path: &Path| path.ends_with("a.yaml");
            assert!(is_loaded(rules.reload_if_changed(is_written)), "the other file is loaded");
            assert!(matches!(rules.reload_if_changed(is_written), FileCheck::Unchanged));
            write("a.yaml", &text("a", limit));
            assert!(is_loaded(rules.reload_if_changed(|_| false)));
        }
    }
}
