//! Converts YAML to nodes: one document with content, no merge keys, and aliases with bounded expansion.

use std::cell::Cell;
use std::collections::HashMap;
use std::str::Chars;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::foreign::foreign;
use super::json;
use super::node::{self, FileNode, MAX_DEPTH, MemoryAllowance, Scalar, Value, is_short_bool, is_whole};
use super::problem::Problems;
use crate::matching::Position;

/// A list or map that is not yet complete.
struct OpenNode {
    at: Position,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<FileNode>),
    Map { entries: Vec<(FileNode, FileNode)>, key: Option<FileNode> },
}

struct YamlReader<'p> {
    problems: &'p mut Problems,
    open: Vec<OpenNode>,
    /// The document with content, once it has started.
    root: Option<FileNode>,
    /// The start of the current document.
    document: Position,
    anchors: HashMap<usize, FileNode>,
    /// The remaining allowance. Aliases use it too, because a few lines of aliases could expand to a billion values.
    allowance: MemoryAllowance,
}

/// Characters that begin tokens. The parser keeps the tokens of a list or map in brackets until its end, because it may
/// be a key. It takes up to 750 bytes for each of these characters.
const BEGIN_TOKENS: [char; 12] = [',', ':', '[', ']', '{', '}', '?', '&', '*', '!', '"', '\''];
/// The maximum number of these characters between two events, for any file. A large file may have more, in proportion
/// to its length.
const MOST_AHEAD: (usize, usize) = (1 << 14, 64);

/// The characters of a text. The iterator stops if the parser reads too far ahead.
struct LookaheadGuard<'t> {
    chars: Chars<'t>,
    ahead: &'t Cell<usize>,
    most: usize,
}

impl Iterator for LookaheadGuard<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        if self.ahead.get() > self.most {
            return None;
        }
        let next = self.chars.next()?;
        if BEGIN_TOKENS.contains(&next) {
            self.ahead.set(self.ahead.get() + 1);
        }
        Some(next)
    }
}

/// Reads the document and reports its problems. `None` means that the text cannot be read further.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<FileNode> {
    // This reader rejects long lists and maps in brackets. A JSON file is a map in brackets, and the JSON reader has no
    // such limit.
    if text.trim_start().starts_with('{') && json::is_json(text) {
        return json::read(text, problems);
    }
    let (ahead, most) = (Cell::new(0), MOST_AHEAD.0 + text.len() / MOST_AHEAD.1);
    let mut parser = Parser::new_from_iter(LookaheadGuard { chars: text.chars(), ahead: &ahead, most });
    let (anchors, open) = (HashMap::new(), Vec::new());
    let document = Position::default();
    let allowance = MemoryAllowance::of(text);
    let mut reader = YamlReader { problems, open, root: None, document, anchors, allowance };
    while let Some(next) = parser.next_event() {
        if ahead.replace(0) > most {
            let at = next.map_or_else(|error| place(*error.marker()), |(_, span)| place(span.start));
            let message = "this list or map in brackets is too long";
            return reader.problems.fail(at, message, "write each item on its own line, without brackets");
        }
        match next {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => reader.take(event, span)?,
            Err(error) => {
                let (at, info) = (place(*error.marker()), error.info());
                return reader.problems.invalid("YAML", at, info, remedy(text, at, info));
            }
        }
    }
    let empty = FileNode::new(Position::new(1, 1), Value::Null);
    Some(reader.root.unwrap_or(empty))
}

/// Returns how to correct the text at the position where the parser stopped.
fn remedy(text: &str, at: Position, info: &str) -> &'static str {
    let line = text.lines().nth((at.line as usize).saturating_sub(1)).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') || info.split([' ', ',']).any(|word| matches!(word, "tab" | "tabs")) {
        "indent with spaces, not with tabs"
    } else if info.starts_with("mapping values") {
        "indent this line like the lines around it, and put text with a colon in quotes"
    } else {
        "look for an unclosed quote or bracket, and for lines with a different indentation, here and above"
    }
}

fn place(marker: Marker) -> Position {
    Position::new(marker.line(), marker.col() + 1)
}

impl YamlReader<'_> {
    /// Handles one event of the parser. Returns `None` to stop.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = place(span.start);
        match event {
            Event::DocumentStart(_) => self.document = at,
            Event::Scalar(text, style, anchor, tag) => {
                let kind = self.scalar(at, &text, style, tag.as_deref());
                // A document without content is ignored: templates leave lines of dashes behind.
                if self.open.is_empty() && matches!(kind, Value::Null) {
                    return Some(());
                }
                self.first()?;
                self.put(FileNode::new(at, kind), anchor)?;
            }
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Items::List(Vec::new()))?,
            Event::MappingStart(anchor, _) => {
                self.begin(at, anchor, Items::Map { entries: Vec::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => {
                self.first()?;
                self.repeat(at, anchor)?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Some(())
    }

    /// Returns the type of a scalar, by its tag or by its syntax.
    fn scalar(&mut self, at: Position, text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
        let tag = tag.filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
        let quoted = || Value::Scalar(Scalar::Quoted, text.into());
        match (tag, plain(text)) {
            (Some("str"), _) => quoted(),
            (Some("int"), kind @ Value::Scalar(Scalar::Integer, _))
            | (Some("float"), kind @ Value::Scalar(Scalar::Float, _))
            | (Some("bool"), kind @ Value::Scalar(Scalar::Bool, _))
            | (Some("null"), kind @ Value::Null) => kind,
            (Some("float"), Value::Scalar(Scalar::Integer, text)) => Value::Scalar(Scalar::Float, text),
            (Some("bool"), Value::Scalar(Scalar::Text, text)) if is_short_bool(&text) => {
                Value::Scalar(Scalar::Bool, text)
            }
            (Some(tag @ ("int" | "float" | "bool" | "null")), _) => {
                let message = format!("{} does not have the type of its tag !!{tag}", node::quoted(text));
                self.problems.add(at, "", message, "remove the tag, or write a value of this type");
                quoted()
            }
            (_, kind) if style == ScalarStyle::Plain => kind,
            _ => quoted(),
        }
    }

    /// Called before a value begins. `None` if it is the first value of a second document.
    fn first(&mut self) -> Option<()> {
        if self.open.is_empty() && self.root.is_some() {
            let foreign = self.root.as_ref().and_then(foreign);
            if let Some(bad) = foreign {
                return self.problems.fail(Position::new(1, 1), bad.message, bad.remedy);
            }
            let remedy = "put each domain into its own file";
            return self.problems.fail(self.document, "a second document begins here", remedy);
        }
        Some(())
    }

    fn begin(&mut self, at: Position, anchor: usize, items: Items) -> Option<()> {
        self.first()?;
        node::check_depth(self.open.len() + 1, at, self.problems)?;
        self.open.push(OpenNode { at, anchor, items });
        Some(())
    }

    fn end(&mut self) -> Option<()> {
        let OpenNode { at, anchor, items } = self.open.pop()?;
        let kind = match items {
            Items::List(items) => Value::List(items.into()),
            Items::Map { entries, .. } => node::map(entries, self.problems),
        };
        self.put(FileNode::new(at, kind), anchor)
    }

    fn repeat(&mut self, at: Position, anchor: usize) -> Option<()> {
        let Some(node) = self.anchors.get(&anchor) else {
            let message = "the value of this alias contains the alias itself";
            return self.problems.fail(at, message, "write the value instead of the alias");
        };
        if !self.allowance.spend(weight(node)) || depth(node) + self.open.len() > MAX_DEPTH {
            let message = "the file's aliases expand to too many values";
            return self.problems.fail(at, message, "use fewer aliases");
        }
        let node = node.clone();
        self.put(node, 0)
    }

    /// Adds a complete node to the list or map that contains it. Returns `None` to stop.
    fn put(&mut self, node: FileNode, anchor: usize) -> Option<()> {
        self.allowance.spend_on(&node, self.problems)?;
        if anchor > 0 {
            if !self.allowance.spend(weight(&node)) {
                let message = "the file's anchors contain too many values";
                return self.problems.fail(node.at, message, "use fewer anchors");
            }
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => node::push(items, node),
            Some(Items::Map { entries, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => node::push(entries, (key, node)),
            },
        }
        Some(())
    }
}

/// Returns the values directly in a list or a map.
fn inside(node: &FileNode) -> impl Iterator<Item = &FileNode> {
    let (items, entries): (&[_], &[(_, _)]) = match &node.kind {
        Value::Null | Value::Scalar(..) => (&[], &[]),
        Value::List(items) => (items, &[]),
        Value::Map(entries) => (&[], entries),
    };
    items.iter().chain(entries.iter().flat_map(|(key, value)| [key, value]))
}

/// Returns the approximate memory of a node with all values in it, in bytes.
fn weight(node: &FileNode) -> usize {
    inside(node).map(weight).fold(node.own_bytes(), usize::saturating_add)
}

fn depth(node: &FileNode) -> usize {
    let own = usize::from(matches!(node.kind, Value::List(_) | Value::Map(_)));
    own + inside(node).map(depth).max().unwrap_or(0)
}

/// Returns the type of an unquoted scalar, by the core schema and with `yes`, `no`, `on` and `off` of YAML 1.1, which
/// Go's parsers accept.
fn plain(text: &str) -> Value {
    let scalar = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Scalar::Bool,
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "on" | "On" | "ON" | "off" | "Off" | "OFF" => {
            Scalar::Bool
        }
        _ if is_whole(text) => Scalar::Integer,
        _ if is_float(text) => Scalar::Float,
        _ => Scalar::Text,
    };
    Value::Scalar(scalar, text.into())
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust's parser accepts the core schema's numbers and a few more words.
    unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit())
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.chars().filter(|&c| c != '_').collect::<String>().parse::<f64>().is_ok()
}
