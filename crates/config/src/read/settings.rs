//! Reads the map `tollgate:` at the top of a file. It enables the extensions of Tollgate, and sets the defaults of
//! all rules in the file.

use std::time::Duration;

use tollgate::{Capacity, StoreKind};

use super::checker::{Checker, FileSettings};
use super::keys::{FieldPath, MapFields, MapKind};
use super::node::{FileNode, Value, quoted};
use super::scalar::BadValue;
use crate::rule::{ALGORITHMS, CHARGING, MILLION, MODES, ON_FAILURE, STORES, Shared, Store};

/// The keys that apply only to limits in Redis.
pub(super) const SHARED_KEYS: [&str; 4] = ["mode", "on_failure", "processes", "timeout"];

/// The maximum wait for the server: a longer one makes a limit useless.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

impl Checker {
    /// Reads one of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        fields: &MapFields<'_, '_>,
        key: &str,
        what: &str,
        words: &[(&str, T)],
    ) -> Option<T> {
        self.read(fields, key, |node| {
            let remedy = || {
                let all: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
                format!("use {}", one_of(&all))
            };
            let text = node.text_or(remedy)?;
            let found = words.iter().find(|(word, _)| *word == text).map(|&(_, value)| value);
            found.ok_or_else(|| BadValue::new(format!("no {what} is called {}", quoted(text)), remedy()))
        })
    }

    /// Reports a memory size for a store that has no fixed size.
    pub(super) fn reject_memory_size(
        &mut self,
        fields: &MapFields<'_, '_>,
        store: Option<Store>,
        keyed_remedy: &str,
    ) {
        let (message, more) = match store {
            Some(Store::Local(config)) => match config.kind() {
                StoreKind::Keyed | StoreKind::Direct => ("the keyed store has no fixed size", keyed_remedy),
                StoreKind::Compact | StoreKind::Sketch => return,
            },
            Some(Store::Redis(_)) => ("the redis store uses no memory of this process", ""),
            None => return,
        };
        if fields.has("memory") {
            let remedy = format!("remove memory, or use store: compact or sketch{more}");
            self.wrong(fields, "memory", message, remedy);
        }
    }

    /// Reads a map's settings of shared limits. Missing settings come from `default`.
    pub(super) fn shared(&mut self, fields: &MapFields<'_, '_>, default: Shared) -> Shared {
        Shared {
            mode: self.word(fields, "mode", "mode", MODES).unwrap_or(default.mode),
            on_failure: self
                .word(fields, "on_failure", "on_failure policy", ON_FAILURE)
                .unwrap_or(default.on_failure),
            processes: self.number(fields, "processes", 1, u32::MAX).unwrap_or(default.processes),
            timeout: self.read(fields, "timeout", timeout).unwrap_or(default.timeout),
        }
    }

    /// Reports settings of shared limits in a file that has none.
    pub(super) fn reject_unused_shared_settings(&mut self, node: &FileNode, path: &FieldPath<'_>) {
        let Value::Map(entries) = &node.kind else { return };
        for (key, _) in entries {
            if let Some(name) = key.as_key().filter(|name| SHARED_KEYS.contains(name)) {
                let message =
                    format!("{name} applies only to limits with store: redis, and this file has none");
                let remedy = "remove it, or write store: redis, here or in a rate_limit";
                self.problems.add(key.at, path.key(name), message, remedy);
            }
        }
    }

    pub(super) fn settings(&mut self, node: &FileNode, path: &FieldPath<'_>) -> FileSettings {
        let Some(fields) = self.fields(node, MapKind::SETTINGS, path) else { return FileSettings::DEFAULT };
        let charging = self.word(&fields, "charging", "charging mode", CHARGING);
        let algorithm = self.word(&fields, "algorithm", "algorithm", ALGORITHMS);
        let store = self.word(&fields, "store", "store", STORES);
        let memory = self.read(&fields, "memory", memory);
        self.reject_memory_size(&fields, store, "");
        let shadow = self.flag(&fields, "shadow");
        let enforced = self.read(&fields, "enforced", FileNode::share).unwrap_or(MILLION);
        let shared = self.shared(&fields, Shared::DEFAULT);
        FileSettings { charging, shadow, algorithm, store, memory, enforced, shared }
    }
}

/// Reads an amount of memory, for a store of fixed size.
pub(super) fn memory(node: &FileNode) -> Result<Capacity, BadValue> {
    const LEAST: usize = 272;
    let remedy = || format!("write at least {LEAST} bytes, such as 512KiB, 4MiB or 1.5GiB");
    let text = node.text_or(remedy)?;
    let message = match text.parse::<Capacity>() {
        Ok(memory) if memory.bytes().is_some_and(|bytes| bytes >= LEAST) => return Ok(memory),
        Ok(_) => format!("{} is too little memory for a store", quoted(text)),
        Err(error) => error.problem(),
    };
    Err(BadValue::new(message, remedy()))
}

fn timeout(node: &FileNode) -> Result<Duration, BadValue> {
    let read = node.text().ok().and_then(time);
    read.filter(|time| (Duration::from_millis(1)..=MAX_TIMEOUT).contains(time)).ok_or_else(|| {
        let message = format!("expected a time from 1ms to 60s, found {}", node.shown());
        BadValue::new(message, "write a whole number with its unit, such as 40ms")
    })
}

/// Reads a number of milliseconds or seconds, without rounding.
fn time(text: &str) -> Option<Duration> {
    let (number, of): (_, fn(u64) -> Duration) = match text.strip_suffix("ms") {
        Some(number) => (number, Duration::from_millis),
        None => (text.strip_suffix('s')?, Duration::from_secs),
    };
    let number = number.trim_end();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok().map(of)).flatten()
}

/// Writes `a, b or c`.
pub(super) fn one_of(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [all @ .., last] => format!("{} or {last}", all.join(", ")),
    }
}
