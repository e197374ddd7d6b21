//! Reads `classes`: the values of a descriptor that share one count, each with a share of the burst.
//!
//! A descriptor with classes becomes one branch and one rule for each class. Their rules have the same counter.

use tollgate::Class;

use super::checker::Checker;
use super::keys::{FieldPath, MapFields};
use super::limit::Labelled;
use super::node::{FileNode, quoted};
use super::scalar::BadValue;
use crate::matching::Position;
use crate::rule::{Amount, Mode, Shared, Store};

/// The maximum number of classes of a descriptor.
const MOST: usize = 16;
/// The class of all other values.
const OTHERS: &str = "*";

/// One class of a descriptor.
#[derive(Copy, Clone, Debug)]
pub(super) struct ClassDraft<'n> {
    /// The value of the request's entry. `None` for all values that no other class has.
    pub(super) value: Option<&'n str>,
    pub(super) class: Class,
    pub(super) at: Position,
}

impl ClassDraft<'_> {
    pub(super) fn name(&self) -> &str {
        self.value.unwrap_or(OTHERS)
    }
}

impl Checker {
    /// Reads the classes of a descriptor with this key. Empty if it has none.
    pub(super) fn classes<'n>(
        &mut self,
        fields: &MapFields<'n, '_>,
        key: Option<&str>,
    ) -> Vec<ClassDraft<'n>> {
        if !fields.has("classes") {
            return Vec::new();
        }
        let remedy = "write a map from values to their shares, such as { critical: 100%, batch: 50% }";
        let entries = self.read(fields, "classes", |node| node.map(remedy)).unwrap_or_default();
        self.reject_beside_classes(fields, key);
        if entries.is_empty() || entries.len() > MOST {
            let message = format!("expected 1 to {MOST} classes, found {}", entries.len());
            self.wrong(fields, "classes", message, remedy);
            return Vec::new();
        }
        let path = fields.path.key("classes");
        entries.iter().filter_map(|(key, share)| self.class(key, share, &path)).collect()
    }

    fn class<'n>(
        &mut self,
        key: &'n FileNode,
        share: &FileNode,
        path: &FieldPath<'_>,
    ) -> Option<ClassDraft<'n>> {
        // It becomes a part of the rule's name.
        let name = self.take(key, path, key.name())?;
        let path = path.key(name);
        let read = match name {
            OTHERS => Ok(None),
            name if name.is_empty() || name.contains('*') => Err(BadValue::new(
                format!("{} is not the name of a class", quoted(name)),
                "write a value of the request's entry, or * for all other values",
            )),
            name => Ok(Some(name)),
        };
        let value = self.take(key, &path, read)?;
        let share = share.share().and_then(|share| match share {
            0 => Err(BadValue::new("a class with 0% admits nothing", "write a share above 0%")),
            share => Ok(share),
        });
        let class = Class::per_million(self.take(key, &path, share)?);
        Some(ClassDraft { value, class, at: key.at })
    }

    /// Reports limits that the classes cannot share, and shares that are less than a unit.
    pub(super) fn check_shares(
        &mut self,
        fields: &MapFields<'_, '_>,
        classes: &[ClassDraft<'_>],
        limits: &[Labelled],
    ) {
        let path = fields.path.key("classes");
        for (draft, _) in limits {
            if draft.rule.hold.is_some() || matches!(draft.rule.limit, Amount::InProgress { .. }) {
                let message = "classes cannot share a limit on units that requests hold";
                self.wrong(fields, "classes", message, "remove the classes, or hold and in_progress");
                continue;
            }
            if draft.rule.limit == Amount::Unlimited {
                let message = "classes have no share of unlimited: true";
                self.wrong(fields, "classes", message, "remove one of them");
            }
            let Amount::Limited { limit, store } = &draft.rule.limit else { continue };
            if let Some(Store::Redis(Shared { mode, .. })) = store
                && *mode != Mode::Atomic
            {
                let message = format!(
                    "classes cannot share a limit in the mode {mode}: units that a process holds belong to no class"
                );
                let remedy = "write mode: atomic, use store: compact or keyed, or remove the classes";
                self.wrong(fields, "classes", message, remedy);
            }
            if limit.block().is_some() {
                let message =
                    "classes cannot share a limit with block: a denial of one class would block them all";
                self.wrong(fields, "classes", message, "remove the block or the classes");
            }
            let most = limit.most();
            for one in classes.iter().filter(|one| one.class.headroom(most) == most) {
                let message = format!("less than one of {most} units is left for this class");
                let path = path.key(one.name());
                self.problems.add(one.at, path, message, "raise its share, or the limit or burst");
            }
        }
    }

    /// Reports what cannot be used together with classes.
    fn reject_beside_classes(&mut self, fields: &MapFields<'_, '_>, key: Option<&str>) {
        for (other, why) in [
            ("value", "the classes are the values"),
            ("ranges", "the classes are the values"),
            ("prefixes", "a prefix has a count of its own"),
            ("share_threshold", "classes share one counter in any case"),
            ("tiers", "a tier has a count of its own"),
            ("descriptors", "the entry with the class must be the last one"),
        ] {
            if fields.has(other) {
                let message = format!("{other} and classes cannot be used together: {why}");
                self.wrong(fields, other, message, "remove one of them");
            }
        }
        if key.is_some_and(|key| key.contains('*')) {
            let message = "a descriptor with classes needs a key without a `*`";
            self.wrong(fields, "key", message, "write the key of the entry that holds the class");
        }
        if !fields.has("rate_limit") && !fields.has("rate_limits") {
            let message = "these classes have no limit to share";
            self.wrong(fields, "classes", message, "write rate_limit, or remove the classes");
        }
    }
}
