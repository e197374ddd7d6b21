//! The kind of the store in which a process counts a rule, also if the file names none.

use std::time::Duration;

use ahash::RandomState;
use tollgate::stores::AnyStore;
use tollgate::{Limit, LimitKind, StoreConfig, StoreKind};

use crate::rule::{Amount, Rule, RuleHold, Store};

/// The longest life of a hold of a rule that does not set it.
const LONGEST_HOLD: Duration = Duration::from_secs(600);

/// Returns the kind of the store in which a process counts a limit: the file's, or the one that is chosen if the file has
/// none. A rule that all requests share (`is_one`) has one state.
pub fn store_kind_of(store: Option<Store>, is_one: bool, limit: &Limit, overdraft: u64) -> StoreKind {
    match store {
        _ if is_one => StoreKind::Direct,
        Some(Store::Local(config)) => config.kind(),
        // A keyed store forgets no block before it ends, as long as it has room.
        None if limit.block().is_some() => StoreKind::Keyed,
        // A shared rule has a store in this process if the process decides alone.
        None | Some(Store::Redis(_)) if fits_compact(limit, overdraft) => StoreKind::Compact,
        None | Some(Store::Redis(_)) => StoreKind::Keyed,
    }
}

impl Rule {
    /// Returns the store in which a process counts the rule: the file's, or the one that is chosen if the file has none. A
    /// rule that all requests share counts in a direct one. Returns `None` for a rule that needs no store, and for one that
    /// a server counts.
    ///
    /// # Examples
    /// ```
    /// use tollgate::StoreKind;
    /// use tollgate_config::Config;
    ///
    /// let config = Config::from_yaml("limits.yaml", "
    /// domain: shop
    /// descriptors:
    ///   - { key: user, rate_limit: { unit: day, requests_per_unit: 100 } }
    ///   - { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 100 } }
    /// ")?;
    /// let kinds: Vec<_> = config.rules().iter().map(|rule| rule.store_kind()).collect();
    /// assert_eq!(kinds, [Some(StoreKind::Compact), Some(StoreKind::Direct)]);
    /// # Ok::<(), tollgate_config::ConfigError>(())
    /// ```
    #[must_use]
    pub fn store_kind(&self) -> Option<StoreKind> {
        let Amount::Limited { limit, store } = &self.limit else { return None };
        let overdraft = if self.hold.is_some() { limit.most() } else { 0 };
        let is_shared = matches!(store, Some(Store::Redis(_)));
        (!is_shared).then(|| store_kind_of(*store, self.has_one_counter(), limit, overdraft))
    }

    /// Lets requests hold all units of the limit, if it has no `hold` of its own and can give units back.
    #[doc(hidden)]
    pub fn hold_by_default(&mut self) {
        let Amount::Limited { limit, store } = &self.limit else { return };
        let gives_back = match store.as_ref().map(Store::kind) {
            // A store that processes share has no kind.
            Some(None | Some(StoreKind::Sketch)) => false,
            Some(Some(StoreKind::Compact)) => fits_compact(limit, limit.most()),
            Some(Some(StoreKind::Keyed | StoreKind::Direct)) | None => true,
        };
        if gives_back && !self.distinct && limit.kind() != LimitKind::SlidingLog && self.hold.is_none() {
            self.hold = Some(Box::new(RuleHold { life: LONGEST_HOLD, most: limit.most(), units: None }));
        }
    }
}

/// Whether a compact store can hold the limit, and debts of this many units beyond it.
fn fits_compact(limit: &Limit, overdraft: u64) -> bool {
    let config = StoreConfig::new(StoreKind::Compact).with_capacity(Store::MEMORY).with_overdraft(overdraft);
    AnyStore::<String>::new(config, *limit, &RandomState::new()).is_ok()
}
