//! Reads `hold` and `in_progress`: units that a request holds until its end.

use std::time::Duration;

use tollgate::{LimitKind, StoreKind};

use super::block::length;
use super::checker::Checker;
use super::keys::{MapFields, MapKind};
use super::node::FileNode;
use crate::rule::{Amount, Charging, MILLION, RuleHold, Store};

/// The life of a hold, if the file sets none.
const HOLD_LIFE: Duration = Duration::from_secs(60);
/// How long a request is in progress at most, if the file sets no other time.
const PROGRESS_LIFE: Duration = Duration::from_secs(600);

impl Checker {
    /// Reads the `hold` of a limit. A bad value is reported.
    pub(super) fn hold(&mut self, fields: &MapFields<'_, '_>, limit: &Amount) -> Option<Box<RuleHold>> {
        let node = fields.get("hold")?;
        self.reject_count_first(fields, "hold");
        let (message, remedy) = match limit {
            Amount::Limited { store: Some(Store::Redis(_)), .. } => (
                "a limit that processes share has no holds in rules",
                "use another store, or tollgate_redis::HoldingLimiter in code",
            ),
            Amount::Limited { store: Some(store), .. } if store.kind() == Some(StoreKind::Sketch) => {
                ("a sketch cannot give units back", "use store: compact or keyed")
            }
            Amount::Limited { limit, .. } if limit.kind() == LimitKind::SlidingLog => {
                ("a log cannot give units back", "use another algorithm, such as sliding-window")
            }
            Amount::Limited { limit, .. } => return self.hold_of(node, fields, limit.most()),
            _ => ("the limit is 0, so there is nothing to hold", "remove it"),
        };
        self.wrong(fields, "hold", message, remedy);
        None
    }

    /// Reports units that requests hold in a file that charges denied requests first.
    fn reject_count_first(&mut self, fields: &MapFields<'_, '_>, key: &str) {
        if self.settings.charging == Some(Charging::CountFirst) {
            let message = "cannot be used with charging: count-first: a denied request would hold units";
            self.wrong(fields, key, message, "use charging: all-or-nothing or count-denials");
        }
    }

    fn hold_of(&mut self, node: &FileNode, above: &MapFields<'_, '_>, limit: u64) -> Option<Box<RuleHold>> {
        let path = above.path.key("hold");
        let fields = self.fields(node, MapKind::HOLD, &path)?;
        let life = self.read(&fields, "life", length).unwrap_or(HOLD_LIFE);
        let share = self.read(&fields, "most", FileNode::share).unwrap_or(MILLION);
        let most = u128::from(limit) * u128::from(share) / u128::from(MILLION);
        // At most the limit, because the share is at most 100 %.
        let most = u64::try_from(most).unwrap_or(limit);
        if most == 0 {
            let message = format!("less than one of {limit} units could be held");
            self.wrong(&fields, "most", message, "raise it, or the limit or burst");
            return None;
        }
        let units = self.number(&fields, "units", 1, most);
        Some(Box::new(RuleHold { life, most, units }))
    }

    /// Reads a limit on the requests in progress. A bad value is reported.
    pub(super) fn in_progress(
        &mut self,
        fields: &MapFields<'_, '_>,
    ) -> Option<(Amount, Option<Box<RuleHold>>)> {
        let most = self.number(fields, "in_progress", 1, u32::MAX);
        let others = MapKind::RATE_LIMIT.ours().filter(|key| !IN_PROGRESS.contains(key));
        let message = |key: &str| format!("{key} cannot be used with in_progress");
        let remedy = "remove it, or write a second limit in rate_limits";
        self.reject(fields, others.chain(["unit", "requests_per_unit"]), message, remedy);
        if let Some(Store::Redis(_)) = self.settings.store {
            let message =
                "requests in progress of rules are counted in each process, and this file's store is redis";
            let remedy =
                "write it in a file without store: redis, or use tollgate_redis::InProgressLimiter in code";
            self.wrong(fields, "in_progress", message, remedy);
        }
        self.reject_count_first(fields, "in_progress");
        let (mut life, mut units) = (PROGRESS_LIFE, None);
        if let Some(node) = fields.get("hold") {
            let path = fields.path.key("hold");
            let fields = self.fields(node, MapKind::HOLD, &path)?;
            if fields.has("most") {
                self.wrong(&fields, "most", "most cannot be used with in_progress", "remove it");
            }
            life = self.read(&fields, "life", length).unwrap_or(life);
            // A request is one unit.
            units = self.number(&fields, "units", 1, 1_u64);
        }
        let most = u64::from(most?);
        let hold = units.map(|_| Box::new(RuleHold { life, most, units }));
        Some((Amount::InProgress { most, life }, hold))
    }
}

/// The keys that a limit on the requests in progress may have.
const IN_PROGRESS: [&str; 4] = ["in_progress", "hold", "enforced", "headers"];
