//! Reads `prefixes`: a limit for each of several lengths of an address's prefix.

use std::cmp::Reverse;

use super::check::RulePlace;
use super::checker::Checker;
use super::identity::{LimitLabel, RulePath};
use super::keys::{MapFields, MapKind};
use super::limit::Draft;
use super::node::{Value, quoted};
use super::ranges::length_of;
use super::scalar::BadValue;
use crate::matching::Position;
use crate::rule::Amount;

/// The limit of one length.
#[derive(Debug)]
struct PrefixDraft {
    bits: u8,
    at: Position,
    draft: Draft,
}

impl Checker {
    /// Reads the key `prefixes`, and adds a rule for each prefix. Returns where the rules for IPv4 begin; `None` without
    /// the key.
    pub(super) fn prefixes(
        &mut self,
        fields: &MapFields<'_, '_>,
        way: &RulePath,
        place: RulePlace<'_>,
    ) -> Option<usize> {
        let node = fields.get("prefixes")?;
        let path = fields.path.key("prefixes");
        for limit in ["rate_limit", "rate_limits"].into_iter().filter(|key| fields.has(key)) {
            let message = format!("prefixes and {limit} cannot be used together");
            self.wrong(fields, "prefixes", message, "keep one of them");
        }
        let is_shared = place.shares.then(|| {
            BadValue::new("share_threshold makes one counter for all addresses", "remove one of them")
        });
        self.take(node, &path, is_shared.map_or_else(|| place.values.check_prefixes(), Err))?;
        if let Value::Map(entries) = &node.kind
            && let Some((key, length)) =
                entries.iter().find_map(|(key, _)| Some((key, length_of(key.text().ok()?, 128)?)))
        {
            let message = format!("the length {length} is not below a kind of address");
            self.problems.add(key.at, path, message, "write ipv4: { 32: … } and ipv6: { 64: … }");
            return None;
        }
        let of_kinds = self.fields(node, MapKind::PREFIXES, &path)?;
        let [needs_ipv4, needs_ipv6] = place.values.kinds();
        let mut ipv6 = self.steps(&of_kinds, ("ipv6", 128, "64"), needs_ipv6);
        let ipv4 = self.steps(&of_kinds, ("ipv4", 32, "32"), needs_ipv4);
        // The longest prefixes of both kinds are next to each other.
        ipv6.reverse();
        let ipv4_from = self.rules.len() + ipv6.len();
        let steps =
            ipv6.into_iter().map(|step| ("ipv6", step)).chain(ipv4.into_iter().map(|step| ("ipv4", step)));
        for (kind, PrefixDraft { bits, draft, .. }) in steps {
            let label = LimitLabel { kind: "prefix", text: format!("{kind}/{bits}").into() };
            let place = RulePlace { prefix: Some(bits), ..place };
            self.check_distinct(&draft, way, &place, false);
            self.rule(draft, way, place, Some(&label), None);
        }
        Some(ipv4_from)
    }

    /// Reads the limits of one kind of addresses, from the longest prefix to the shortest.
    fn steps(
        &mut self,
        fields: &MapFields<'_, '_>,
        (kind, most, usual): (&str, u8, &str),
        is_needed: bool,
    ) -> Vec<PrefixDraft> {
        let entries =
            self.read(fields, kind, |node| node.map("write a map from lengths of prefixes to limits"));
        let path = fields.path.key(kind);
        if is_needed && (!fields.has(kind) || entries.is_some_and(<[_]>::is_empty)) {
            let message = format!("the addresses of {kind} have no limit");
            let remedy = format!(
                "write {kind}: {{ {usual}: {{ … }} }}; to set no limit, write {usual}: {{ unlimited: true }}"
            );
            self.problems.add(fields.node.at, path, message, remedy);
        }
        let mut steps = Vec::new();
        for (key, value) in entries.unwrap_or_default() {
            let bits = key.text().and_then(|text| {
                length_of(text, most).filter(|bits| *bits > 0).ok_or_else(|| {
                    let message = format!("{} is not a length of a prefix", quoted(text));
                    BadValue::new(message, format!("write a whole number from 1 to {most}"))
                })
            });
            let Some(bits) = self.take(key, &path, bits) else { continue };
            if let Some(draft) = self.limit(value, &path.key(&bits.to_string())) {
                steps.push(PrefixDraft { bits, at: key.at, draft });
            }
        }
        steps.sort_by_key(|step| Reverse(step.bits));
        for (inner, outer) in steps.iter().zip(steps.iter().skip(1)) {
            if !is_at_most(&inner.draft.rule.limit, &outer.draft.rule.limit) {
                let (long, short) = (inner.bits, outer.bits);
                let message = format!(
                    "the limit of /{short} is below the limit of /{long}, and all addresses of a /{long} are in one /{short}"
                );
                self.problems.add(outer.at, path, message, format!("raise it, or remove /{long}"));
            }
        }
        steps
    }
}

/// Whether the rate of the first limit is at most that of the second.
fn is_at_most(one: &Amount, other: &Amount) -> bool {
    match (one, other) {
        (_, Amount::Unlimited) | (Amount::Blocked { .. }, _) => true,
        (Amount::Unlimited, _) | (_, Amount::Blocked { .. }) => false,
        (Amount::InProgress { most: one, .. }, Amount::InProgress { most: other, .. }) => one <= other,
        // They limit different things.
        (Amount::InProgress { .. }, _) | (_, Amount::InProgress { .. }) => true,
        (Amount::Limited { limit: one, .. }, Amount::Limited { limit: other, .. }) => {
            let (one, other) = (one.quota(), other.quota());
            let crossed = |limit: u64, period: u64| u128::from(limit) * u128::from(period);
            crossed(one.limit(), other.period_ns()) <= crossed(other.limit(), one.period_ns())
        }
    }
}
