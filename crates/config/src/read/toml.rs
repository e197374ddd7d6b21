//! Converts TOML to nodes, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{self, FileNode, LineIndex, MemoryAllowance, Scalar, Value};
use super::problem::Problems;
use crate::matching::Position;

/// The maximum length of a text: the parser takes up to a hundred times as much memory.
const MAX_BYTES: usize = 4 << 20;

/// Reads the document and reports its problems. `None` means that the text cannot be read further.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<FileNode> {
    if text.len() > MAX_BYTES {
        let message = format!("a TOML file may have at most {MAX_BYTES} bytes, found {}", text.len());
        return problems.fail(Position::default(), message, "write fewer rules, or use YAML or JSON");
    }
    let lines = LineIndex::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().map_or_else(Position::default, |span| lines.place(span.start));
        let remedy = "write key = value, put text in quotes, and close all quotes and brackets";
        problems.invalid::<()>("TOML", at, error.message(), remedy);
    }
    if !errors.is_empty() {
        return None;
    }
    let mut reader = TomlReader { text, lines, allowance: MemoryAllowance::of(text), problems };
    let kind = reader.table(table.get_ref())?;
    Some(FileNode::new(Position::new(1, 1), kind))
}

struct TomlReader<'t, 'p> {
    text: &'t str,
    lines: LineIndex<'t>,
    allowance: MemoryAllowance,
    problems: &'p mut Problems,
}

impl TomlReader<'_, '_> {
    /// The parser limits the depth to 80.
    fn value(&mut self, value: &Spanned<DeValue<'_>>) -> Option<FileNode> {
        let at = self.lines.place(value.span().start);
        // Keeps the text as written, including forms like `1_000` and `0x1F`.
        let written = || self.text.get(value.span()).unwrap_or_default();
        let kind = match value.get_ref() {
            DeValue::String(text) => Value::Scalar(Scalar::Quoted, (**text).into()),
            DeValue::Integer(_) => Value::Scalar(Scalar::Integer, written().into()),
            DeValue::Float(_) => Value::Scalar(Scalar::Float, written().into()),
            DeValue::Boolean(_) => Value::Scalar(Scalar::Bool, written().into()),
            DeValue::Datetime(_) => Value::Scalar(Scalar::Time, written().into()),
            DeValue::Array(items) => {
                Value::List(items.iter().map(|item| self.value(item)).collect::<Option<_>>()?)
            }
            DeValue::Table(table) => self.table(table)?,
        };
        let node = FileNode::new(at, kind);
        self.allowance.spend_on(&node, self.problems)?;
        Some(node)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Option<Value> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut read = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let at = self.lines.place(key.span().start);
            let key = FileNode::new(at, Value::Scalar(Scalar::Quoted, (**key.get_ref()).into()));
            self.allowance.spend_on(&key, self.problems)?;
            read.push((key, self.value(value)?));
        }
        Some(node::map(read, self.problems))
    }
}
