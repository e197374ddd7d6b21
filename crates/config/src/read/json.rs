//! Converts JSON to nodes. serde_json validates the text and reads its strings; this module finds the positions.

use serde_json::value::RawValue;

use super::node::{self, FileNode, LineIndex, MemoryAllowance, Scalar, Value};
use super::problem::Problems;
use crate::matching::Position;

/// Reads the document and reports its problems. `None` means that the text cannot be read further.
pub(super) fn read(text: &str, problems: &mut Problems) -> Option<FileNode> {
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        let (at, reason) = (Position::new(error.line(), error.column()), reason(&error));
        let remedy = match reason.as_str() {
            "key must be a string" => "put the key in double quotes, or remove the comma before it",
            "trailing characters" => "remove the text after the end of the document",
            "control character (\\u0000-\\u001F) found while parsing a string" => "write it as \\n or \\t",
            _ => "look for a missing or extra quote, comma or bracket; comments are not allowed",
        };
        return problems.invalid("JSON", at, reason, remedy);
    }
    let lines = LineIndex::of(text);
    JsonReader { text, lines: &lines, offset: 0, allowance: MemoryAllowance::of(text), problems }.value(0)
}

/// Whether a text is JSON.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<&RawValue>(text).is_ok()
}

/// Removes the line and column, because the problem already contains them.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason).to_owned()
}

/// Reads a text that is valid JSON.
struct JsonReader<'t, 'p> {
    text: &'t str,
    lines: &'t LineIndex<'t>,
    offset: usize,
    allowance: MemoryAllowance,
    problems: &'p mut Problems,
}

impl JsonReader<'_, '_> {
    /// Returns the next byte that is not white space, or `None` at the end.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes().get(self.offset..)?;
        let spaces = bytes.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        self.offset += spaces;
        bytes.get(spaces).copied()
    }

    fn value(&mut self, depth: usize) -> Option<FileNode> {
        let first = self.peek()?;
        let at = self.lines.place(self.offset);
        node::check_depth(depth, at, self.problems)?;
        let kind = match first {
            b'{' => {
                self.offset += 1;
                let mut entries = Vec::new();
                while self.peek()? != b'}' {
                    let key = self.value(depth + 1)?;
                    self.skip(b':');
                    node::push(&mut entries, (key, self.value(depth + 1)?));
                    self.skip(b',');
                }
                self.offset += 1;
                node::map(entries, self.problems)
            }
            b'[' => {
                self.offset += 1;
                let mut items = Vec::new();
                while self.peek()? != b']' {
                    node::push(&mut items, self.value(depth + 1)?);
                    self.skip(b',');
                }
                self.offset += 1;
                Value::List(items.into())
            }
            b'"' => self.string(at)?,
            _ => self.word(),
        };
        let node = FileNode::new(at, kind);
        self.allowance.spend_on(&node, self.problems)?;
        Some(node)
    }

    fn skip(&mut self, byte: u8) {
        if self.peek() == Some(byte) {
            self.offset += 1;
        }
    }

    fn string(&mut self, at: Position) -> Option<Value> {
        let bytes = self.text.as_bytes();
        let mut end = self.offset + 1;
        while *bytes.get(end)? != b'"' {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let raw = self.text.get(self.offset..=end)?;
        self.offset = end + 1;
        match serde_json::from_str::<String>(raw) {
            Ok(text) => Some(Value::Scalar(Scalar::Quoted, text.into())),
            // An unpaired surrogate in a `\u` escape; only the conversion detects it.
            Err(error) => {
                let remedy = "write the character itself, or both halves of the surrogate pair";
                self.problems.invalid("JSON", at, reason(&error), remedy)
            }
        }
    }

    /// Reads a number, `true`, `false` or `null`.
    fn word(&mut self) -> Value {
        let rest = &self.text[self.offset..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '-' | '.'))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        self.offset += end.max(1);
        let scalar = match word {
            "null" => return Value::Null,
            "true" | "false" => Scalar::Bool,
            _ if word.contains(['.', 'e', 'E']) => Scalar::Float,
            _ => Scalar::Integer,
        };
        Value::Scalar(scalar, word.into())
    }
}
