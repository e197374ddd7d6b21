//! Extended log files of the W3C, as IIS and CloudFront write them: a line `#Fields:` names the columns of the lines after
//! it. Columns are separated by spaces, or by tabs if the line has any. Zeek's `#fields` is read in the same way.
//!
//! <https://www.w3.org/TR/WD-logfile.html>,
//! <https://learn.microsoft.com/en-us/windows/win32/http/w3c-logging>,
//! <https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logs-reference.html>

use std::ops::Range;

use super::delimited;
use super::fields::head_lines;
use super::layout::Variable;
use super::row::{ChosenFields, Columns, Row};
use super::sample::{RECORDS, Sample};

/// Returns the names of the columns, if the line declares them.
pub fn declared(line: &[u8]) -> Option<Vec<String>> {
    let names = line.strip_prefix(b"#Fields:").or(line.strip_prefix(b"#fields\t"))?;
    Some(delimited::header(names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty())))
}

/// Returns a sample of columns with these names, without records.
fn sample(names: &[String]) -> Sample {
    Sample::named(names.iter().map(|name| {
        let variable = Variable::of(name);
        (&**name, variable.names, variable.role)
    }))
}

/// Returns the first records of a file.
pub fn first_records(head: &[u8]) -> Sample {
    let mut names = head_lines(head).find_map(declared).unwrap_or_default();
    let (mut sample, mut places) = (sample(&names), Vec::new());
    for line in head_lines(head).skip_while(|line| declared(line).is_none()).take(RECORDS) {
        if let Some(declared) = declared(line) {
            names = declared;
        } else if !line.starts_with(b"#") {
            split(line, &mut places);
            sample.add(names.iter().zip(&places).map(|(name, place)| (&**name, &line[place.clone()])));
        }
    }
    sample
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
    columns: Result<(Columns<usize>, Vec<String>), String>,
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
                let sample = sample(&names);
                let columns = Columns::new(self.chosen, self.others, |name| sample.column(name));
                let columns = columns.map_err(|name| format!("#Fields: has no column {name:?}"));
                self.columns = columns.map(|columns| (columns, names));
            }
            return Ok(false);
        }
        let (columns, names) = self.columns.as_ref().map_err(Clone::clone)?;
        split(line, &mut self.places);
        let field = |column: usize| line.get(self.places.get(column)?.clone());
        delimited::extract(columns, names, field, self.places.len(), row).map(|()| true)
    }
}
