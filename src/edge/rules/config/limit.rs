//! `rate_limit`: how much, by which algorithm, in which store.

use std::time::Duration;

use super::fits;
use super::identity::Which;
use super::keys::{Context, Fields, Path, Room};
use super::node::{Kind, Node, quoted};
use super::settings::{Place, Settings, Word};
use super::shared;
use crate::edge::rules::{Algorithm, Limit, Mode, Store};
use crate::{Capacity, Quota};

const DAY: u64 = 86_400;
/// Envoy's units in seconds; its month has 30 days, and its year 365.
const UNITS: [(&str, u64); 7] = [
    ("second", 1),
    ("minute", 60),
    ("hour", 3_600),
    ("day", DAY),
    ("week", 7 * DAY),
    ("month", 30 * DAY),
    ("year", 365 * DAY),
];
/// Without a size in the file.
const DEFAULT_MEMORY: usize = 1 << 20;
const DEFAULT_PARTS: u32 = 60;

/// What one `rate_limit` says, before it is known whose it is.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) line: usize,
    pub(super) name: Option<Box<str>>,
    /// Its unit, to tell it from others of its descriptor.
    pub(super) unit: Box<str>,
    pub(super) limit: Limit,
    pub(super) soft: u64,
    pub(super) enforced: u32,
    pub(super) replaces: Vec<Box<str>>,
}

impl Draft {
    /// What tells it from others of its descriptor.
    pub(super) fn which(&self) -> Which {
        match &self.name {
            Some(name) => Which::Name(name.clone()),
            None => Which::Unit(self.unit.clone()),
        }
    }
}

/// The quota before its algorithm.
#[derive(Copy, Clone, Debug)]
struct Amount {
    limit: u64,
    period: Duration,
}

impl Context {
    /// `None` if it cannot be read, which is told.
    pub(super) fn limit(&mut self, node: &Node, path: &Path<'_>, defaults: &Settings) -> Option<Draft> {
        let fields = self.fields(node, Room::RateLimit, path)?;
        let unlimited = fields.get("unlimited");
        let unlimited = unlimited.and_then(|node| self.yes(node, &path.key("unlimited"))).unwrap_or(false);
        let name = fields.get("name").and_then(|node| self.text(node, &path.key("name")));
        let name: Option<Box<str>> = name.filter(|name| !name.is_empty()).map(Box::from);
        let replaces = self.replaces(&fields, path, name.as_deref());
        let enforced = fields.get("enforced").and_then(|node| self.share(node, &path.key("enforced")));
        let draft = |unit, limit, soft| Draft {
            line: node.at.line as usize,
            name,
            unit,
            limit,
            soft,
            enforced: enforced.unwrap_or(defaults.enforced),
            replaces,
        };
        if unlimited {
            self.nothing_else(&fields, path);
            return Some(draft("unlimited".into(), Limit::Unlimited, u64::MAX));
        }
        let unit = self.unit(&fields, path);
        let every = fields.get("every");
        let every =
            every.and_then(|node| self.number(node, &path.key("every"), 1, u64::from(u32::MAX))).unwrap_or(1);
        let limit = match fields.get("requests_per_unit") {
            Some(node) => self.number(node, &path.key("requests_per_unit"), 0, u64::from(u32::MAX)),
            None => {
                let message = "without requests_per_unit this refuses every request";
                let remedy =
                    "write requests_per_unit: 0 if that is meant, else the limit, or unlimited: true";
                self.warnings.add(node.at, path, message, remedy);
                Some(0)
            }
        };
        let parameters = self.parameters(&fields, path, defaults);
        let (unit, seconds) = unit?;
        let amount = Amount { limit: limit?, period: Duration::from_secs(seconds.saturating_mul(every)) };
        let (limit, soft) = self.quota(&fields, path, amount, &parameters?)?;
        let unit = if every == 1 { unit.into() } else { format!("{every}-{unit}").into() };
        Some(draft(unit, limit, soft))
    }

    fn unit(&mut self, fields: &Fields<'_>, path: &Path<'_>) -> Option<(&'static str, u64)> {
        let remedy = "use second, minute, hour, day, week, month or year";
        let Some(node) = fields.get("unit") else {
            self.problems.add(fields.node().at, path, "there is no unit", remedy);
            return None;
        };
        let path = path.key("unit");
        let text = self.text(node, &path)?;
        let unit = UNITS.into_iter().find(|(unit, _)| unit.eq_ignore_ascii_case(text));
        if unit.is_none() {
            self.problems.add(node.at, path, format!("{} is no unit", quoted(text)), remedy);
        }
        unit
    }

    fn nothing_else(&mut self, fields: &Fields<'_>, path: &Path<'_>) {
        let ours =
            ["unit", "every", "algorithm", "burst", "strict", "parts", "store", "memory", "max_keys", "soft"];
        for key in ours.into_iter().chain(shared::KEYS) {
            let Some(node) = fields.get(key) else { continue };
            if matches!(&node.kind, Kind::Scalar(_, text) if text.is_empty()) {
                continue;
            }
            let message = format!("what is unlimited has no {key}");
            self.problems.add(node.at, path.key(key), message, "remove it, or unlimited");
        }
        if let Some(node) = fields.get("requests_per_unit") {
            let path = path.key("requests_per_unit");
            self.number(node, &path, 0, u64::from(u32::MAX));
            self.warnings.add(node.at, path, "has no effect beside unlimited: true", "remove one of them");
        }
    }

    fn replaces(&mut self, fields: &Fields<'_>, path: &Path<'_>, own: Option<&str>) -> Vec<Box<str>> {
        let Some(node) = fields.get("replaces") else { return Vec::new() };
        let path = path.key("replaces");
        let Some(items) = self.list(node, &path) else { return Vec::new() };
        let mut names = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            let Some(fields) = self.fields(item, Room::Replaced, &path) else { continue };
            let at = fields.get("name").unwrap_or(item);
            let name = match fields.get("name") {
                Some(node) => self.text(node, &path.key("name")),
                None => Some(""),
            };
            match name {
                Some("") => {
                    let remedy = "write the name of the rule that this one switches off";
                    self.problems.add(at.at, path.key("name"), "there is no name", remedy);
                }
                Some(name) if Some(name) == own => {
                    let message = format!("a rule cannot replace itself, {}", quoted(name));
                    self.problems.add(at.at, path.key("name"), message, "name another rule");
                }
                Some(name) => names.push(name.into()),
                None => {}
            }
        }
        names
    }

    /// A list.
    pub(super) fn list<'n>(&mut self, node: &'n Node, path: &Path<'_>) -> Option<&'n [Node]> {
        if let Kind::List(items) = &node.kind {
            return Some(items);
        }
        self.problems.add(
            node.at,
            path,
            format!("{} is no list", node.shown()),
            "write a list, each item after a dash",
        );
        None
    }
}

/// Algorithm and store, as they were named.
#[derive(Debug)]
struct Parameters {
    word: Word,
    algorithm: Algorithm,
    store: Option<Store>,
}

impl Context {
    fn parameters(
        &mut self,
        fields: &Fields<'_>,
        path: &Path<'_>,
        defaults: &Settings,
    ) -> Option<Parameters> {
        let before = self.problems.len();
        let word = match fields.get("algorithm") {
            Some(node) => self.algorithm(node, &path.key("algorithm")),
            None => Some(defaults.algorithm.unwrap_or_default()),
        };
        let strict = fields.get("strict").and_then(|node| self.yes(node, &path.key("strict")));
        let parts = fields
            .get("parts")
            .and_then(|node| self.number(node, &path.key("parts"), 1, u64::from(u32::MAX)))
            .and_then(|parts| u32::try_from(parts).ok());
        let store = self.store_of(fields, path, word, defaults);
        let word = word?;
        let only = |key: &str, fits: bool, right: &str| {
            let node = fields.get(key).filter(|_| !fits)?;
            Some((node.at, format!("{word} has no {key}"), format!("remove it, or use algorithm: {right}")))
        };
        let is_window = matches!(word, Word::SlidingWindow | Word::SubWindow);
        let wrong = [
            ("burst", only("burst", word.is_bucket(), "gcra, token-bucket or leaky-bucket")),
            ("strict", only("strict", is_window, "sliding-window or sub-window")),
            ("parts", only("parts", word == Word::SubWindow, "sub-window")),
        ];
        for (key, wrong) in wrong {
            if let Some((at, message, remedy)) = wrong {
                self.problems.add(at, path.key(key), message, remedy);
            }
        }
        let strict = strict.unwrap_or(false);
        let algorithm = match word {
            Word::FixedWindow => Algorithm::FixedWindow,
            Word::Gcra => Algorithm::Gcra,
            Word::TokenBucket => Algorithm::TokenBucket,
            Word::LeakyBucket => Algorithm::LeakyBucket,
            Word::SlidingWindow => Algorithm::SlidingWindow { strict },
            Word::SubWindow => Algorithm::SubWindow { parts: parts.unwrap_or(DEFAULT_PARTS), strict },
            Word::SlidingLog => Algorithm::SlidingLog,
        };
        (self.problems.len() == before).then_some(Parameters { word, algorithm, store })
    }

    fn store_of(
        &mut self,
        fields: &Fields<'_>,
        path: &Path<'_>,
        word: Option<Word>,
        defaults: &Settings,
    ) -> Option<Store> {
        let named = fields.get("store").and_then(|node| self.store(node, &path.key("store")));
        let memory = fields.get("memory").and_then(|node| self.memory(node, &path.key("memory")));
        let most = u64::try_from(usize::MAX).unwrap_or(u64::MAX);
        let max_keys =
            fields.get("max_keys").and_then(|node| self.number(node, &path.key("max_keys"), 1, most));
        let max_keys = max_keys.and_then(|keys| usize::try_from(keys).ok());
        // A size that is written here says which kind of store it is of; one for the whole file does where that kind can be.
        let implied = match (fields.get("max_keys"), fields.get("memory"), defaults.memory) {
            (Some(_), ..) => Some(Place::Keyed),
            (None, Some(_), _) => Some(Place::Compact),
            (None, None, Some(_)) if word.is_none_or(Word::is_compact) => Some(Place::Compact),
            (None, None, _) => None,
        };
        let said = self.shared(fields, path);
        let place = named.or(defaults.store).or(implied);
        if place != Some(Place::Redis) {
            self.unshared(fields, path);
        }
        let place = place?;
        let at = |key: &str| fields.get(key).unwrap_or(fields.node()).at;
        if let Some(word) = word {
            let refused = match place {
                Place::Compact if !word.is_compact() => Some(("compact store", "cannot hold")),
                Place::Sketch if !word.is_sketched() => Some(("sketch", "cannot count by")),
                Place::Redis if !word.is_shared() => Some(("script in redis", "does not know")),
                _ => None,
            };
            if let Some((what, why)) = refused {
                let whose =
                    if named.is_none() && defaults.store.is_some() { ", the file's default," } else { "" };
                let holds = match place {
                    Place::Sketch => "fixed-window or sliding-window, or another store",
                    Place::Redis => {
                        "fixed-window, sliding-window, gcra, token-bucket or leaky-bucket, or another store"
                    }
                    _ => "store: keyed",
                };
                self.problems.add(
                    at("store"),
                    path.key("store"),
                    format!("the {what}{whose} {why} {word}"),
                    format!("use {holds}"),
                );
            }
        }
        if place == Place::Redis && fields.get("memory").is_some() {
            let remedy = "remove it, or use store: compact or sketch";
            self.problems.add(
                at("memory"),
                path.key("memory"),
                "redis is not of this process's memory",
                remedy,
            );
        }
        if place == Place::Keyed && fields.get("memory").is_some() {
            let remedy = "remove it, or use store: compact or sketch; for a cap on keys write max_keys";
            self.problems.add(at("memory"), path.key("memory"), "the keyed store has no fixed size", remedy);
        }
        if place != Place::Keyed && fields.get("max_keys").is_some() {
            let remedy = match place {
                Place::Redis => "remove it, or use store: keyed",
                _ => "remove it, or use store: keyed; for the size of this store write memory",
            };
            self.problems.add(
                at("max_keys"),
                path.key("max_keys"),
                "only the keyed store counts its keys",
                remedy,
            );
        }
        let memory = memory.or(defaults.memory).unwrap_or(Capacity::memory(DEFAULT_MEMORY));
        Some(match place {
            Place::Compact => Store::Compact(memory),
            Place::Keyed => Store::Keyed { max_keys },
            Place::Sketch => Store::Sketch(memory),
            Place::Redis => Store::Redis(said.or(defaults.shared).shared()),
        })
    }

    /// The limit, and from where on a request is marked.
    fn quota(
        &mut self,
        fields: &Fields<'_>,
        path: &Path<'_>,
        Amount { limit, period }: Amount,
        parameters: &Parameters,
    ) -> Option<(Limit, u64)> {
        let (before, node) = (self.problems.len(), fields.node());
        let burst = fields.get("burst").and_then(|node| self.number(node, &path.key("burst"), 1, u64::MAX));
        let soft = fields.get("soft").and_then(|node| self.number(node, &path.key("soft"), 0, u64::MAX));
        if self.problems.len() > before {
            return None;
        }
        if limit == 0 {
            return Some((Limit::Blocked { period }, soft.unwrap_or(u64::MAX)));
        }
        let quota = Quota::try_new(limit, period).and_then(|quota| match burst {
            Some(burst) => quota.try_burst(burst),
            None => Ok(quota),
        });
        let mut quota = match quota {
            Ok(quota) => quota,
            Err(error) => {
                self.problems.add(node.at, path, error.to_string(), "choose another limit, period or burst");
                return None;
            }
        };
        let &Parameters { word, algorithm, store } = parameters;
        if let Some(most) = fits::most_in_window(&quota).filter(|_| algorithm == Algorithm::FixedWindow) {
            let message = format!("{limit} is more than a window so short can count; {most} is used instead");
            self.warnings.add(node.at, path, message, "for no limit write unlimited: true");
            quota = Quota::try_new(most, period).ok()?;
        }
        if let Err(error) = fits::check(quota, algorithm, store) {
            let remedy = match store {
                Some(_) => "choose another limit, algorithm or store",
                None => "choose another limit or algorithm",
            };
            self.problems.add(node.at, path, error.to_string(), remedy);
            return None;
        }
        let (most, what) =
            if word.is_bucket() { (quota.burst_size(), "burst") } else { (quota.limit(), "limit") };
        if let (Some(soft), Some(node)) = (soft.filter(|&soft| soft > most), fields.get("soft")) {
            let message = format!("{soft} is above the {what} of {most}, so nothing would be marked");
            self.problems.add(node.at, path.key("soft"), message, format!("write a number below {most}"));
            return None;
        }
        if let (Some(Store::Redis(how)), Some(node)) = (store, fields.get("soft"))
            && how.mode != Mode::Atomic
        {
            let message =
                format!("has no effect in the mode {}, where no process knows what is in use", how.mode);
            self.warnings.add(node.at, path.key("soft"), message, "remove it, or write mode: atomic");
        }
        Some((Limit::Quota { quota, algorithm, store }, soft.unwrap_or(u64::MAX)))
    }
}
