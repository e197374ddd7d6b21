//! The options of every load of one set of rules.

use tollgate::telemetry::NearLimit;
use tollgate_config::Charging;

/// What happens to a request to which no rule applies: its domain has no rules, or its descriptors match none. A key
/// that was renamed in the file, and not in the program, has this effect on every request.
///
/// A descriptor of the file without a limit and without further descriptors exempts the requests that match it, such as
/// [ranges](https://docs.rs/crate/tollgate/latest/source/docs/addresses.md)
/// of your own networks. Such a request is always admitted.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum WithoutRule {
    /// The request is admitted, as by Envoy's service.
    #[default]
    Admit,
    /// The request is admitted. With the feature `tracing`, the first such request of each domain since each load is
    /// logged as a warning with its keys, and without its values.
    Log,
    /// The request is denied, and logged in the same way. Only a load can admit it, so the answer is
    /// [never](crate::Answer::is_never), and has no wait.
    Deny,
}

#[derive(Copy, Clone, Debug, Default)]
pub(in crate::engine) struct LoadOptions {
    pub(in crate::engine) merge_domains: bool,
    pub(in crate::engine) shadow: bool,
    pub(in crate::engine) quota: bool,
    pub(in crate::engine) charging: Option<Charging>,
    pub(in crate::engine) default_charging: Charging,
    pub(in crate::engine) allow_removals: bool,
    pub(in crate::engine) allow_file_removals: bool,
    pub(in crate::engine) start_without_rules: bool,
    pub(in crate::engine) hold_all: bool,
    pub(in crate::engine) keep_replaced: bool,
    pub(in crate::engine) without_rule: WithoutRule,
    pub(in crate::engine) near_limit: NearLimit,
}

impl LoadOptions {
    /// Returns the charging of a domain whose files set this one, if they set one.
    pub(super) fn charging(&self, of_files: Option<Charging>) -> Charging {
        self.charging.or(of_files).unwrap_or(self.default_charging)
    }
}
