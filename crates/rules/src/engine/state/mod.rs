//! The state of rules: those in force, their counters, and the same as bytes.
//!
//! A [`RuleSet`] is the rules of one load. It finds the rules that apply to a request, and has a [`Counter`] for each rule.
//! [`Rules`] publishes one set at a time. Each set comes from the one before it: see [`next`].

mod counter;
mod error;
mod held;
mod loading;
mod next;
mod options;
pub(super) mod overrides;
mod restore;
mod role;
mod rule_set;
mod saved;
mod values;

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate::internals::migrate::Published;
use tollgate::telemetry::{DenialLog, TopDenied};
use tollgate::{Clock, DefaultClock, Timestamp};

pub(super) use self::counter::{Counter, Effect, LocalCounter, ProgressCounter, SharedCounter, blocked};
pub use self::error::RulesError;
pub(super) use self::held::{CounterCharge, RuleBook};
pub(super) use self::loading::{Loading, ReadFile};
pub(super) use self::options::LoadOptions;
pub use self::options::WithoutRule;
pub use self::restore::{RestoreReport, RulesSnapshot};
pub(super) use self::restore::{Restoring, hasher_of, new_seeds};
pub(super) use self::role::Role;
pub(super) use self::rule_set::{ActiveDomain, ActiveRule, DomainId, OnceFlag, RuleSet};
pub(super) use self::values::SeenValues;

use crate::counting::{Hasher, Servers};
use crate::telemetry::Reloads;

/// Rules in force, with the usage of their clients.
///
/// Share it by reference or in an `Arc`; every method takes `&self`. A check takes no lock.
///
/// # Consistency
/// All rules that decide a request come from the same load. A reload never loses a charge. A request that is in
/// progress during a reload may be charged twice, which is stricter for the client. This happens in three cases: the
/// rule cannot refund (logs, sketches), the rule counts first, or the reload copied the charge before the refund.
///
/// # Examples
/// ```
/// use tollgate_rules::{Config, Descriptor, Rules};
///
/// let text = |limit| format!("domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {{ unit: day, requests_per_unit: {limit} }}");
/// let rules = Rules::from_yaml(&text(2))?;
/// let ask = || rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
/// assert!(ask().is_allowed() && ask().is_allowed() && ask().is_denied());
///
/// rules.replace([Config::from_yaml("rules", &text(3))?])?; // two units are still used
/// assert!(ask().is_allowed() && ask().is_denied());
/// assert!(rules.replace([Config::from_yaml("rules", &text(4))?]).is_ok());
/// # Ok::<(), tollgate_rules::RulesError>(())
/// ```
pub struct Rules<C = DefaultClock> {
    pub(in crate::engine) in_force: Published<RuleSet>,
    /// Allows one load at a time. Checks never take this lock.
    pub(in crate::engine) loading: Mutex<Loading>,
    /// Why the last load failed. It has its own lock, because a reader must not wait for a load.
    pub(in crate::engine) last_error: Mutex<Option<RulesError>>,
    /// What the first load takes over. It has its own lock for the same reason.
    pub(in crate::engine) restoring: Mutex<Restoring>,
    pub(in crate::engine) options: LoadOptions,
    pub(in crate::engine) hasher: Hasher,
    /// The secret seeds of the hasher.
    pub(in crate::engine) seeds: [u64; 4],
    pub(in crate::engine) clock: C,
    pub(in crate::engine) reloads: Reloads,
    pub(in crate::engine) observers: Observers,
    pub(in crate::engine) servers: Servers,
    /// Whether a load had rules that hold units.
    pub(in crate::engine) has_holds: OnceFlag,
}

/// Rules at a given time. Created by [`Rules::at`].
///
/// Each method does what the method of [`Rules`] with the same name does, but at this time instead of the clock's time.
#[derive(Debug)]
pub struct RulesAt<'r, C = DefaultClock> {
    pub(in crate::engine) rules: &'r Rules<C>,
    pub(in crate::engine) now: Timestamp,
}

impl<C> Clone for RulesAt<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for RulesAt<'_, C> {}

/// The observers of denials.
#[derive(Debug, Default)]
pub(in crate::engine) struct Observers {
    pub(super) top: Option<TopDenied>,
    pub(super) log: DenialLog,
}

impl<C: Clock> Rules<C> {
    /// Returns the clock.
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }
}

impl<C> Rules<C> {
    /// Locks the state of the loads. Waits until no other load is in progress.
    pub(super) fn loading(&self) -> MutexGuard<'_, Loading> {
        self.loading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks what the first load takes over. Waits for no load.
    pub(super) fn restoring(&self) -> MutexGuard<'_, Restoring> {
        self.restoring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> std::fmt::Debug for Rules<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the rules: their values may be customers' names and keys.
        let rules = self.in_force.load();
        let domains: Vec<(&str, usize)> =
            rules.domains.iter().map(|domain| (&*domain.name, domain.rules.len())).collect();
        f.debug_struct("Rules").field("rules_by_domain", &domains).finish_non_exhaustive()
    }
}
