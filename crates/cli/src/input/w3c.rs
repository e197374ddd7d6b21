//! Extended log files of the W3C, as IIS and CloudFront write them: a line `#Fields:` names the columns of the lines after
//! it. Columns are separated by spaces, or by tabs if the line has any. Zeek's `#fields` is read in the same way.
//!
//! <https://www.w3.org/TR/WD-logfile.html>,
//! <https://learn.microsoft.com/en-us/windows/win32/http/w3c-logging>,
//! <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html>

use std::ops::Range;

use super::delimited::{self, DelimitedColumns};
use super::fields::{Present, head_lines};
use super::layout::Variable;
use super::row::{ChosenFields, Row};
use super::sample::{RECORDS, Sample};

/// Returns the names of the columns, if the line declares them.
pub fn declared(line: &[u8]) -> Option<Vec<String>> {
    let names = line.strip_prefix(b"#Fields:").or(line.strip_prefix(b"#fields\t"))?;
    Some(delimited::header(names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty())))
}

/// Returns the column of this name in the header, or of this common name.
pub fn column(header: &[String], name: &str) -> Option<(usize, String)> {
    delimited::column(header, name).or_else(|| {
        let is_called = |column: &String| {
            Variable::of(column)
                .names
                .split(' ')
                .any(|known| !known.is_empty() && known.eq_ignore_ascii_case(name))
        };
        let at = header.iter().position(is_called)?;
        Some((at, header[at].clone()))
    })
}

/// Returns the header of a file, and its first records.
pub fn first_records(head: &[u8]) -> (Present, Sample) {
    let mut names = head_lines(head).find_map(declared).unwrap_or_default();
    let present = Present {
        common: names.iter().map(|name| Variable::of(name).common().to_owned()).collect(),
        aliases: names
            .iter()
            .flat_map(|name| Variable::of(name).names.split(' '))
            .map(str::to_owned)
            .collect(),
        names: names.clone(),
        open: false,
    };
    let mut sample = Sample::of(names.iter().map(|name| (&**name, Variable::of(name).role)));
    let mut places = Vec::new();
    for line in head_lines(head).skip_while(|line| declared(line).is_none()).take(RECORDS) {
        if let Some(declared) = declared(line) {
            names = declared;
        } else if !line.starts_with(b"#") {
            split(line, &mut places);
            sample.add(names.iter().zip(&places).map(|(name, place)| (&**name, &line[place.clone()])));
        }
    }
    (present, sample)
}

/// Splits a line into columns.
pub fn split(line: &[u8], columns: &mut Vec<Range<usize>>) {
    columns.clear();
    let tabs = line.contains(&b'\t');
    let mut at = 0;
    while at < line.len() {
        let rest = &line[at..];
        let quote = usize::from(!tabs && rest[0] == b'"');
        let mark = match (tabs, quote) {
            (true, _) => b'\t',
            (_, 1) => b'"',
            _ => b' ',
        };
        let end = rest[quote..].iter().position(|&b| b == mark).map_or(line.len(), |end| at + quote + end);
        columns.push(at + quote..end);
        at = end + quote + 1;
    }
}

/// The columns of the lines that follow.
#[derive(Debug)]
pub struct W3cReader<'c> {
    chosen: &'c ChosenFields,
    others: &'c [Option<String>],
    columns: Result<DelimitedColumns, String>,
    places: Vec<Range<usize>>,
}

impl<'c> W3cReader<'c> {
    /// Creates a reader of these fields; `find` returns the column of a name.
    pub fn new(chosen: &'c ChosenFields, others: &'c [Option<String>]) -> Self {
        let columns = Err("a line before #Fields: names its columns".to_owned());
        Self { chosen, others, columns, places: Vec::new() }
    }

    /// Takes the fields of one line. Returns whether it is a record.
    ///
    /// # Errors
    /// Returns an error if the record is too short, or its columns lack a field.
    pub fn extract(&mut self, line: &[u8], row: &mut Row) -> Result<bool, String> {
        if line.starts_with(b"#") {
            if let Some(names) = declared(line) {
                let columns = DelimitedColumns::new(self.chosen, self.others, |name| column(&names, name));
                self.columns = columns.map_err(|name| format!("#Fields: has no column {name:?}"));
            }
            return Ok(false);
        }
        let columns = self.columns.as_ref().map_err(Clone::clone)?;
        split(line, &mut self.places);
        let field = |column: usize| line.get(self.places.get(column)?.clone());
        columns.extract(field, self.places.len(), row).map(|()| true)
    }
}
