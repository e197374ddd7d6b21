//! The options of every load of one set of rules.

use crate::edge::rules::rule::Charging;
use crate::edge::telemetry::NearLimit;

#[derive(Copy, Clone, Debug, Default)]
pub(super) struct LoadOptions {
    pub(super) merge_domains: bool,
    pub(super) shadow: bool,
    pub(super) quota: bool,
    pub(super) charging: Option<Charging>,
    pub(super) default_charging: Charging,
    pub(super) allow_removals: bool,
    pub(super) allow_file_removals: bool,
    pub(super) start_without_rules: bool,
    pub(super) hold_all: bool,
    pub(super) near_limit: NearLimit,
}

impl LoadOptions {
    /// Returns the charging of a domain whose files set this one, if they set one.
    pub(super) fn charging(&self, of_files: Option<Charging>) -> Charging {
        self.charging.or(of_files).unwrap_or(self.default_charging)
    }
}
