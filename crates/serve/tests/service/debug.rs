//! What the debug endpoint reads, and the parts of its page that have changed.

use http::{Request, StatusCode};
use serde_json::{Value, json};
use tollgate_serve::debug::live::changes;
use tollgate_serve::debug::read::{Form, PageName, PagePart, PageRequest, asked};

/// Reads a request with these fields, at an endpoint on loopback or elsewhere.
fn read(path: &str, fields: &[(&str, &str)], is_local: bool) -> Result<PageRequest, StatusCode> {
    let mut request = Request::get(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    asked(&request.body(()).unwrap(), is_local).map_err(|(status, _)| status)
}

#[test]
fn browsers_get_the_page_and_programs_the_text() {
    let home = |accept: &str| read("/", &[("host", "localhost"), ("accept", accept)], true);
    let page = Ok(PageRequest::Part(PagePart::Html));
    assert_eq!(home("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), page);
    assert_eq!(home("application/xml, text/html;q=0.9"), page);
    assert_eq!(home("*/*"), Ok(PageRequest::Page(PageName::Home, Form::Text)));
    assert_eq!(home("application/json"), Ok(PageRequest::Page(PageName::Home, Form::Json)));
    assert_eq!(home("text/htmlx"), Ok(PageRequest::Page(PageName::Home, Form::Text)));
    assert_eq!(read("/", &[("host", "localhost")], true), Ok(PageRequest::Page(PageName::Home, Form::Text)));
}

// G147
#[test]
fn names_of_other_sites_are_refused_on_loopback() {
    let at = |host: &str, is_local| read("/stats", &[("host", host)], is_local).map(drop);
    for host in ["localhost", "LOCALHOST:6070", "127.0.0.1:6070", "[::1]:6070", "a.localhost", "10.0.0.5"] {
        assert_eq!(at(host, true), Ok(()), "{host}");
    }
    for host in
        ["evil.example", "evil.example:6070", "127.0.0.1.evil.example", "localhost.evil.example", "", "a b"]
    {
        assert_eq!(at(host, true), Err(StatusCode::MISDIRECTED_REQUEST), "{host}");
        assert_eq!(at(host, false), Ok(()), "{host}");
    }
    assert_eq!(read("/stats", &[], true), Ok(PageRequest::Page(PageName::Counts, Form::Text)), "no browser");
    // A request to a proxy has the name in the address.
    assert_eq!(
        read("http://localhost:6070/top", &[], true),
        Ok(PageRequest::Page(PageName::Top, Form::Text))
    );
    assert_eq!(read("http://evil.example/top", &[], true), Err(StatusCode::MISDIRECTED_REQUEST));
    let site = |mode: &str| {
        let fields = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", mode)];
        read("/why", &fields, true)
    };
    assert_eq!(site("no-cors"), Err(StatusCode::FORBIDDEN));
    assert_eq!(site("navigate"), Err(StatusCode::BAD_REQUEST), "a link may lead here");
}

#[test]
fn questions_are_read_as_on_the_command_line() {
    let question = |query: &str| match read(&format!("/why?{query}"), &[("host", "localhost")], true) {
        Ok(PageRequest::Why(question, Form::Text)) => Ok(question),
        Err(status) => Err(status),
        other => panic!("{other:?}"),
    };
    let read = question(
        "domain=a%20b&descriptor=k%3D%27x%2Cy%27%2Cl%3D%C3%A9&descriptor=+&descriptor=m=n&tier=gold&cost=0",
    );
    let read = read.unwrap();
    let descriptors: Vec<String> = read.descriptors.iter().map(ToString::to_string).collect();
    assert_eq!((&*read.domain, read.tier.as_deref(), read.cost), ("a b", Some("gold"), 0));
    assert_eq!(descriptors, ["k='x,y',l=é", "m=n"]);
    for wrong in
        ["", "domain=d", "domain=d&descriptor=", "domain=d&descriptor=k", "domain=d&descriptor=k=v&cost=-1"]
    {
        assert_eq!(question(wrong), Err(StatusCode::BAD_REQUEST), "{wrong}");
    }
    assert_eq!(question(&"x".repeat(8 << 10)), Err(StatusCode::BAD_REQUEST));
    assert_eq!(question(&"x".repeat((8 << 10) + 1)), Err(StatusCode::URI_TOO_LONG));
}

#[test]
fn changes_are_members_of_sections() {
    let of = |before: Value, now: Value| {
        Value::Object(changes(before.as_object().unwrap(), now.as_object().unwrap()))
    };
    let before = json!({ "a": { "x": 1, "y": 2 }, "b": [1], "c": null });
    assert_eq!(of(json!({}), before.clone()), before);
    assert_eq!(of(before.clone(), before.clone()), json!({}));
    let now = json!({ "a": { "x": 1, "y": 3, "z": 0 }, "b": [1, 2], "c": null });
    assert_eq!(of(before.clone(), now), json!({ "a": { "y": 3, "z": 0 }, "b": [1, 2] }));
    assert_eq!(
        of(before, json!({ "a": { "y": 2 }, "b": [1], "c": 1 })),
        json!({ "a": { "x": null }, "c": 1 })
    );
}
