//! YAML to nodes: one document, no merge keys, and aliases that cannot blow up.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span};

use super::node::{self, Kind, MAX_DEPTH, Node, Place, Scalar};
use super::problem::Problems;

/// What all aliases of a file may repeat, in bytes of nodes and texts: a few lines could else stand for a billion.
const MAX_REPEATED: usize = 16 << 20;

/// A list or map that has begun.
struct Open {
    at: Place,
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Node>),
    Map { entries: Vec<(Node, Node)>, key: Option<Node> },
}

struct Anchored {
    node: Node,
    weight: usize,
}

struct Reader<'p> {
    problems: &'p mut Problems,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    anchors: HashMap<usize, Anchored>,
    repeated: usize,
}

/// The document; problems are told, and `None` means that nothing can be said of the rest.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<Node> {
    let mut parser = Parser::new_from_str(text);
    let (anchors, open) = (HashMap::new(), Vec::new());
    let mut reader = Reader { problems, open, root: None, documents: 0, anchors, repeated: 0 };
    while let Some(next) = parser.next_event() {
        match next {
            Ok((Event::StreamEnd, _)) => break,
            Ok((event, span)) => reader.take(event, span)?,
            Err(error) => {
                let at = place(*error.marker());
                reader.problems.add(at, "", format!("this is no YAML: {}", error.info()), "");
                return None;
            }
        }
    }
    let empty = Node::new(Place { line: 1, column: 1 }, Kind::Null);
    Some(reader.root.unwrap_or(empty))
}

fn place(marker: Marker) -> Place {
    Place { line: marker.line(), column: marker.col() + 1 }
}

impl Reader<'_> {
    /// `None` to stop.
    fn take(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        let at = place(span.start);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    let remedy = "put each domain into a file of its own";
                    self.problems.add(at, "", "a second document begins here", remedy);
                    return None;
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let tag =
                    tag.as_deref().filter(|tag| tag.is_yaml_core_schema()).map(|tag| tag.suffix.as_str());
                let kind = match (style, tag) {
                    (_, Some("str")) => Kind::Scalar(Scalar::Quoted, text.into()),
                    (ScalarStyle::Plain, _) => plain(&text),
                    _ => Kind::Scalar(Scalar::Quoted, text.into()),
                };
                self.put(Node::new(at, kind), anchor);
            }
            Event::SequenceStart(anchor, _) => self.begin(at, anchor, Items::List(Vec::new()))?,
            Event::MappingStart(anchor, _) => {
                self.begin(at, anchor, Items::Map { entries: Vec::new(), key: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.repeat(at, anchor)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Some(())
    }

    fn begin(&mut self, at: Place, anchor: usize, items: Items) -> Option<()> {
        if self.open.len() == MAX_DEPTH {
            self.problems.too_deep(at);
            return None;
        }
        self.open.push(Open { at, anchor, items });
        Some(())
    }

    fn end(&mut self) {
        let Some(Open { at, anchor, items }) = self.open.pop() else { return };
        let kind = match items {
            Items::List(items) => Kind::List(items),
            Items::Map { entries, .. } => node::map(entries, self.problems),
        };
        self.put(Node::new(at, kind), anchor);
    }

    fn repeat(&mut self, at: Place, anchor: usize) -> Option<()> {
        let Some(Anchored { node, weight }) = self.anchors.get(&anchor) else {
            self.problems.add(
                at,
                "",
                "this alias repeats the value that it stands in",
                "write the value out",
            );
            return None;
        };
        self.repeated = self.repeated.saturating_add(*weight);
        if self.repeated > MAX_REPEATED || depth(node) + self.open.len() > MAX_DEPTH {
            let remedy = "write less by aliases";
            self.problems.add(at, "", "the file's aliases repeat too much", remedy);
            return None;
        }
        let node = node.clone();
        self.put(node, 0);
        Some(())
    }

    fn put(&mut self, node: Node, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, Anchored { weight: weight(&node), node: node.clone() });
        }
        match self.open.last_mut().map(|open| &mut open.items) {
            None => self.root = Some(node),
            Some(Items::List(items)) => items.push(node),
            Some(Items::Map { entries, key }) => match key.take() {
                None => *key = Some(node),
                Some(key) => entries.push((key, node)),
            },
        }
    }
}

/// Bytes, about.
fn weight(node: &Node) -> usize {
    let below = match &node.kind {
        Kind::Null => 0,
        Kind::Scalar(_, text) => text.len(),
        Kind::List(items) => items.iter().map(weight).fold(0, usize::saturating_add),
        Kind::Map(entries) => {
            entries.iter().map(|(key, value)| weight(key) + weight(value)).fold(0, usize::saturating_add)
        }
    };
    below.saturating_add(size_of::<Node>())
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::Null | Kind::Scalar(..) => 0,
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Map(entries) => {
            1 + entries.iter().map(|(key, value)| depth(key).max(depth(value))).max().unwrap_or(0)
        }
    }
}

/// A scalar without quotes, by the core schema; with `yes`, `no`, `on` and `off` of YAML 1.1, which Go's readers know.
fn plain(text: &str) -> Kind {
    let scalar = match text {
        "" | "~" | "null" | "Null" | "NULL" => return Kind::Null,
        "true" | "True" | "TRUE" | "false" | "False" | "FALSE" => Scalar::Bool,
        "yes" | "Yes" | "YES" | "no" | "No" | "NO" | "on" | "On" | "ON" | "off" | "Off" | "OFF" => {
            Scalar::Bool
        }
        _ if is_integer(text) => Scalar::Integer,
        _ if is_float(text) => Scalar::Float,
        _ => Scalar::Text,
    };
    Kind::Scalar(scalar, text.into())
}

fn is_integer(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let all = |digits: &str, radix| {
        digits.starts_with(|c: char| c.is_digit(radix))
            && digits.chars().all(|c| c == '_' || c.is_digit(radix))
    };
    match unsigned.get(..2) {
        Some("0x" | "0X") => all(&unsigned[2..], 16),
        Some("0o" | "0O") => all(&unsigned[2..], 8),
        Some("0b" | "0B") => all(&unsigned[2..], 2),
        _ => all(unsigned, 10),
    }
}

fn is_float(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    // Rust reads what the core schema does, and a few words more.
    unsigned.starts_with(|c: char| c == '.' || c.is_ascii_digit())
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.chars().filter(|&c| c != '_').collect::<String>().parse::<f64>().is_ok()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_are_what_yaml_says() {
        let scalar = |text| match plain(text) {
            Kind::Scalar(scalar, _) => Some(scalar),
            _ => None,
        };
        for text in ["1001", "-5", "+5", "1_000", "0x1F", "0o17", "0b101", "010"] {
            assert_eq!(scalar(text), Some(Scalar::Integer), "{text}");
        }
        for text in ["1.5", "1.", ".5", "-1e9", "1_0.5", ".inf", "-.INF", ".nan", "6.02e23"] {
            assert_eq!(scalar(text), Some(Scalar::Float), "{text}");
        }
        for text in
            ["203.0.113.7", "1e", "e5", "0x", "_1", "inf", "nan", "-", ".", "+", "1-2", "٣", "25%", "4MiB"]
        {
            assert_eq!(scalar(text), Some(Scalar::Text), "{text}");
        }
        for text in ["", "~", "null"] {
            assert_eq!(scalar(text), None, "{text}");
        }
        assert_eq!(scalar("yes"), Some(Scalar::Bool));
    }
}
