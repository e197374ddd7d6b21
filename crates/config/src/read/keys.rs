//! The keys that a map may have. Envoy's service accepts its own keys anywhere. Tollgate's keys are accepted
//! only in their place.

use std::fmt;

use super::checker::Checker;
use super::node::{FileNode, Scalar, Value, quoted};
use super::scalar::{BadValue, short};
use crate::matching::Position;

/// The path of a value in the file, for messages: `descriptors[2].rate_limit.unit`.
#[derive(Copy, Clone, Debug)]
pub(super) enum FieldPath<'p> {
    Root,
    Key(&'p FieldPath<'p>, &'p str),
    Index(&'p FieldPath<'p>, usize),
}

impl<'p> FieldPath<'p> {
    pub(super) fn key(&'p self, key: &'p str) -> FieldPath<'p> {
        FieldPath::Key(self, key)
    }

    pub(super) fn index(&'p self, index: usize) -> FieldPath<'p> {
        FieldPath::Index(self, index)
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => write_short(f, key),
            Self::Key(above, key) => {
                write!(f, "{above}.")?;
                write_short(f, key)
            }
            Self::Index(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

/// Writes the beginning of a key, as much as fits into a path. A path is a part of a line, so characters that could end the line, or
/// show it in another order, are escaped.
fn write_short(f: &mut fmt::Formatter<'_>, key: &str) -> fmt::Result {
    for letter in key.chars().take(40) {
        match letter {
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => write!(f, "{}", letter.escape_unicode())?,
            letter if letter.is_control() => write!(f, "{}", letter.escape_debug())?,
            letter => write!(f, "{letter}")?,
        }
    }
    Ok(())
}

/// A kind of map in a file: its name in messages, and the keys that have an effect in it. Some keys belong to Envoy's
/// language, and some to Tollgate.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct MapKind {
    called: &'static str,
    envoys: &'static str,
    ours: &'static str,
}

impl MapKind {
    pub(super) const ROOT: Self =
        Self { called: "the file's top-level map", envoys: "domain descriptors", ours: "tollgate" };
    pub(super) const SETTINGS: Self = Self {
        called: "the `tollgate` map",
        envoys: "",
        ours: "charging algorithm store memory shadow enforced mode on_failure processes timeout",
    };
    pub(super) const DESCRIPTOR: Self = Self {
        called: "a descriptor",
        envoys: "key value rate_limit descriptors shadow_mode quota_mode detailed_metric value_to_metric \
                 share_threshold metadata",
        ours: "rate_limits tiers classes ranges prefixes",
    };
    pub(super) const RATE_LIMIT: Self = Self {
        called: "rate_limit",
        envoys: "unit requests_per_unit unlimited name replaces",
        ours: "period time_zone starts algorithm burst every block hold in_progress distinct strict parts store memory \
               max_keys soft enforced headers mode on_failure processes timeout",
    };
    pub(super) const STARTS: Self = Self { called: "starts", envoys: "", ours: "month day weekday hour" };
    pub(super) const REPLACED: Self = Self { called: "an item of replaces", envoys: "name", ours: "" };
    pub(super) const TIER: Self =
        Self { called: "a tier", envoys: "", ours: "members ranges rate_limit rate_limits prefixes" };
    pub(super) const PREFIXES: Self = Self { called: "prefixes", envoys: "", ours: "ipv4 ipv6" };

    pub(super) const BLOCK: Self = Self { called: "block", envoys: "", ours: "for at_most" };

    pub(super) const HOLD: Self = Self { called: "hold", envoys: "", ours: "life most units" };

    const ALL: [Self; 10] = [
        Self::ROOT,
        Self::SETTINGS,
        Self::DESCRIPTOR,
        Self::RATE_LIMIT,
        Self::STARTS,
        Self::REPLACED,
        Self::TIER,
        Self::PREFIXES,
        Self::BLOCK,
        Self::HOLD,
    ];

    fn envoys(self) -> impl Iterator<Item = &'static str> {
        self.envoys.split_ascii_whitespace()
    }

    pub(super) fn ours(self) -> impl Iterator<Item = &'static str> {
        self.ours.split_ascii_whitespace()
    }

    fn of_envoy(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.envoys().any(|envoys| envoys == key))
    }

    fn of_ours(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.ours().any(|ours| ours == key))
    }
}

/// A map whose keys have been checked.
#[derive(Debug)]
pub(super) struct MapFields<'n, 'p> {
    pub(super) node: &'n FileNode,
    pub(super) path: FieldPath<'p>,
    entries: Vec<(&'n str, &'n FileNode)>,
}

impl<'n> MapFields<'n, '_> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns the position of a key's value, or the position of the map.
    pub(super) fn at(&self, key: &str) -> Position {
        self.get(key).unwrap_or(self.node).at
    }

    /// Returns the value of a key, unless the value is null.
    pub(super) fn get(&self, key: &str) -> Option<&'n FileNode> {
        self.entry(key).filter(|node| !matches!(node.kind, Value::Null))
    }

    /// Returns the value of a key, which may be null.
    pub(super) fn entry(&self, key: &str) -> Option<&'n FileNode> {
        self.entries.iter().find(|(name, _)| *name == key).map(|&(_, node)| node)
    }
}

impl Checker {
    /// Reports a problem with a key.
    pub(super) fn wrong(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        message: impl Into<Box<str>>,
        remedy: impl Into<Box<str>>,
    ) {
        self.problems.add(fields.at(key), fields.path.key(key), message, remedy);
    }

    /// Reports each of these keys that a map has.
    pub(super) fn reject<'k>(
        &mut self,
        fields: &MapFields<'_, '_>,
        keys: impl IntoIterator<Item = &'k str>,
        message: impl Fn(&str) -> String,
        remedy: &str,
    ) {
        for key in keys.into_iter().filter(|key| fields.has(key)) {
            self.wrong(fields, key, message(key), remedy);
        }
    }

    /// Returns the result of reading a node. `None` for a bad value, which is reported.
    pub(super) fn take<T>(
        &mut self,
        node: &FileNode,
        path: &FieldPath<'_>,
        read: Result<T, BadValue>,
    ) -> Option<T> {
        read.map_err(|bad| self.problems.add(node.at, path, bad.message, bad.remedy)).ok()
    }

    /// Reads the value of a key. `None` for a missing value, and for a bad one, which is reported.
    pub(super) fn read<'n, T>(
        &mut self,
        fields: &MapFields<'n, '_>,
        key: &str,
        read: impl FnOnce(&'n FileNode) -> Result<T, BadValue>,
    ) -> Option<T> {
        let node = fields.get(key)?;
        self.take(node, &fields.path.key(key), read(node))
    }

    /// Reads a key's whole number, from `least` to `most`.
    pub(super) fn number<T: TryFrom<u64> + TryInto<u64>>(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        least: u64,
        most: T,
    ) -> Option<T> {
        let most = most.try_into().unwrap_or(u64::MAX);
        let number = self.read(fields, key, |node| node.number(least, most))?;
        T::try_from(number).ok()
    }

    /// Whether a key is true. A missing key is false.
    pub(super) fn flag(&mut self, fields: &MapFields<'_, '_>, key: &str) -> bool {
        self.read(fields, key, FileNode::yes).unwrap_or(false)
    }

    /// Returns the keys that a map may have.
    fn keys(&self, kind: MapKind) -> Vec<&'static str> {
        kind.envoys().chain(kind.ours().filter(|_| self.extended)).collect()
    }

    /// Returns a map with checked keys. `None` if the node is not a map, which is reported.
    pub(super) fn fields<'n, 'p>(
        &mut self,
        node: &'n FileNode,
        kind: MapKind,
        path: &FieldPath<'p>,
    ) -> Option<MapFields<'n, 'p>> {
        let Value::Map(map) = &node.kind else {
            let message = format!("expected a map, found {}", node.shown());
            let keys = self.keys(kind).join(", ");
            self.problems.add(node.at, path, message, format!("write a map with the keys {keys}"));
            return None;
        };
        let mut entries = Vec::with_capacity(map.len());
        for (key, value) in map {
            let Some(name) = self.name(key, path) else { continue };
            let ours = kind.ours().filter(|_| self.extended || name == "tollgate");
            if kind.envoys().chain(ours).any(|key| key == name) {
                entries.push((name, value));
            } else if let Some(right) = MapKind::of_envoy(name).filter(|_| kind != MapKind::SETTINGS) {
                let place = right.called;
                let message = format!("{name} has no effect in {}", kind.called);
                self.warnings.add(key.at, path.key(name), message, format!("move it to {place}"));
                self.known(value, &path.key(name), name);
            } else {
                self.unknown(key, name, kind, path);
            }
        }
        Some(MapFields { node, path: *path, entries })
    }

    /// Returns the text of a key. `None` if the key is not text, which is reported.
    fn name<'n>(&mut self, key: &'n FileNode, path: &FieldPath<'_>) -> Option<&'n str> {
        let name = key.as_key().ok_or_else(|| {
            let message = match &key.kind {
                Value::Scalar(_, text) => format!("keys must be text, found {}", short(text)),
                _ => format!("{} cannot be a key", key.shown()),
            };
            BadValue::new(message, "use words such as key, value or rate_limit")
        });
        self.take(key, path, name)
    }

    fn unknown(&mut self, key: &FileNode, name: &str, kind: MapKind, path: &FieldPath<'_>) {
        // The search for the nearest key takes long.
        if self.problems.skip() {
            return;
        }
        let message = format!("{} has no key {}", kind.called, quoted(name));
        let keys = self.keys(kind);
        let remedy = match MapKind::of_ours(name) {
            Some(right) if !self.extended => format!(
                "it is an extra key of {}; to use extra keys, add `tollgate: {{}}` at the top of the file",
                right.called
            ),
            Some(right) => format!("move it to {}", right.called),
            None if name == "<<" => "merge keys are not supported; write the keys out".to_owned(),
            None => match nearest(name, &keys) {
                Some(meant) => format!("did you mean {meant}?"),
                None => format!("use {}", keys.join(", ")),
            },
        };
        self.problems.add(key.at, path.key(name), message, remedy);
    }

    /// Checks a value that has no effect: it may have only Envoy's keys, as in Envoy's service.
    fn known(&mut self, node: &FileNode, path: &FieldPath<'_>, name: &str) {
        match &node.kind {
            _ if name == "metadata" => {}
            Value::Scalar(scalar @ (Scalar::Float | Scalar::Integer), text) if !scalar.is_text(text) => {
                let message = format!("expected text or a whole number, found {}", short(text));
                self.problems.add(node.at, path, message, "put it in quotes");
            }
            Value::Null | Value::Scalar(..) => {}
            Value::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.index(index);
                    if self.take(item, &path, item.map("write a map")).is_some() {
                        self.known(item, &path, "");
                    }
                }
            }
            Value::Map(entries) => {
                for (key, value) in entries {
                    let Some(name) = self.name(key, path) else { continue };
                    if MapKind::of_envoy(name).is_some() {
                        self.known(value, &path.key(name), name);
                    } else {
                        let message = format!("no key is called {}", quoted(name));
                        self.problems.add(key.at, path.key(name), message, "remove it");
                    }
                }
            }
        }
    }
}

/// Returns the key that the author probably meant.
fn nearest(name: &str, keys: &[&'static str]) -> Option<&'static str> {
    // A long name is unlikely to be a misspelt key, and the comparison would take long.
    let likeness = |key: &&'static str| (strsim::jaro_winkler(name, key), *key);
    let all = keys.iter().filter(|_| name.len() <= 64).map(likeness);
    all.filter(|&(likeness, _)| likeness > 0.8)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|best| best.1)
}
