//! Reads `block`: how long a denial blocks a key.

use std::time::Duration;

use tollgate::internals::parse_period;
use tollgate::{Block, StoreKind};

use super::checker::Checker;
use super::keys::{MapFields, MapKind};
use super::node::{FileNode, Value};
use super::scalar::BadValue;
use crate::rule::{Mode, Shared, Store};

impl Checker {
    /// Reads the block of a limit that admits this many requests. A bad value is reported.
    pub(super) fn block(&mut self, fields: &MapFields<'_, '_>, limit: u64) -> Option<Block> {
        let node = fields.get("block")?;
        if limit == 0 {
            let message = "has no effect: the limit is 0, so all requests are denied";
            self.wrong(fields, "block", message, "remove it");
            return None;
        }
        if !matches!(node.kind, Value::Map(_)) {
            return self.read(fields, "block", length).map(Block::of);
        }
        let path = fields.path.key("block");
        let fields = self.fields(node, MapKind::BLOCK, &path)?;
        if !fields.has("for") {
            let remedy = "write the length of the first block, such as for: 10m";
            self.wrong(&fields, "for", "the length is missing", remedy);
            return None;
        }
        let block = Block::of(self.read(&fields, "for", length)?);
        match fields.has("at_most") {
            true => Some(block.at_most(self.read(&fields, "at_most", length)?)),
            false => Some(block),
        }
    }

    /// Reports a block of a limit in a store that has no blocks. Returns whether the store has none.
    pub(super) fn rejects_block_in(&mut self, fields: &MapFields<'_, '_>, store: &Store) -> bool {
        let (why, mode, atomic) = match store {
            _ if !fields.has("block") => return false,
            Store::Redis(Shared { mode: Mode::Atomic, .. }) => return false,
            Store::Redis(how) => (
                "a denial would block the key in one process only",
                format!(" in the mode {}", how.mode),
                "mode: atomic, or ",
            ),
            Store::Local(config) => match config.kind() {
                StoreKind::Compact | StoreKind::Keyed | StoreKind::Direct => return false,
                StoreKind::Sketch => ("its counters hold no time", String::new(), ""),
            },
        };
        let message = format!("the {store} store has no blocks{mode}: {why}");
        let remedy = format!("remove it, or write {atomic}store: keyed for this limit");
        self.wrong(fields, "block", message, remedy);
        true
    }
}

pub(super) fn length(node: &FileNode) -> Result<Duration, BadValue> {
    let read = node.text().ok().and_then(|text| parse_period(text.trim()).ok());
    read.filter(|&length_ns| length_ns > 0).map(Duration::from_nanos).ok_or_else(|| {
        let message = format!("expected a time above 0, found {}", node.shown());
        BadValue::new(message, "write a whole number with its unit, such as 30s, 10m, 2h or 1d")
    })
}
