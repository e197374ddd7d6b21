//! Descriptors on the command line.

use tollgate_report::descriptor::{DescriptorArg, EntryValue};

fn parsed(text: &str) -> Result<Vec<(String, EntryValue)>, String> {
    text.parse::<DescriptorArg>().map(|arg| arg.0)
}

fn field(key: &str, field: &str) -> (String, EntryValue) {
    (key.to_owned(), EntryValue::Field(field.to_owned()))
}

fn text(key: &str, text: &str) -> (String, EntryValue) {
    (key.to_owned(), EntryValue::Text(text.to_owned()))
}

#[test]
fn descriptor_entries_are_parsed() {
    assert_eq!(parsed("a=b"), Ok(vec![field("a", "b")]));
    assert_eq!(parsed(" a = b , c=d.e"), Ok(vec![field("a", "b"), field("c", "d.e")]));
    assert_eq!(parsed("g:=api,a=b"), Ok(vec![text("g", "api"), field("a", "b")]));
    assert_eq!(parsed("g:='a,b=''c''' ,'k,=:'='f,'"), Ok(vec![text("g", "a,b='c'"), field("k,=:", "f,")]));
    assert_eq!(parsed("g:=''"), Ok(vec![text("g", "")]));
    assert_eq!(parsed(":path=path,a=b=c"), Ok(vec![field(":path", "path"), field("a", "b=c")]));
    assert_eq!(parsed("ключ:=é"), Ok(vec![text("ключ", "é")]));
}

#[test]
fn invalid_descriptor_is_rejected() {
    for (wrong, part) in [
        ("", "expected KEY=FIELD"),
        ("a", "expected KEY=FIELD"),
        ("=b", "expected KEY=FIELD"),
        (":=b", "expected KEY=FIELD"),
        ("a=b,", "expected KEY=FIELD"),
        ("a,b=c", "\"a,b=c\": expected"),
        ("a=", "\"a\" has no field"),
        ("a=''", "\"a\" has no field"),
        ("a:=", "write '' for an empty text"),
        ("a:='x", "not closed"),
        ("'a=x", "not closed"),
        ("a:='x'y", "\"y\" follows"),
    ] {
        let error = parsed(wrong).unwrap_err();
        assert!(error.contains(part), "{wrong:?}: {error}");
    }
}

/// Cause: requests were parsed as fields of a log. Symptom: an operator could not name the key of an empty value, and the
/// message spoke of a log.
#[test]
fn values_of_a_request_may_be_empty() {
    let of_request = |text: &str| DescriptorArg::of_request(text).map(|arg| arg.0);
    assert_eq!(of_request("a='',b=c"), Ok(vec![field("a", ""), field("b", "c")]));
    for (wrong, part) in
        [("a", "expected KEY=VALUE"), ("a=", "\"a\" has no text; write ''"), ("a='x'y", "follows")]
    {
        let error = of_request(wrong).unwrap_err();
        assert!(error.contains(part), "{wrong:?}: {error}");
    }
}

#[test]
fn displayed_descriptor_parses_again() {
    for entries in
        [vec![field("a", "b"), text("c", "d")], vec![text("a:", "x,y"), field(" b ", "it's"), text("c", "")]]
    {
        let shown = DescriptorArg(entries.clone()).to_string();
        assert_eq!(parsed(&shown), Ok(entries), "{shown}");
    }
}
