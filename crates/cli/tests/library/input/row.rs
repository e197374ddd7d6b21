//! Keys of records.

use tollgate_cli::input::client::Clients;
use tollgate_cli::input::row::{EMPTY_KEY, Row, UNKNOWN_CLIENT, printable};

fn key(prefix: Option<u8>, parts: &[&str]) -> Result<String, &'static str> {
    let mut row = Row::new(prefix.map(|ipv6_prefix| Clients { ipv6_prefix, ..Clients::default() }));
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
fn unprintable_bytes_are_escaped() {
    assert_eq!(printable(b"caf\xc3\xa9 \xff\n", 50), "café \\xff\\x0a");
    assert_eq!(printable("a\u{9b}\u{202e}".as_bytes(), 50), "a\\xc2\\x9b\\xe2\\x80\\xae");
    assert_eq!(printable("a\u{202e}b\u{2028}".as_bytes(), 50), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8");
    assert_eq!(printable(b"abcdef", 3), "abc…");
    assert_eq!(printable(b"abc", 3), "abc");
}
