//! The events of the `tracing` facade. All have the target `tollgate`.
//!
//! Only this module names the crate `tracing`. Without the feature, `no_trace` stands in for it.

use std::fmt::Display;

use tracing::{info, warn};

pub(super) fn rules_loaded(rules: u32, config_hash: u64) {
    info!(target: "tollgate", rules, config_hash, "rules loaded");
}

pub(super) fn rules_rejected(error: &dyn Display) {
    warn!(target: "tollgate", %error, "rules rejected; the previous rules stay in force");
}

pub(super) fn rules_warned(warning: &dyn Display) {
    warn!(target: "tollgate", %warning, "the rules are in force, and probably not as intended");
}

pub(super) fn domain_removed(domain: &str) {
    warn!(target: "tollgate", domain, "a load removed the domain; its requests have no limits now");
}

/// Names keys and no values, because values may be secrets.
pub(crate) fn request_without_rule(domain: &str, keys: &str, is_denied: bool) {
    let action = if is_denied { "denied" } else { "admitted" };
    warn!(target: "tollgate", domain, keys, action, "no rule applies to a request; further ones are not logged until the next load");
}

pub(super) fn rules_lost(domain: &str) {
    warn!(
        target: "tollgate",
        domain,
        "no rule is left that the requests of the domain matched, so they have no limits now: compare the keys of the rules \
         with those of the requests"
    );
}

#[cfg(feature = "watch")]
pub(super) fn source_fails(error: &dyn Display) {
    warn!(target: "tollgate", %error, "the source of rules fails; the rules stay in force");
}

#[cfg(feature = "watch")]
pub(super) fn source_works() {
    info!(target: "tollgate", "the source of rules works again");
}
