//! The map `tollgate:` at the top of a file: it asks for our own keys, and says what holds for all rules.

use std::fmt;

use super::keys::{Context, Path, Room};
use super::node::{Node, quoted};
use super::scalar::MILLION;
use super::shared::Said;
use crate::Capacity;
use crate::edge::rules::{Algorithm, Charging, Store};

/// What holds for all rules of a file that do not say otherwise.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) charging: Charging,
    pub(super) shadow: bool,
    pub(super) algorithm: Option<Word>,
    pub(super) store: Option<Place>,
    pub(super) memory: Option<Capacity>,
    pub(super) enforced: u32,
    /// Of limits that processes share.
    pub(super) shared: Said,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            charging: Charging::default(),
            shadow: false,
            algorithm: None,
            store: None,
            memory: None,
            enforced: MILLION,
            shared: Said::default(),
        }
    }
}

/// An algorithm by its name, before its parameters.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Word {
    #[default]
    FixedWindow,
    Gcra,
    TokenBucket,
    LeakyBucket,
    SlidingWindow,
    SubWindow,
    SlidingLog,
}

const ALGORITHMS: [(&str, Word); 7] = [
    ("fixed-window", Word::FixedWindow),
    ("gcra", Word::Gcra),
    ("token-bucket", Word::TokenBucket),
    ("leaky-bucket", Word::LeakyBucket),
    ("sliding-window", Word::SlidingWindow),
    ("sub-window", Word::SubWindow),
    ("sliding-log", Word::SlidingLog),
];

impl Word {
    /// Whether it has a burst.
    pub(super) fn is_bucket(self) -> bool {
        matches!(self, Self::Gcra | Self::TokenBucket | Self::LeakyBucket)
    }

    /// Whether the compact store has a form for it.
    pub(super) fn is_compact(self) -> bool {
        !matches!(self, Self::SubWindow | Self::SlidingLog)
    }

    /// Whether the sketch counts it.
    pub(super) fn is_sketched(self) -> bool {
        matches!(self, Self::FixedWindow | Self::SlidingWindow)
    }

    /// Whether the script in Redis knows it.
    pub(super) fn is_shared(self) -> bool {
        !matches!(self, Self::SubWindow | Self::SlidingLog)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = ALGORITHMS.iter().find(|(_, word)| word == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// A store by its name, before its size.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Compact,
    Keyed,
    Sketch,
    Redis,
}

const STORES: [(&str, Place); 4] = [
    ("compact", Place::Compact),
    ("keyed", Place::Keyed),
    ("sketch", Place::Sketch),
    ("redis", Place::Redis),
];

impl fmt::Display for Algorithm {
    /// Its name in rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FixedWindow => "fixed-window",
            Self::Gcra => "gcra",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::SlidingWindow { .. } => "sliding-window",
            Self::SubWindow { .. } => "sub-window",
            Self::SlidingLog => "sliding-log",
        })
    }
}

impl fmt::Display for Store {
    /// Its name in rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compact(_) => "compact",
            Self::Keyed { .. } => "keyed",
            Self::Sketch(_) => "sketch",
            Self::Redis(_) => "redis",
        })
    }
}

impl fmt::Display for Charging {
    /// Its name in rules.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllOrNothing => "all-or-nothing",
            Self::CountFirst => "count-first",
        })
    }
}

impl Context {
    /// One of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        node: &Node,
        path: &Path<'_>,
        what: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        let text = self.text(node, path)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
        if found.is_none() {
            let all: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
            let message = format!("{} is no {what}", quoted(text));
            self.problems.add(node.at, path, message, format!("use {}", one_of(&all)));
        }
        found
    }

    pub(super) fn algorithm(&mut self, node: &Node, path: &Path<'_>) -> Option<Word> {
        self.word(node, path, "algorithm", &ALGORITHMS)
    }

    pub(super) fn store(&mut self, node: &Node, path: &Path<'_>) -> Option<Place> {
        self.word(node, path, "store", &STORES)
    }

    /// An amount of memory, of a store of fixed size.
    pub(super) fn memory(&mut self, node: &Node, path: &Path<'_>) -> Option<Capacity> {
        const LEAST: usize = 272;
        let text = self.text(node, path)?;
        let memory = text.parse::<Capacity>();
        let problem = match memory {
            Ok(memory) if memory.bytes().is_some_and(|bytes| bytes >= LEAST) => return Some(memory),
            Ok(_) => format!("{} is too little for a store", quoted(text)),
            Err(error) => error.to_string(),
        };
        self.problems.add(
            node.at,
            path,
            problem,
            format!("write {LEAST} bytes or more, as 512KiB, 4MiB or 1.5GiB"),
        );
        None
    }

    pub(super) fn settings(&mut self, node: &Node, path: &Path<'_>) -> Settings {
        let mut settings = Settings::default();
        let Some(fields) = self.fields(node, Room::Settings, path) else { return settings };
        if let Some(node) = fields.get("charging") {
            let words = [("all-or-nothing", Charging::AllOrNothing), ("count-first", Charging::CountFirst)];
            let charging = self.word(node, &path.key("charging"), "way of charging", &words);
            settings.charging = charging.unwrap_or_default();
        }
        settings.algorithm =
            fields.get("algorithm").and_then(|node| self.algorithm(node, &path.key("algorithm")));
        settings.store = fields.get("store").and_then(|node| self.store(node, &path.key("store")));
        if let Some(node) = fields.get("memory") {
            let path = path.key("memory");
            settings.memory = self.memory(node, &path);
            let sizeless = match settings.store {
                Some(Place::Keyed) => Some("the keyed store has no fixed size"),
                Some(Place::Redis) => Some("redis is not of this process's memory"),
                _ => None,
            };
            if let Some(message) = sizeless {
                let remedy = "remove it, or use store: compact or sketch";
                self.problems.add(node.at, path, message, remedy);
            }
        }
        settings.shadow =
            fields.get("shadow").and_then(|node| self.yes(node, &path.key("shadow"))).unwrap_or(false);
        if let Some(share) = fields.get("enforced").and_then(|node| self.share(node, &path.key("enforced"))) {
            settings.enforced = share;
        }
        settings.shared = self.shared(&fields, path);
        settings
    }
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
