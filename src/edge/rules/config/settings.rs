//! The map `tollgate:` at the top of a file: it asks for our own keys, and says what holds for all rules.

use super::checker::{Checker, FileSettings};
use super::keys::{FieldPath, MapFields, MapKind};
use super::node::{FileNode, quoted};
use super::scalar::BadValue;
use crate::Capacity;
use crate::edge::rules::rule::{ALGORITHMS, Algorithm, CHARGING, MILLION, STORES, Shared, Store};

impl Checker {
    /// One of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        what: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        self.read(fields, key, |node| {
            let text = node.text()?;
            let found = words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
            found.ok_or_else(|| {
                let all: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
                BadValue::new(format!("{} is no {what}", quoted(text)), format!("use {}", one_of(&all)))
            })
        })
    }

    pub(super) fn algorithm(&mut self, fields: &MapFields<'_, '_>) -> Option<Algorithm> {
        self.word(fields, "algorithm", "algorithm", ALGORITHMS)
    }

    /// A store with default parameters.
    pub(super) fn store(&mut self, fields: &MapFields<'_, '_>) -> Option<Store> {
        self.word(fields, "store", "store", STORES)
    }

    /// Refuses the memory of a store that has no size of its own.
    pub(super) fn sizeless(&mut self, fields: &MapFields<'_, '_>, store: Option<Store>, keyed_remedy: &str) {
        let (message, more) = match store {
            Some(Store::Keyed { .. }) => ("the keyed store has no fixed size", keyed_remedy),
            Some(Store::Redis(_)) => ("redis is not of this process's memory", ""),
            _ => return,
        };
        if fields.has("memory") {
            let remedy = format!("remove it, or use store: compact or sketch{more}");
            self.wrong(fields, "memory", message, remedy);
        }
    }

    pub(super) fn settings(&mut self, node: &FileNode, path: &FieldPath<'_>) -> FileSettings {
        let Some(fields) = self.fields(node, MapKind::Settings, path) else { return FileSettings::DEFAULT };
        let charging = self.word(&fields, "charging", "way of charging", CHARGING).unwrap_or_default();
        let algorithm = self.algorithm(&fields);
        let store = self.store(&fields);
        let memory = self.read(&fields, "memory", memory);
        self.sizeless(&fields, store, "");
        let shadow = self.flag(&fields, "shadow");
        let enforced = self.read(&fields, "enforced", FileNode::share).unwrap_or(MILLION);
        let shared = self.shared(&fields, Shared::DEFAULT);
        FileSettings { charging, shadow, algorithm, store, memory, enforced, shared }
    }
}

/// An amount of memory, of a store of fixed size.
pub(super) fn memory(node: &FileNode) -> Result<Capacity, BadValue> {
    const LEAST: usize = 272;
    let text = node.text()?;
    let message = match text.parse::<Capacity>() {
        Ok(memory) if memory.bytes().is_some_and(|bytes| bytes >= LEAST) => return Ok(memory),
        Ok(_) => format!("{} is too little for a store", quoted(text)),
        Err(error) => error.to_string(),
    };
    Err(BadValue::new(message, format!("write {LEAST} bytes or more, as 512KiB, 4MiB or 1.5GiB")))
}

/// `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
