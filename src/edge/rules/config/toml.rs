//! TOML to nodes, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{self, Allowance, Kind, Lines, Node, Scalar};
use super::problem::Problems;
use crate::edge::rules::matching::Position;

/// The longest text that is read: the parser takes up to a hundred times as much memory.
const MAX_BYTES: usize = 4 << 20;

/// The document; problems are told, and `None` means that nothing can be said of the rest.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<Node> {
    if text.len() > MAX_BYTES {
        let message = format!("{} bytes are too many for TOML", text.len());
        let remedy = format!("write at most {MAX_BYTES}, or YAML or JSON");
        problems.add(Position::default(), "", message, remedy);
        return None;
    }
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().map_or_else(Position::default, |span| lines.place(span.start));
        let remedy = "write key = value, texts in quotes, and close what is open";
        problems.add(at, "", format!("this is no TOML: {}", error.message()), remedy);
    }
    if !errors.is_empty() {
        return None;
    }
    let mut reader = Reader { text, lines, allowance: Allowance::of(text), problems };
    let kind = reader.table(table.get_ref())?;
    Some(Node::new(Position::new(1, 1), kind))
}

struct Reader<'t, 'p> {
    text: &'t str,
    lines: Lines<'t>,
    allowance: Allowance,
    problems: &'p mut Problems,
}

impl Reader<'_, '_> {
    /// Depth is bounded by the parser, at 80.
    fn value(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Node> {
        let at = self.lines.place(value.span().start);
        // As it is written: `1_000` and `0x1F` too.
        let written = || self.text.get(value.span()).unwrap_or_default();
        let kind = match value.get_ref() {
            DeValue::String(text) => Kind::Scalar(Scalar::Quoted, (**text).into()),
            DeValue::Integer(_) => Kind::Scalar(Scalar::Integer, written().into()),
            DeValue::Float(_) => Kind::Scalar(Scalar::Float, written().into()),
            DeValue::Boolean(_) => Kind::Scalar(Scalar::Bool, written().into()),
            DeValue::Datetime(_) => Kind::Scalar(Scalar::Time, written().into()),
            DeValue::Array(items) => {
                Kind::List(items.iter().map(|item| self.value(item)).collect::<Option<_>>()?)
            }
            DeValue::Table(table) => self.table(table)?,
        };
        let node = Node::new(at, kind);
        self.allowance.spend_on(&node, self.problems)?;
        Some(node)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Option<Kind> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut read = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let at = self.lines.place(key.span().start);
            let key = Node::new(at, Kind::Scalar(Scalar::Quoted, (**key.get_ref()).into()));
            self.allowance.spend_on(&key, self.problems)?;
            read.push((key, self.value(value)?));
        }
        Some(node::map(read, self.problems))
    }
}
