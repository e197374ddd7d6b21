//! Reads `distinct`: a limit on the number of different values of the last entry, for each key of the others.

use tollgate::{LimitKind, StoreKind};

use super::check::RulePlace;
use super::checker::Checker;
use super::identity::RulePath;
use super::keys::MapFields;
use super::limit::Draft;
use crate::matching::Position;
use crate::rule::{Amount, Charging};

/// The path in messages about a limit whose place does not fit.
const PATH: &str = "rate_limit.distinct";

impl Checker {
    /// Returns the position of `distinct: true` of a limit, and reports limits that cannot count values.
    pub(super) fn distinct(&mut self, fields: &MapFields<'_, '_>, limit: &Amount) -> Option<Position> {
        if !self.flag(fields, "distinct") {
            return None;
        }
        let charging = self.settings.charging;
        if let Some(charging) = charging.filter(|charging| charging.counts_denied()) {
            let message =
                format!("cannot be used with charging: {charging}: a value that is denied is not counted");
            self.wrong(fields, "distinct", message, format!("use charging: {}", Charging::AllOrNothing));
        }
        let at = fields.at("distinct");
        let (message, remedy) = match limit {
            _ if fields.has("hold") => {
                ("cannot be used with hold: a known value stays known".to_owned(), "remove one of them")
            }
            Amount::Limited { limit, .. } if limit.kind() != LimitKind::FixedWindow => {
                let name = limit.kind().name();
                let message = format!("{name} counts no different values: they are known for one window");
                (message, "use algorithm: fixed-window with a unit")
            }
            Amount::Limited { store: Some(store), .. }
                if matches!(store.kind(), None | Some(StoreKind::Sketch)) =>
            {
                let why = "this process keeps them beside an exact count";
                (
                    format!("the {store} store counts no different values: {why}"),
                    "use store: compact or keyed",
                )
            }
            Amount::Blocked { .. } => {
                ("has no effect: the limit is 0, so all requests are denied".to_owned(), "remove it")
            }
            Amount::Limited { .. } | Amount::Unlimited | Amount::InProgress { .. } => return Some(at),
        };
        self.wrong(fields, "distinct", message, remedy);
        Some(at)
    }

    /// Reports a limit on different values at a place without different values.
    pub(super) fn check_distinct(
        &mut self,
        draft: &Draft,
        way: &RulePath,
        place: &RulePlace<'_>,
        in_class: bool,
    ) {
        let Some(at) = draft.distinct else { return };
        let (message, remedy) = if in_class {
            ("cannot be used with classes: they share one count of all values", "remove one of them")
        } else if place.prefix.is_some() {
            (
                "cannot be used with prefixes: they count addresses together",
                "write it in a rate_limit of its own descriptor",
            )
        } else if place.tier.is_some() {
            ("cannot be used in a tier: the values of its members are known", "write it outside tiers")
        } else if way.counted_by() & way.last_bit() == 0 {
            (
                "this descriptor has one value, or a count for all of its values",
                "write it below a descriptor with a key, and without value or share_threshold",
            )
        } else {
            return;
        };
        self.problems.add(at, PATH, message, remedy);
    }
}
