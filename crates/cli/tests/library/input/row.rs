//! Keys of records.

use tollgate_cli::input::client::Clients;
use tollgate_cli::input::row::{EMPTY_KEY, NO_CLIENT, Row, UNKNOWN_CLIENT};
use tollgate_report::text::printable;

fn key(prefix: Option<u8>, parts: &[&str]) -> Result<String, &'static str> {
    let mut row = Row::new(prefix.map(|bits| Clients { ipv6_prefix: Some(bits), ..Clients::default() }));
    parts.iter().for_each(|part| row.add_key(part.as_bytes()));
    row.key().map(|key| printable(key, 200))
}

#[test]
fn addresses_are_grouped_by_prefix() {
    assert_eq!(key(None, &["2001:db8::1"]).unwrap(), "2001:db8::1");
    assert_eq!(key(Some(64), &["2001:db8:0:1:aaaa::1"]).unwrap(), "2001:db8:0:1::/64");
    assert_eq!(key(Some(64), &["::ffff:192.0.2.1"]).unwrap(), "192.0.2.1");
    assert_eq!(key(Some(64), &["192.0.2.1", "2001:DB8::1"]).unwrap(), "192.0.2.1 + 2001:db8::/64");
    assert_eq!(key(Some(128), &["2001:db8::1"]).unwrap(), "2001:db8::1/128");
    assert_eq!(key(Some(0), &["2001:db8::1"]).unwrap(), "::/0");
    assert_eq!(key(Some(48), &["www.example.org"]).unwrap(), "www.example.org");
}

#[test]
fn empty_key_part_is_an_error() {
    assert_eq!(key(None, &["a", "b"]).unwrap(), "a + b");
    assert_eq!(key(None, &["a", ""]), Err(EMPTY_KEY));
    assert_eq!(key(None, &[]), Err(EMPTY_KEY));
    assert_eq!(key(Some(64), &["a", "192.0.2.1, unknown"]), Err(UNKNOWN_CLIENT));
}

#[test]
fn dash_is_no_client() {
    assert_eq!(key(Some(64), &["-"]), Err(NO_CLIENT));
    assert_eq!(key(Some(64), &["-", "-"]), Err(NO_CLIENT));
    assert_eq!(key(Some(64), &["192.0.2.1", "-"]).unwrap(), "192.0.2.1 + -");
    // A field that is no client, such as a path.
    assert_eq!(key(None, &["-"]).unwrap(), "-");
}
