//! Records as JSON objects.

use tollgate_cli::input::jsonl::{JsonColumns, fields};
use tollgate_cli::input::row::Row;

fn columns(time: &str, key: &str) -> JsonColumns {
    JsonColumns { time: vec![time.to_owned()], key: vec![key.to_owned()], cost: None, others: Vec::new() }
}

fn extract(time: &str, key: &str, line: &str) -> Result<(String, String), String> {
    let columns = columns(time, key);
    let mut row = Row::new(None);
    columns.extract(line.as_bytes(), &mut row)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Ok((text(row.time()), text(row.key().unwrap_or_default())))
}

#[test]
fn numbers_keep_their_text() {
    let line = r#"{"ts":1655071198.444458000000001,"id":12345678901234567890123}"#;
    let expected = ("1655071198.444458000000001".to_owned(), "12345678901234567890123".to_owned());
    assert_eq!(extract("ts", "id", line), Ok(expected));
}

#[test]
fn dotted_names_and_paths() {
    let both = ("1".to_owned(), "a".to_owned());
    assert_eq!(extract("ts", "id.orig_h", r#"{"ts":1,"id.orig_h":"a"}"#), Ok(both.clone()));
    assert_eq!(extract("ts", "id.orig_h", r#"{"ts":1,"id":{"orig_h":"a"}}"#), Ok(both.clone()));
    assert_eq!(extract("ts", "a.b.c", r#"{"ts":1,"a.b":{"x":2,"c":"a"}}"#), Ok(both.clone()));
    assert_eq!(extract("t.s", "a.b.c", r#"{"a":{"b":{"c":"a"}},"t":{"s":1}}"#), Ok(both));
}

/// nginx writes `\\x22` in a format that is JSON otherwise.
#[test]
fn bytes_in_hexadecimal_are_read() {
    let line = r#"{"ts":1,"a":"\\x","request":"GET /\x22\xe4 HTTP/1.1","ip":"a\x41"}"#;
    assert_eq!(extract("ts", "ip", line), Ok(("1".to_owned(), "aA".to_owned())));
    assert!(extract("ts", "ip", r#"{"ts":1,"ip":"\y"}"#).unwrap_err().contains("invalid escape"));
    assert!(extract("ts", "ip", r#"{"ts":1,"ip":"\xzz"}"#).unwrap_err().contains("invalid escape"));
}

/// The first element of an array stands for the others, but either end of a list of addresses may be the client.
#[test]
fn ends_of_arrays_are_fields() {
    let line = br#"{"tags":["a","b"],"ips":["192.0.2.1","192.0.2.2","192.0.2.3"],"one":["192.0.2.1"],"none":[],"xff":["192.0.2.1","192.0.2.2"]}"#;
    let fields = fields(line).unwrap();
    let shown: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value))).collect();
    let expected = [
        "tags[0]=a",
        "ips[0]=192.0.2.1",
        "ips[-1]=192.0.2.3",
        "one[0]=192.0.2.1",
        "xff=192.0.2.1, 192.0.2.2",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn elements_of_arrays() {
    let line = r#"{"ts":1,"a":{"b":["x",{"c":["y","z"]}]},"a.b":7,"d[0]":"w","e":[]}"#;
    let key = |path: &str| extract("ts", path, line).map(|(_, key)| key);
    for (path, value) in
        [("a.b[0]", "x"), ("a.b[1].c[0]", "y"), ("a.b[-1].c[-1]", "z"), ("d[0]", "w"), ("a.b", "7")]
    {
        assert_eq!(key(path), Ok(value.to_owned()), "{path}");
    }
    for path in ["a.b[2]", "a.b[-3]", "a.b[x]", "a.b[0", "e[0]", "a.b[1].c[0].d"] {
        assert_eq!(key(path), Err(format!("no field {path:?}")));
    }
}

#[test]
fn last_duplicate_json_field_counts() {
    let line = r#"{"t\u0073":1,"k":"x","k":"a\"\u00e9"}"#;
    assert_eq!(extract("ts", "k", line), Ok(("1".to_owned(), "a\"é".to_owned())));
}

#[test]
fn missing_json_field_is_named() {
    assert_eq!(extract("ts", "who", r#"{"ts":1,"a":{"b":2},"c":[1]}"#), Err("no field \"who\"".to_owned()));
    let not_plain = Err("field \"k\" is neither text nor a number".to_owned());
    assert_eq!(extract("ts", "k", r#"{"ts":1,"k":null}"#), not_plain);
    assert_eq!(extract("ts", "k", r#"{"ts":1,"k":{"x":1}}"#), not_plain);
}

#[test]
fn non_object_line_is_rejected() {
    for line in ["", "[]", "1", "{", r#"{"ts":1} x"#, r#"{"ts":1,}"#, "\0", &"[".repeat(100_000)] {
        let error = extract("ts", "k", line).unwrap_err();
        assert!(error.starts_with("not a JSON object: "), "{line:.20}");
    }
    let error = extract("ts", "k", r#"{"ts":1,"k":tru}"#).unwrap_err();
    assert!(error.contains("column") && !error.contains("line 1"), "{error}");
}

#[test]
fn unselected_bytes_may_be_invalid() {
    let columns = columns("t", "k");
    let mut row = Row::new(None);
    assert_eq!(columns.extract(b"{\"t\":1,\"k\":\"a\",\"x\":\"\xff\"}", &mut row), Ok(()));
}

/// Clients can write the left end of a list, so the first element does not stand for it.
#[test]
fn forwarded_arrays_are_lists() {
    let line = br#"{"x_forwarded_for":["203.0.113.99","198.51.100.1"],"forwarded_to":["a","b"],"ips":["192.0.2.1"]}"#;
    let names: Vec<(String, String)> = fields(line)
        .unwrap()
        .into_iter()
        .map(|(name, text)| (name, String::from_utf8(text.into_owned()).unwrap()))
        .collect();
    let expected = [
        ("x_forwarded_for", "203.0.113.99, 198.51.100.1"),
        ("forwarded_to[0]", "a"),
        ("ips[0]", "192.0.2.1"),
    ];
    assert_eq!(names, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let key = |line: &str| extract("ts", "x.Forwarded", line).map(|(_, key)| key);
    assert_eq!(key(r#"{"ts":1,"x":{"Forwarded":["<b>, ","a",2]}}"#), Ok("<b>, , a, 2".to_owned()));
    for value in ["[]", "[[1]]", "{}"] {
        assert!(key(&format!(r#"{{"ts":1,"x":{{"Forwarded":{value}}}}}"#)).is_err(), "{value}");
    }
}
