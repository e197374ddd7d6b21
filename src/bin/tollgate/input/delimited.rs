//! CSV (RFC 4180, quotes and line ends inside them) and TSV (no quotes), both with a header line.

use super::row::{LineError, Row, printable};

/// Which columns to take from each record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DelimitedColumns {
    time: Vec<usize>,
    key: Vec<usize>,
    cost: Option<usize>,
    others: Vec<Option<usize>>,
    names: Vec<String>,
}

impl DelimitedColumns {
    /// DelimitedColumns by their names in the header: the first of equal names, with the same case or, if there is none, any.
    ///
    /// # Errors
    /// With the first name that the header does not have.
    pub fn new(
        header: Vec<String>,
        time: &[String],
        key: &[String],
        cost: Option<&str>,
    ) -> Result<Self, String> {
        let find = |name: &str| position(&header, name).ok_or_else(|| name.to_owned());
        let all = |names: &[String]| names.iter().map(|name| find(name)).collect::<Result<Vec<_>, _>>();
        let (time, key, cost) = (all(time)?, all(key)?, cost.map(find).transpose()?);
        Ok(Self { time, key, cost, others: Vec::new(), names: header })
    }

    /// Takes these columns as well; `None` is always missing, as is a name that the header does not have.
    pub fn with_others(mut self, names: &[Option<String>]) -> Self {
        self.others = names.iter().map(|name| position(&self.names, name.as_deref()?)).collect();
        self
    }

    /// Takes the fields of one record, of which `field` gives each column.
    ///
    /// # Errors
    /// If the record is too short.
    pub fn extract<'a>(
        &self,
        field: impl Fn(usize) -> Option<&'a [u8]>,
        count: usize,
        row: &mut Row,
    ) -> Result<(), LineError> {
        let get = |column: usize| {
            field(column).ok_or_else(|| LineError::Short {
                field: self.names[column].clone(),
                column: column + 1,
                columns: count,
            })
        };
        for &column in &self.time {
            row.add_time(get(column)?);
        }
        for &column in &self.key {
            row.add_key(get(column)?);
        }
        if let Some(column) = self.cost {
            row.set_cost(get(column)?);
        }
        self.others.iter().for_each(|&column| row.add_field(column.and_then(&field)));
        Ok(())
    }
}

/// The column of this name: with the same case or, if there is none, any.
fn position(header: &[String], name: &str) -> Option<usize> {
    let same = header.iter().position(|known| known == name);
    same.or_else(|| header.iter().position(|known| known.eq_ignore_ascii_case(name)))
}

/// A header's names; what is not text is shown in escapes.
pub fn header<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Vec<String> {
    fields.map(|field| printable(field.trim_ascii(), 200)).collect()
}

/// A TSV line, its columns' ends found once and the memory for them used again.
#[derive(Clone, Debug, Default)]
pub struct TsvLine {
    ends: Vec<usize>,
}

impl TsvLine {
    /// Takes the fields of one line.
    ///
    /// # Errors
    /// If the line is too short.
    pub fn extract(
        &mut self,
        columns: &DelimitedColumns,
        line: &[u8],
        row: &mut Row,
    ) -> Result<(), LineError> {
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

/// A CSV record's place and the first part of its text, for a message.
pub fn shown(record: &csv::ByteRecord) -> Vec<u8> {
    record.iter().take(20).collect::<Vec<_>>().join(&b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(time: &str, key: &str) -> Result<DelimitedColumns, String> {
        let header = header([&b"ts "[..], b"ID.orig_h", b"id.orig_h"].into_iter());
        DelimitedColumns::new(header, &[time.to_owned()], &[key.to_owned()], None)
    }

    #[test]
    fn columns_are_found_by_name() {
        assert_eq!(columns("ts", "id.orig_h").unwrap().key, [2]);
        assert_eq!(columns("TS", "Id.Orig_h").unwrap().key, [1]);
        assert_eq!(columns("ts", "src"), Err("src".to_owned()));
    }

    #[test]
    fn a_tsv_line_is_split_at_every_tab() {
        let columns = columns("ts", "id.orig_h").unwrap();
        let mut line = TsvLine::default();
        let mut row = Row::new(None);
        line.extract(&columns, b"1\t\t\"a\tb", &mut row).unwrap();
        assert_eq!((row.time(), row.key()), (&b"1"[..], Ok(&b"\"a"[..])));
        row.clear();
        let error = line.extract(&columns, b"1\tx", &mut row).unwrap_err();
        assert_eq!(error.to_string(), "the record has 2 columns, but \"id.orig_h\" is column 3");
    }
}
