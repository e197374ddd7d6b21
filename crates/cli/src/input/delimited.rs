//! CSV (RFC 4180, quotes and line ends inside them) and TSV (no quotes), both with a header line.

use super::row::{Columns, Row, printable};

/// Columns by their index, with their names in the header.
pub type DelimitedColumns = Columns<(usize, String)>;

impl DelimitedColumns {
    /// Takes the fields of one record; `field` returns each column.
    ///
    /// # Errors
    /// Returns an error if the record is too short.
    pub fn extract<'a>(
        &self,
        field: impl Fn(usize) -> Option<&'a [u8]>,
        count: usize,
        row: &mut Row,
    ) -> Result<(), String> {
        let get = |&(column, ref name): &(usize, String)| {
            field(column).ok_or_else(|| {
                format!("the record has {count} columns, but {name:?} is column {}", column + 1)
            })
        };
        self.take(row, get, |&(column, _)| field(column))
    }
}

/// Returns the column of this name in the header: the first with the same case or, if there is none, the first in any
/// case.
pub fn column(header: &[String], name: &str) -> Option<(usize, String)> {
    let same = header.iter().position(|known| known == name);
    let at = same.or_else(|| header.iter().position(|known| known.eq_ignore_ascii_case(name)))?;
    Some((at, header[at].clone()))
}

/// Returns a header's names; bytes that are not text are escaped.
pub fn header<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    fields.map(|field| printable(field.trim_ascii(), 200)).collect()
}

/// A TSV line. Its column ends are found once, and their memory is reused.
#[derive(Clone, Debug, Default)]
pub struct TsvLine {
    ends: Vec<usize>,
}

impl TsvLine {
    /// Takes the fields of one line.
    ///
    /// # Errors
    /// Returns an error if the line is too short.
    pub fn extract(&mut self, columns: &DelimitedColumns, line: &[u8], row: &mut Row) -> Result<(), String> {
        self.ends.clear();
        self.ends.extend(line.iter().enumerate().filter(|&(_, &b)| b == b'\t').map(|(at, _)| at));
        self.ends.push(line.len());
        let field = |column: usize| {
            let end = *self.ends.get(column)?;
            let start = if column == 0 { 0 } else { self.ends[column - 1] + 1 };
            Some(&line[start..end])
        };
        columns.extract(field, self.ends.len(), row)
    }
}

/// Returns the first 20 fields of a CSV record as text, for a message.
pub fn shown(record: &csv::ByteRecord) -> Vec<u8> {
    record.iter().take(20).collect::<Vec<_>>().join(&b',')
}
