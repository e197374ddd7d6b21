//! The content of a file in any format: a tree in which each value has its line and column.

use std::collections::HashMap;
use std::rc::Rc;

use super::problem::Problems;
use crate::matching::Position;

/// A value.
#[derive(Clone, Debug)]
pub(super) struct FileNode {
    pub(super) at: Position,
    pub(super) kind: Value,
}

/// The kind of a value.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Null: an empty value, `~` or `null`.
    Null,
    /// A scalar with its text as written. Values that YAML aliases repeat share the text.
    Scalar(Scalar, Rc<str>),
    List(Box<[FileNode]>),
    /// In the order of the file.
    Map(Box<[(FileNode, FileNode)]>),
}

/// The type of a scalar by the syntax of the format.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Scalar {
    /// In quotes.
    Quoted,
    /// Without quotes, and of no other type.
    Text,
    Bool,
    Integer,
    Float,
    /// TOML's dates and times.
    Time,
}

/// The maximum nesting depth of values. Rules end earlier, at 32 levels of descriptors; only `metadata` could be
/// deeper.
pub(super) const MAX_DEPTH: usize = 100;
/// The maximum length of a file.
pub(super) const MAX_BYTES: usize = 64 << 20;
/// Beyond this base amount, the allowance for a file's values is proportional to its length.
pub(super) const SMALL: usize = 4 << 20;
/// The maximum memory of a file's values, in bytes for each byte of the file. With the rules made from them, it is 20
/// at most.
const MAX_GROWTH: usize = 12;

/// The memory that a file's values may still take. Without this limit, two bytes of a file could take a hundred bytes
/// of memory.
#[derive(Debug)]
pub(super) struct MemoryAllowance(usize);

impl MemoryAllowance {
    pub(super) fn of(text: &str) -> Self {
        Self(text.len().saturating_mul(MAX_GROWTH).saturating_add(SMALL))
    }

    /// Takes bytes from the allowance. Returns whether there were enough.
    pub(super) fn spend(&mut self, bytes: usize) -> bool {
        let left = self.0.checked_sub(bytes);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }

    /// Spends the memory of a value without the values in it; `None` if it exceeds the allowance, which is reported.
    pub(super) fn spend_on(&mut self, node: &FileNode, problems: &mut Problems) -> Option<()> {
        if self.spend(node.own_bytes()) {
            return Some(());
        }
        problems.fail(node.at, "the values up to this one take too much memory", "write fewer values")
    }
}

/// `None` if a value is nested too deeply, which is reported.
pub(super) fn check_depth(depth: usize, at: Position, problems: &mut Problems) -> Option<()> {
    if depth <= MAX_DEPTH {
        return Some(());
    }
    problems.fail(at, format!("lists and maps may be nested at most {MAX_DEPTH} deep"), "use fewer levels")
}

impl FileNode {
    pub(super) fn new(at: Position, kind: Value) -> Self {
        Self { at, kind }
    }

    /// Returns the approximate memory of the value, without the values inside it.
    pub(super) fn own_bytes(&self) -> usize {
        let text = match &self.kind {
            // Includes the two reference counts before the text.
            Value::Scalar(_, text) => text.len() + 2 * size_of::<usize>(),
            Value::Null | Value::List(_) | Value::Map(_) => 0,
        };
        size_of::<Self>() + text
    }

    /// Returns the name of the kind in a message.
    pub(super) fn shown(&self) -> String {
        match &self.kind {
            Value::Null => "nothing".to_owned(),
            Value::Scalar(_, text) => quoted(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }

    /// Whether the value is a map with this key.
    pub(super) fn has_key(&self, name: &str) -> bool {
        matches!(&self.kind, Value::Map(entries) if entries.iter().any(|(key, _)| key.as_key() == Some(name)))
    }

    /// Returns the text of a map's key.
    pub(super) fn as_key(&self) -> Option<&str> {
        match &self.kind {
            Value::Scalar(Scalar::Text | Scalar::Quoted, text) => Some(text),
            _ => None,
        }
    }
}

impl Scalar {
    /// Whether the scalar needs no quotes where text is expected. Go's parser reads two kinds of whole numbers as
    /// fractions, and these need quotes: numbers beyond 64 bits, and numbers that begin with a zero and are not octal.
    pub(super) fn is_text(self, text: &str) -> bool {
        match self {
            Self::Quoted | Self::Text | Self::Bool => true,
            Self::Float | Self::Time => false,
            Self::Integer => {
                let (sign, digits, radix) = parts_of(text);
                let radix = if is_octal(digits, radix) { 8 } else { radix };
                i64::from_str_radix(&format!("{sign}{}", digits.replace('_', "")), radix).is_ok()
            }
        }
    }
}

/// Returns the sign of a number, its digits, and their base.
pub(super) fn parts_of(text: &str) -> (&str, &str, u32) {
    let (sign, unsigned) = text.split_at(text.starts_with(['-', '+']).into());
    match unsigned.get(..2) {
        Some("0x" | "0X") => (sign, &unsigned[2..], 16),
        Some("0o" | "0O") => (sign, &unsigned[2..], 8),
        Some("0b" | "0B") => (sign, &unsigned[2..], 2),
        _ => (sign, unsigned, 10),
    }
}

/// Whether some parsers read these digits as octal.
pub(super) fn is_octal(digits: &str, radix: u32) -> bool {
    radix == 10 && digits.len() > 1 && digits.starts_with('0')
}

/// Whether a text is a whole number in the syntax of YAML and TOML.
pub(super) fn is_whole(text: &str) -> bool {
    let (_, digits, radix) = parts_of(text);
    (radix != 10 || !digits.starts_with('_'))
        && digits.contains(|c: char| c.is_digit(radix))
        && digits.chars().all(|c| c == '_' || c.is_digit(radix))
}

/// `y` and `n` of YAML 1.1: booleans where a boolean is expected, and texts elsewhere.
pub(super) fn is_short_bool(text: &str) -> bool {
    matches!(text, "y" | "Y" | "n" | "N")
}

/// Returns a text in quotes, cut to a length that suits a message.
pub(super) fn quoted(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

/// Adds an item to a list. A full list grows by a quarter, because doubling could take twice the needed memory.
pub(super) fn push<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() {
        items.reserve_exact(items.len() / 4 + 4);
    }
    items.push(item);
}

/// Creates a map. Reports duplicate keys and drops them.
pub(super) fn map(entries: Vec<(FileNode, FileNode)>, problems: &mut Problems) -> Value {
    let mut first: HashMap<Rc<str>, u32> = HashMap::with_capacity(entries.len());
    let unique = entries.into_iter().filter(|(key, _)| {
        let Value::Scalar(_, text) = &key.kind else { return true };
        let Some(line) = first.get(text) else {
            first.insert(Rc::clone(text), key.at.line);
            return true;
        };
        let message = format!("the key {} occurs twice", quoted(text));
        problems.add(key.at, "", message, format!("remove it here or in line {line}"));
        false
    });
    Value::Map(unique.collect())
}

/// Computes the line and column of a byte offset, for parsers that report only the offset.
pub(super) struct LineIndex<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> LineIndex<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let after = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(after).collect() }
    }

    pub(super) fn place(&self, offset: usize) -> Position {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|line| self.starts.get(line)).copied().unwrap_or(0);
        // Columns are counted only for values that are reported or kept. Lines are short, unless the whole file is one
        // line.
        let column = self
            .text
            .get(start..offset)
            .map_or(0, |before| if before.len() > 1 << 12 { before.len() } else { before.chars().count() });
        Position::new(line.max(1), column + 1)
    }
}
