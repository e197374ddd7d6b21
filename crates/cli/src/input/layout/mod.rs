//! Lines whose fields stand between fixed texts, as a server's own format string says: `$remote_addr - [$time_local]`.
//!
//! A layout is a list of fields, each with the text after it. A field ends where that text follows, and where the field
//! has the shape that its server writes: a status has three digits, for example. If a line does not fit, the last field
//! is extended to the next place where its text follows, and so on. The number of such steps is bounded, so that a line
//! that a client composed costs a bounded time.
//!
//! A quote that a backslash precedes does not end a quoted field. Some servers write backslashes as they are, so a line
//! that does not fit is read once more without this rule. Some leave out the quotes of a field that is `-`, as S3 does
//! for requests that S3 makes itself, so at last a line is read with that in mind.

mod compile;
mod haproxy;
pub mod known;
mod token;
mod variables;

use memchr::memchr_iter;

use self::variables::Shape;
pub use self::variables::Variable;
use super::clf::{is_escaped, path};
use super::row::{Columns, Row};
use super::sample::{Role, Sample};
use super::time::TimeFormat;

/// How often a field of a line may be extended.
const STEPS: usize = 64;

/// A field of a layout, and the text after it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Field {
    /// The server's own name, such as `remote_addr`, `%h` or `%REQ(X-FORWARDED-FOR)%`.
    name: String,
    /// nginx's name of the same header field, or nothing.
    header: String,
    /// The common names, the shape and the role.
    variable: Variable,
    /// The text that follows.
    after: Vec<u8>,
    /// Whether the field is in quotes.
    quoted: bool,
    /// The form of a time, if the format string says it.
    time: Option<TimeFormat>,
}

/// The fields of a line, in order, and the text around them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// The name of the format.
    pub name: String,
    /// The text before the first field.
    lead: Vec<u8>,
    fields: Vec<Field>,
    /// The fields, and then the parts of fields, that have names.
    columns: Vec<LayoutColumn>,
    /// The number of fields that a line has at least.
    least: usize,
    /// The number of fields that are read.
    read: usize,
    /// Whether a line may have more fields.
    open: bool,
}

/// A part of a field's text.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Part {
    Whole,
    /// The path of a target that may be a whole URL.
    Path,
    /// The word at this place of a request line.
    Word(usize),
    /// The same without a query.
    Bare(usize),
    /// The text at this place of `{a|b|c}`.
    Captured(usize),
}

/// A field, or a part of it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct LayoutColumn {
    name: String,
    /// Its other names, separated by spaces.
    aliases: String,
    role: Role,
    field: usize,
    part: Part,
}

/// The parts of a request line that have names, as in the common log format.
const OF_REQUEST: &[(&str, Part)] = &[
    ("method", Part::Word(0)),
    ("path", Part::Word(1)),
    ("bare_path", Part::Bare(1)),
    ("protocol", Part::Word(2)),
];

/// The parts of a target that may be a whole URL.
const OF_TARGET: &[(&str, Part)] = &[("path", Part::Path), ("bare_path", Part::Bare(0))];

/// The header fields that HAProxy captured, in the order of its configuration.
const CAPTURED: &[(&str, Part)] = &[
    ("captured_headers[0]", Part::Captured(0)),
    ("captured_headers[1]", Part::Captured(1)),
    ("captured_headers[2]", Part::Captured(2)),
    ("captured_headers[3]", Part::Captured(3)),
    ("captured_headers[4]", Part::Captured(4)),
    ("captured_headers[5]", Part::Captured(5)),
];

/// What quotes mean in a line. A line that does not fit in the first way is read in the others.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Quotes {
    /// A quote that a backslash precedes does not end a field.
    Escaped,
    /// Backslashes mean nothing.
    Plain,
    /// A field in quotes may be a `-` without quotes. While the fields are searched, the first quote belongs to the
    /// field, because the text before it cannot say whether there is one.
    Optional,
}

/// The begin and the end of each field of a line.
pub type Spans = Vec<(usize, usize)>;

impl Layout {
    /// Lists the fields, and the parts of them that have names of their own.
    fn named_columns(fields: &[Field]) -> Vec<LayoutColumn> {
        let own =
            fields.iter().enumerate().map(|(field, Field { name, header, variable, .. })| LayoutColumn {
                name: name.clone(),
                aliases: format!("{} {header}", variable.names),
                role: variable.role,
                field,
                part: Part::Whole,
            });
        let mut columns: Vec<LayoutColumn> = own.collect();
        for (common, parts) in [("request", OF_REQUEST), ("path", OF_TARGET), ("captured_headers", CAPTURED)]
        {
            let Some(field) = fields.iter().position(|field| field.variable.common() == common) else {
                continue;
            };
            for &(name, part) in parts {
                let role = if name.contains("path") { Role::Target } else { Role::Other };
                if !columns.iter().any(|column| column.name == name) {
                    columns.push(LayoutColumn {
                        name: name.to_owned(),
                        aliases: String::new(),
                        role,
                        field,
                        part,
                    });
                }
            }
        }
        columns
    }

    /// Returns a sample without records.
    pub fn sample(&self) -> Sample {
        Sample::named(self.columns.iter().map(|column| (&*column.name, &*column.aliases, column.role)))
    }

    /// Returns the form of the times in this field, if the format string says it.
    pub fn time_format(&self, name: &str) -> Option<&TimeFormat> {
        let column = self.columns.get(self.sample().column(name)?)?;
        self.fields.get(column.field)?.time.as_ref()
    }

    /// Reads no further than to these columns and to the size of the response, if a line may have more fields anyway.
    pub fn up_to(&self, columns: &Columns<usize>) -> Self {
        let named = columns.time.iter().chain(&columns.key).chain(&columns.cost);
        let last =
            named.chain(columns.others.iter().flatten()).map(|&column| self.columns[column].field + 1).max();
        let size = self.fields.iter().position(|field| field.variable.common() == "bytes");
        let needed = last.max(size.map(|at| at + 1)).filter(|_| self.open && size.is_some());
        Self { read: needed.unwrap_or(self.fields.len()), ..self.clone() }
    }

    /// Finds the fields of a line. If the line ends early, the last fields have no span.
    ///
    /// # Errors
    /// Returns the field whose end was not found.
    pub fn split(&self, line: &[u8], spans: &mut Spans) -> Result<(), &str> {
        let Err(at) = self.split_with(line, spans, Quotes::Escaped) else { return Ok(()) };
        let fits = line.contains(&b'\\') && self.split_with(line, spans, Quotes::Plain).is_ok()
            || find(line, b" -").is_some() && self.split_with(line, spans, Quotes::Optional).is_ok();
        if fits { Ok(()) } else { Err(self.fields.get(at).map_or("", |field| &field.name)) }
    }

    fn split_with(&self, line: &[u8], spans: &mut Spans, quotes: Quotes) -> Result<(), usize> {
        spans.clear();
        if !line.starts_with(&self.lead) {
            return Err(0);
        }
        let (mut begin, mut furthest, mut steps) = (self.lead.len(), 0, 0);
        let mut from = begin;
        while spans.len() < self.read {
            let at = spans.len();
            furthest = furthest.max(at);
            begin += self.padding(at, &line[begin..]);
            let after = self.after(at, &line[begin..], quotes);
            match self.end(at, line, begin, from, (after, quotes)) {
                Some(end) if end == line.len() => {
                    let quote = usize::from(after.starts_with(b"\"") && end > begin);
                    spans.push((begin, end - quote));
                    break;
                }
                Some(end) => {
                    spans.push((begin, end));
                    begin = end + after.len();
                    from = begin;
                }
                // The field before is longer than it seemed.
                None => {
                    steps += 1;
                    let Some((last, end)) = spans.pop().filter(|_| steps < STEPS) else {
                        return Err(furthest);
                    };
                    (begin, from) = (last, end + 1);
                }
            }
        }
        if quotes == Quotes::Optional {
            for (at, span) in spans.iter_mut().enumerate().skip(1) {
                span.0 += usize::from(self.fields[at].quoted && line[span.0..span.1].starts_with(b"\""));
            }
        }
        Ok(())
    }

    /// Returns the text that follows a field which begins with `text`.
    fn after(&self, at: usize, text: &[u8], quotes: Quotes) -> &[u8] {
        let mut after = &self.fields[at].after[..];
        if quotes == Quotes::Optional {
            if at > 0 && self.fields[at].quoted && text.starts_with(b"-") {
                after = &after[1..];
            }
            if self.fields.get(at + 1).is_some_and(|next| next.quoted) {
                after = after.strip_suffix(b"\"").unwrap_or(after);
            }
        }
        after
    }

    /// Returns the number of spaces that align a field.
    fn padding(&self, at: usize, text: &[u8]) -> usize {
        match self.fields[at].variable.shape {
            Shape::Number | Shape::Word | Shape::Part if !self.fields[at].quoted => {
                text.iter().take_while(|&&b| b == b' ').count()
            }
            _ => 0,
        }
    }

    /// Returns the first end of a field that is not before `from`, where `after` follows. The end of the line is the end of a
    /// field that may be the last one.
    fn end(
        &self,
        at: usize,
        line: &[u8],
        mut begin: usize,
        from: usize,
        (after, quotes): (&[u8], Quotes),
    ) -> Option<usize> {
        let field = &self.fields[at];
        if quotes == Quotes::Optional && at > 0 && field.quoted {
            if let Some(rest) = line[begin..].strip_prefix(b"-") {
                let fits = rest.starts_with(after) || rest.is_empty() && at + 1 >= self.least;
                return (fits && from <= begin + 1).then_some(begin + 1);
            }
            line[begin..].strip_prefix(b"\"")?;
            begin += 1;
        }
        let (last, mut from) = (at + 1 == self.fields.len(), from.max(begin));
        while !after.is_empty() {
            let Some(found) = line.get(from..).and_then(|text| find(text, after)) else { break };
            let end = from + found;
            from = end + 1;
            if field.quoted && quotes != Quotes::Plain && is_escaped(&line[begin..end]) {
                continue;
            }
            let rest = &line[end + after.len()..];
            match field.variable.shape.fits(&line[begin..end], rest) {
                Some(true) if !last || rest.is_empty() || self.open && rest[0] == b' ' => return Some(end),
                Some(_) => {}
                None => return None,
            }
        }
        self.early_end(at, line, begin, from)
    }

    /// Returns the end of a field that nothing follows, if the line may end there.
    fn early_end(&self, at: usize, line: &[u8], begin: usize, from: usize) -> Option<usize> {
        let field = &self.fields[at];
        let text = line.get(begin..).filter(|_| at + 1 >= self.least && from <= line.len())?;
        if let Some((&b'"', _)) = field.after.split_first() {
            let inner = text.strip_suffix(b"\"")?;
            return (field.variable.shape.fits(inner, b"") == Some(true)).then_some(line.len());
        }
        if !field.after.is_empty() && field.after.first() != Some(&b' ') {
            return None;
        }
        let words = match field.variable.shape {
            Shape::Word | Shape::Part | Shape::Number | Shape::Status
                if field.after.is_empty() && self.open =>
            {
                text.iter().position(|&b| b == b' ').unwrap_or(text.len())
            }
            _ => text.len(),
        };
        (field.variable.shape.fits(&text[..words], b"") == Some(true)).then_some(begin + words)
    }

    /// Returns the text of a column in a line; `None` if the line ends before it.
    fn text<'l>(&self, line: &'l [u8], spans: &Spans, column: &LayoutColumn) -> Option<&'l [u8]> {
        let &(begin, end) = spans.get(column.field)?;
        let text = line.get(begin..end)?;
        let word = |n| text.split(|&b| b == b' ').nth(n).unwrap_or(b"-");
        Some(match column.part {
            // A response without a body has 0 bytes.
            Part::Whole if text == b"-" && self.fields[column.field].variable.common() == "bytes" => b"0",
            Part::Whole => text,
            Part::Path => path(text),
            // The second word of a request is its target.
            Part::Word(1) => path(word(1)),
            Part::Word(n) => word(n),
            Part::Bare(n) => path(word(n)).split(|&b| b == b'?').next().unwrap_or(b"-"),
            Part::Captured(n) => {
                let inner = text.strip_prefix(b"{")?.split(|&b| b == b'}').next()?;
                inner.split(|&b| b == b'|').nth(n)?
            }
        })
    }

    /// Returns the names and the texts of a line's fields, for a line that fits.
    pub fn fields<'s, 'l>(&'s self, line: &'l [u8], spans: &mut Spans) -> Option<Vec<(&'s str, &'l [u8])>> {
        self.split(line, spans).ok()?;
        let text = |column: &'s LayoutColumn| Some((&*column.name, self.text(line, spans, column)?));
        Some(self.columns.iter().filter_map(text).collect())
    }

    /// Whether most lines fit, and every candidate for the client holds addresses.
    pub fn fits_most(&self, lines: &[&[u8]]) -> bool {
        let mut spans = Spans::new();
        let clients = || self.columns.iter().filter(|column| matches!(column.role, Role::Client(_)));
        let mut fits = |line: &&&[u8]| {
            self.split(line, &mut spans).is_ok()
                && clients()
                    .all(|column| self.text(line, &spans, column).is_some_and(variables::may_be_addresses))
        };
        2 * lines.iter().filter(|line| fits(line)).count() > lines.len()
    }

    /// Takes the fields of one line.
    ///
    /// # Errors
    /// Returns an error if the line does not fit the layout.
    pub fn extract(
        &self,
        columns: &Columns<usize>,
        spans: &mut Spans,
        line: &[u8],
        row: &mut Row,
    ) -> Result<(), String> {
        self.split(line, spans).map_err(|field| {
            format!("the line does not fit the format {}: no {field:?} where it is expected, or another text after it", self.name)
        })?;
        let text = |&column: &usize| self.text(line, spans, &self.columns[column]);
        let get = |column: &usize| {
            text(column).ok_or_else(|| format!("the line ends before {:?}", self.columns[*column].name))
        };
        columns.take(row, get, text)
    }
}

/// Returns the place of a text, whose first byte is searched for first.
fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    let (&first, others) = wanted.split_first()?;
    memchr_iter(first, text).find(|&at| text[at + 1..].starts_with(others))
}
