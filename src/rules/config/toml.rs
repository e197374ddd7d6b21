//! TOML to nodes, in the order of the file.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::node::{self, Kind, Lines, Node, Place, Scalar};
use super::problem::Problems;

/// The document; problems are told, and `None` means that nothing can be said of the rest.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<Node> {
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().map_or_else(Place::default, |span| lines.place(span.start));
        problems.add(at, "", format!("this is no TOML: {}", error.message()), "");
    }
    if !errors.is_empty() {
        return None;
    }
    let reader = Reader { text, lines };
    let kind = reader.table(table.get_ref(), problems);
    Some(Node::new(Place { line: 1, column: 1 }, kind))
}

struct Reader<'t> {
    text: &'t str,
    lines: Lines<'t>,
}

impl Reader<'_> {
    /// Depth is bounded by the parser, at 80.
    fn value(&self, value: &Spanned<DeValue<'_>>, problems: &mut Problems) -> Node {
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
                Kind::List(items.iter().map(|item| self.value(item, problems)).collect())
            }
            DeValue::Table(table) => self.table(table, problems),
        };
        Node::new(at, kind)
    }

    fn table(&self, table: &DeTable<'_>, problems: &mut Problems) -> Kind {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut read = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let at = self.lines.place(key.span().start);
            let key = Node::new(at, Kind::Scalar(Scalar::Quoted, (**key.get_ref()).into()));
            read.push((key, self.value(value, problems)));
        }
        node::map(read, problems)
    }
}
