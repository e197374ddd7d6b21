//! Records with commas or tabs.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use tollgate_cli::input::decompress::LONGEST_LINE;
use tollgate_cli::input::delimited::{Bounded, Delimiter, LONGEST_RECORD, extract, header, reader};
use tollgate_cli::input::row::{ChosenFields, Columns, Row};
use tollgate_cli::input::sample::Sample;

fn names() -> Vec<String> {
    header([&b"ts "[..], b"ID.orig_h", b"id.orig_h"].into_iter())
}

fn columns(time: &str, key: &str) -> Result<Columns<usize>, String> {
    let sample = Sample::of_header(&names());
    let chosen = ChosenFields { time: vec![time.to_owned()], key: vec![key.to_owned()], cost: None };
    Columns::new(&chosen, &[], |name| sample.column(name))
}

#[test]
fn columns_are_found_by_name() {
    assert_eq!(columns("ts", "id.orig_h").unwrap().key, [2]);
    assert_eq!(columns("TS", "Id.Orig_h").unwrap().key, [1]);
    assert_eq!(columns("ts", "src"), Err("src".to_owned()));
}

#[test]
fn most_frequent_delimiter_is_chosen() {
    let guess = |header: &str| Delimiter::guess(header.as_bytes()).map(|delimiter| delimiter.to_string());
    for (header, delimiter) in [
        ("a,b;c,d", Some(",")),
        ("a;b;c,d", Some(";")),
        ("a;b,c", Some(",")),
        ("\"a,b,c\";d", Some(";")),
        ("a|b", Some("|")),
        ("a b", None),
        ("", None),
    ] {
        assert_eq!(guess(header).as_deref(), delimiter, "{header}");
    }
}

#[test]
fn tsv_splits_at_every_tab() {
    let columns = columns("ts", "id.orig_h").unwrap();
    let mut reader = reader(&b"ts \tID.orig_h\tid.orig_h\n1\t\t\"a\tb\n1\tx\n"[..], Delimiter::TAB, false);
    let records = reader.byte_records().collect::<Result<Vec<_>, _>>().unwrap();
    let mut row = Row::new(None);
    let mut extract = |n: usize| {
        row.clear();
        extract(&columns, &names(), |column| records[n].get(column), records[n].len(), &mut row)?;
        Ok::<_, String>((row.time().to_vec(), row.key().unwrap().to_vec()))
    };
    assert_eq!(extract(0), Ok((b"1".to_vec(), b"\"a".to_vec())));
    assert_eq!(extract(1).unwrap_err(), "the record has 2 columns, but \"id.orig_h\" is column 3");
}

/// What is read of a text whose reader of records sees no end of a record.
fn bounded(text: &[u8], chunk: usize) -> (Vec<u8>, bool) {
    let mut source = Bounded::new(text, Rc::new(Cell::new(0)));
    let (mut read, mut buffer) = (Vec::new(), vec![0; chunk]);
    loop {
        match source.read(&mut buffer) {
            Ok(0) => return (read, true),
            Ok(count) => read.extend_from_slice(&buffer[..count]),
            Err(_) => return (read, false),
        }
    }
}

#[test]
fn long_lines_are_cut_and_long_records_are_refused() {
    let long = "x".repeat(LONGEST_LINE);
    let line = format!("{}\n", &long[1..]);
    for (text, expected) in [
        ("a,b\n\n\r\n1,2".to_owned(), "a,b\n\n\r\n1,2".to_owned()),
        (format!("a\n{long}yz\nb\n"), format!("a\n{long}\nb\n")),
        (format!("{long}{long}{long}"), long.clone()),
        ("\r\n".repeat(LONGEST_RECORD), "\r\n".repeat(LONGEST_RECORD)),
        (line.repeat(2), line.repeat(2)),
    ] {
        for chunk in [7, 1 << 16] {
            let (read, whole) = bounded(text.as_bytes(), chunk);
            assert!(whole && read == expected.as_bytes(), "{chunk}: {:.20}", text);
        }
    }
    let (read, whole) = bounded(line.repeat(100).as_bytes(), 1 << 16);
    assert!(!whole && read.len() < LONGEST_RECORD + (1 << 17), "{}", read.len());
}
