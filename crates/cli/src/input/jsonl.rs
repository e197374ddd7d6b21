//! JSON lines: one object per line, with fields by name or by a path into nested objects and arrays: `a.b[0].c`.
//!
//! Values keep their text from the file, so a number is never rounded. Strings that are not selected may be invalid
//! UTF-8.

use std::borrow::Cow;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::value::RawValue;

use super::client::{Client, Clients};
use super::row::{Columns, Row};

/// Fields by name or path. An optional field is missing if the object does not have it, or if it is not a plain value.
pub type JsonColumns = Columns<String>;

impl JsonColumns {
    /// Takes the fields of one object.
    ///
    /// # Errors
    /// Returns an error if the line is not an object, or a field is missing or not a plain value.
    pub fn extract(&self, line: &[u8], row: &mut Row) -> Result<(), String> {
        let object = match Object::parse(line, |name| self.wants(name)) {
            Ok(object) => object,
            Err(why) => return self.extract(&repaired(line).ok_or(why)?, row),
        };
        let other = |field: &String| value_text(field, object.find(field)?);
        self.take(row, |field| object.text(field), other)
    }

    /// Returns whether a top-level field is selected, or the beginning of a selected path.
    fn wants(&self, name: &str) -> bool {
        let others = self.others.iter().flatten();
        self.time.iter().chain(&self.key).chain(&self.cost).chain(others).any(|field| leads_to(name, field))
    }
}

/// Returns a line with `\u0022` instead of `\x22`, which servers write for a byte in a text, also in a format that was meant
/// to be JSON. `None` if the line has no such text.
pub fn repaired(line: &[u8]) -> Option<Vec<u8>> {
    let mut repaired = Vec::with_capacity(line.len() + 16);
    let mut bytes = line.iter();
    while let Some(&b) = bytes.next() {
        repaired.push(b);
        if b == b'\\' {
            match bytes.next()? {
                b'x' => repaired.extend_from_slice(b"u00"),
                &escaped => repaired.push(escaped),
            }
        }
    }
    (repaired.len() > line.len()).then_some(repaired)
}

/// Returns whether a name is a field's, or the beginning of its path.
fn leads_to(name: &str, field: &str) -> bool {
    field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// A field's name or path, and its text.
type PlainField<'a> = (String, Cow<'a, [u8]>);

/// Returns an object's plain fields with their texts; those of nested objects by their paths.
///
/// # Errors
/// Returns an error if the line is not an object.
pub fn fields(line: &[u8]) -> Result<Vec<PlainField<'_>>, String> {
    let mut fields = Vec::new();
    collect_fields(line, "", 0, &mut fields)?;
    Ok(fields)
}

fn collect_fields<'a>(
    text: &'a [u8],
    path: &str,
    depth: usize,
    fields: &mut Vec<PlainField<'a>>,
) -> Result<(), String> {
    for (name, value) in Object::parse(text, |_| true)?.fields {
        let name = if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") };
        match value.get().as_bytes()[0] {
            // Deeper fields can be read, but they are not used for guesses.
            b'{' if depth < 4 => collect_fields(value.get().as_bytes(), &name, depth + 1, fields)?,
            b'{' => {}
            b'[' => match addresses(&name, value) {
                Some(list) => fields.push((name, list)),
                None => ends(&name, value, fields),
            },
            _ => fields.push((name, plain_text(value).unwrap_or_default())),
        }
    }
    Ok(())
}

/// Adds the first element of an array, which stands for the others. If it is an address, the last one is added too, because
/// either may be the client.
fn ends<'a>(name: &str, array: &'a RawValue, fields: &mut Vec<PlainField<'a>>) {
    let is_address = |text: &[u8]| Clients::default().read_whole(text) != Client::Text;
    let Some(first) = element(array, 0).and_then(plain_text) else { return };
    let last = element(array, 1).and(element(array, -1)).and_then(plain_text);
    let last = last.filter(|last| is_address(&first) && is_address(last));
    fields.push((format!("{name}[0]"), first));
    fields.extend(last.map(|last| (format!("{name}[-1]"), last)));
}

/// Returns the text of a field that holds a line. journald writes a text with control characters as an array of its bytes.
///
/// # Errors
/// Returns an error if the line is not an object, or the field is missing or not a plain value.
pub fn text<'a>(line: &'a [u8], field: &str) -> Result<Cow<'a, [u8]>, String> {
    let object = Object::parse(line, |name| leads_to(name, field))?;
    let bytes = |value: &RawValue| serde_json::from_str(value.get()).ok();
    match object.find(field).filter(|value| value.get().starts_with('[')).and_then(bytes) {
        Some(bytes) => Ok(Cow::Owned(bytes)),
        None => object.text(field),
    }
}

/// Returns an element of an array; negative places count from the end.
fn element(array: &RawValue, place: isize) -> Option<&RawValue> {
    let elements: Vec<&RawValue> = serde_json::from_str(array.get()).ok()?;
    let from_end = elements.len().checked_sub(place.unsigned_abs());
    let at = if place < 0 { from_end? } else { place.unsigned_abs() };
    elements.get(at).copied()
}

/// Returns the value at the end of a path such as `.name` or `[0].name`.
fn descend<'a>(value: &'a RawValue, path: &str) -> Option<&'a RawValue> {
    if let Some(path) = path.strip_prefix('[') {
        let (place, rest) = path.split_once(']')?;
        return descend(element(value, place.parse().ok()?)?, rest);
    }
    match path.strip_prefix('.') {
        Some(name) => Object::parse(value.get().as_bytes(), |first| leads_to(first, name)).ok()?.find(name),
        None => path.is_empty().then_some(value),
    }
}

/// An object's wanted fields, values as their text.
struct Object<'a> {
    fields: Vec<(Cow<'a, str>, &'a RawValue)>,
}

impl<'a> Object<'a> {
    fn parse(text: &'a [u8], wanted: impl Fn(&str) -> bool) -> Result<Self, String> {
        let json = |error: serde_json::Error| format!("not a JSON object: {}", in_line(&error));
        let mut parser = serde_json::Deserializer::from_slice(text);
        let fields = parser.deserialize_map(ObjectVisitor { wanted }).map_err(json)?;
        parser.end().map_err(json)?;
        Ok(Self { fields })
    }

    /// Returns a field's text: a string's content, or the JSON of any other value.
    fn text(&self, field: &str) -> Result<Cow<'a, [u8]>, String> {
        let value = self.find(field).ok_or_else(|| format!("no field {field:?}"))?;
        value_text(field, value).ok_or_else(|| format!("field {field:?} is neither text nor a number"))
    }

    /// Finds a field by the whole name, then by the first part of the path, and so on. If names repeat, the last one
    /// counts.
    fn find(&self, field: &str) -> Option<&'a RawValue> {
        let named =
            |name: &str| self.fields.iter().rev().find(|(known, _)| known == name).map(|&(_, value)| value);
        named(field).or_else(|| {
            field.match_indices(['.', '[']).find_map(|(at, _)| descend(named(&field[..at])?, &field[at..]))
        })
    }
}

/// Returns the text of a plain value, or of a list that proxies forwarded.
fn value_text<'a>(name: &str, value: &'a RawValue) -> Option<Cow<'a, [u8]>> {
    plain_text(value).or_else(|| forwarded(name, value))
}

/// Returns the elements of an array under a name such as `x_forwarded_for` as one list, as the header has it:
/// `203.0.113.99, 198.51.100.1`. Its right end is then read; clients can write the left one.
fn forwarded<'a>(name: &str, value: &'a RawValue) -> Option<Cow<'a, [u8]>> {
    let lower = name.to_ascii_lowercase();
    let is_named = lower.contains("forwarded") || lower.contains("xff");
    if !is_named || !value.get().starts_with('[') {
        return None;
    }
    let elements: Vec<&RawValue> = serde_json::from_str(value.get()).ok()?;
    let texts: Vec<Cow<'_, [u8]>> = elements.into_iter().map(plain_text).collect::<Option<_>>()?;
    (!texts.is_empty()).then(|| Cow::Owned(texts.join(&b", "[..])))
}

/// Does the same for a list that has addresses.
fn addresses<'a>(name: &str, value: &'a RawValue) -> Option<Cow<'a, [u8]>> {
    forwarded(name, value).filter(|list| Clients::default().read_whole(list) != Client::Text)
}

fn plain_text(value: &RawValue) -> Option<Cow<'_, [u8]>> {
    let text = value.get();
    match text.as_bytes()[0] {
        b'"' => Some(match serde_json::from_str(text).ok()? {
            JsonText(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
            JsonText(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
        }),
        b'{' | b'[' | b'n' => None,
        _ => Some(Cow::Borrowed(text.as_bytes())),
    }
}

/// Returns the error's text with its column, without "line 1", which is not the file's line.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((what, _)) => format!("{what} at column {}", error.column()),
        None => text,
    }
}

struct ObjectVisitor<F> {
    wanted: F,
}

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for ObjectVisitor<F> {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(JsonText(name)) = map.next_key()? {
            if (self.wanted)(&name) {
                fields.push((name, map.next_value()?));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(fields)
    }
}

/// A string, borrowed where it holds no escapes.
#[derive(Deserialize)]
struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);
