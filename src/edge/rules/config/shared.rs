//! `store: redis`: how limits are kept that processes share.

use std::time::Duration;

use super::keys::{Context, Fields, Path};
use super::node::{Kind, Node, quoted};
use crate::edge::rules::{Mode, OnFailure, Shared};

/// Keys that say something of shared limits only.
pub(super) const KEYS: [&str; 4] = ["mode", "on_failure", "processes", "timeout"];

const MODES: [(&str, Mode); 3] =
    [("atomic", Mode::Atomic), ("lease", Mode::Lease), ("write-back", Mode::WriteBack)];
const ON_FAILURE: [(&str, OnFailure); 3] =
    [("open", OnFailure::Open), ("closed", OnFailure::Closed), ("local", OnFailure::Local)];
/// A server in the same data centre answers within one; half of what a client notices.
const TIMEOUT: Duration = Duration::from_millis(40);
/// Who waits longer has no use for a limit.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);

/// What is said of shared limits, of a rule or of a file.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Said {
    mode: Option<Mode>,
    on_failure: Option<OnFailure>,
    processes: Option<u32>,
    timeout: Option<Duration>,
}

impl Said {
    /// What this one does not say, by the other.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            mode: self.mode.or(other.mode),
            on_failure: self.on_failure.or(other.on_failure),
            processes: self.processes.or(other.processes),
            timeout: self.timeout.or(other.timeout),
        }
    }

    /// What nobody says, by default.
    pub(super) fn shared(self) -> Shared {
        Shared {
            mode: self.mode.unwrap_or_default(),
            on_failure: self.on_failure.unwrap_or_default(),
            processes: self.processes.unwrap_or(1),
            timeout: self.timeout.unwrap_or(TIMEOUT),
        }
    }
}

impl std::fmt::Display for Mode {
    /// Its name in rules.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(name_of(&MODES, *self))
    }
}

impl std::fmt::Display for OnFailure {
    /// Its name in rules.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(name_of(&ON_FAILURE, *self))
    }
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, named)| *named == value).map_or("", |(name, _)| name)
}

impl Context {
    /// What a map says of shared limits.
    pub(super) fn shared(&mut self, fields: &Fields<'_>, path: &Path<'_>) -> Said {
        let mode = fields.get("mode").and_then(|node| self.word(node, &path.key("mode"), "mode", &MODES));
        let on_failure = fields.get("on_failure").and_then(|node| {
            self.word(node, &path.key("on_failure"), "way of going on without the server", &ON_FAILURE)
        });
        let processes = fields
            .get("processes")
            .and_then(|node| self.number(node, &path.key("processes"), 1, u64::from(u32::MAX)))
            .and_then(|processes| u32::try_from(processes).ok());
        let timeout = fields.get("timeout").and_then(|node| self.timeout(node, &path.key("timeout")));
        Said { mode, on_failure, processes, timeout }
    }

    fn timeout(&mut self, node: &Node, path: &Path<'_>) -> Option<Duration> {
        let text = self.text(node, path)?;
        let time = time(text).filter(|time| (Duration::from_millis(1)..=MAX_TIMEOUT).contains(time));
        if time.is_none() {
            let message = format!("{} is no time to wait for the server", quoted(text));
            self.problems.add(node.at, path, message, "write 1ms to 60s, with the unit, as 40ms");
        }
        time
    }

    /// Refuses what is said of shared limits about one that is not.
    pub(super) fn unshared(&mut self, fields: &Fields<'_>, path: &Path<'_>) {
        for key in KEYS {
            if let Some(node) = fields.get(key) {
                let message = format!("only limits in redis have {key}");
                self.problems.add(node.at, path.key(key), message, "remove it, or write store: redis");
            }
        }
    }

    /// The same of a whole file that has none.
    pub(super) fn unshared_file(&mut self, node: &Node, path: &Path<'_>) {
        let Kind::Map(entries) = &node.kind else { return };
        for (key, _) in entries {
            if let Some(name) = key.as_key().filter(|name| KEYS.contains(name)) {
                let message = format!("{name} is for limits in redis, and no rule here is one");
                let remedy = "remove it, or write store: redis, here or in the rules that are";
                self.problems.add(key.at, path.key(name), message, remedy);
            }
        }
    }
}

/// A number of milliseconds or seconds, exactly.
fn time(text: &str) -> Option<Duration> {
    let (number, of): (_, fn(u64) -> Duration) = match text.strip_suffix("ms") {
        Some(number) => (number, Duration::from_millis),
        None => (text.strip_suffix('s')?, Duration::from_secs),
    };
    let number = number.trim_end();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok().map(of)).flatten()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, ms) in [("40ms", 40), ("1s", 1_000), ("25 ms", 25), ("0ms", 0), ("60s", 60_000)] {
            assert_eq!(time(text), Some(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "40", "ms", "s", "-1ms", "1.5s", "1m", "+1s", "99999999999999999999ms"] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn the_nearer_one_says_it() {
        let file = Said { mode: Some(Mode::Atomic), processes: Some(3), ..Said::default() };
        let rule = Said { processes: Some(5), on_failure: Some(OnFailure::Open), ..Said::default() };
        let shared = rule.or(file).shared();
        assert_eq!((shared.mode, shared.processes), (Mode::Atomic, 5));
        assert_eq!((shared.on_failure, shared.timeout), (OnFailure::Open, TIMEOUT));
        assert_eq!(Said::default().shared().mode, Mode::Lease);
        assert_eq!(
            (Mode::WriteBack.to_string(), OnFailure::Local.to_string()),
            ("write-back".into(), "local".into())
        );
    }
}
