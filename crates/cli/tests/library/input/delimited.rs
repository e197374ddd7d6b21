//! Records with commas or tabs.

use tollgate_cli::input::delimited::{DelimitedColumns, Delimiter, TsvLine, column, header};
use tollgate_cli::input::row::{ChosenFields, Row};

fn columns(time: &str, key: &str) -> Result<DelimitedColumns, String> {
    let header = header([&b"ts "[..], b"ID.orig_h", b"id.orig_h"].into_iter());
    let chosen = ChosenFields { time: vec![time.to_owned()], key: vec![key.to_owned()], cost: None };
    DelimitedColumns::new(&chosen, &[], |name| column(&header, name))
}

#[test]
fn columns_are_found_by_name() {
    assert_eq!(columns("ts", "id.orig_h").unwrap().key, [(2, "id.orig_h".to_owned())]);
    assert_eq!(columns("TS", "Id.Orig_h").unwrap().key, [(1, "ID.orig_h".to_owned())]);
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
    let mut line = TsvLine::default();
    let mut row = Row::new(None);
    line.extract(&columns, b"1\t\t\"a\tb", &mut row).unwrap();
    assert_eq!((row.time(), row.key()), (&b"1"[..], Ok(&b"\"a"[..])));
    row.clear();
    let error = line.extract(&columns, b"1\tx", &mut row).unwrap_err();
    assert_eq!(error, "the record has 2 columns, but \"id.orig_h\" is column 3");
}
