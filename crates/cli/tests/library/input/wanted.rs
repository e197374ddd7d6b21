//! Combinations of fields.

use tollgate_cli::input::row::{FieldKind, Row};
use tollgate_cli::input::wanted::{Fields, Wanted};

fn fields(names: &[&str]) -> Fields {
    let wanted =
        |name: &&str| Wanted { names: vec![(*name).to_owned()], guessed: false, kind: FieldKind::Client };
    Fields::new(names.iter().map(wanted).collect())
}

fn row(values: &[&[u8]]) -> Row {
    let mut row = Row::new(None);
    values.iter().for_each(|value| row.add_field(Some(value)));
    row
}

#[test]
fn equal_combinations_share_a_number() {
    let mut fields = fields(&["a", "b"]);
    let rows: [[&[u8]; 2]; 4] = [[b"x", b"y"], [b"x", b"-"], [b"x", b"y"], [b"y", b"\xff"]];
    let numbers: Vec<_> = rows.iter().map(|values| fields.intern(&row(values)).unwrap()).collect();
    assert_eq!(numbers, [0, 1, 0, 2]);
    let text = |number, field| fields.value(number, field).map(|id| fields.text(id));
    assert_eq!([text(0, 0), text(0, 1)], [Some("x"), Some("y")]);
    assert_eq!([text(1, 0), text(1, 1)], [Some("x"), None]);
    assert_eq!([text(2, 0), text(2, 1)], [Some("y"), Some("\\xff")]);
    assert_eq!((fields.len(), fields.texts()), (3, 3));
}

#[test]
fn no_fields_give_one_combination() {
    let mut fields = fields(&[]);
    assert_eq!((fields.intern(&row(&[])), fields.intern(&row(&[]))), (Some(0), Some(0)));
    assert_eq!((fields.len(), fields.value(0, 0)), (1, None));
}
