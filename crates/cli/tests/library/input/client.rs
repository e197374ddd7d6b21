//! Addresses of clients.

use tollgate_cli::input::client::{Client, Clients};

fn read(proxies: usize, text: &str) -> String {
    match (Clients { proxies, ..Clients::default() }).read(text.as_bytes()) {
        Client::Text => "text".to_owned(),
        Client::Address(address, _) => address.to_string(),
        Client::Unknown => "unknown".to_owned(),
    }
}

#[test]
fn ports_are_cut() {
    for (text, client) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:55512", "192.0.2.1"),
        ("[2001:db8::1]:443", "2001:db8::"),
        ("[2001:db8::1]", "2001:db8::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        // A number that cannot be a group of the address, because it is too long, or because there are eight before it.
        ("2001:db8::1:50000", "2001:db8::"),
        ("2001:db8:1:2:3:4:5:6:4000", "2001:db8:1:2::"),
        ("::ffff:192.0.2.1:4000", "192.0.2.1"),
        // A zone, as Go writes it.
        ("[fe80::1%eth0]:4000", "fe80::"),
        ("fe80::1%eth0", "fe80::"),
        ("[fe80::1%eth0]", "fe80::"),
        ("192.0.2.1%eth0", "text"),
        ("a:b:1", "text"),
        ("192.0.2.1:port", "text"),
        ("example.org:443", "text"),
        ("alice", "text"),
        ("-", "text"),
    ] {
        assert_eq!(read(1, text), client, "{text}");
    }
    let seen = |text: &str| match Clients::default().read(text.as_bytes()) {
        Client::Address(_, seen) => (seen.networks == 1, seen.ports == 1, seen.lists == 1),
        _ => unreachable!("{text} is an address"),
    };
    assert_eq!(seen("192.0.2.1"), (false, false, false));
    assert_eq!(seen("192.0.2.1:5"), (false, true, false));
    assert_eq!(seen("[2001:db8::1]"), (true, false, false));
    assert_eq!(seen("[2001:db8::1]:5"), (true, true, false));
    assert_eq!(seen("1.1.1.1, 2001:db8::1"), (true, false, true));
    assert_eq!(seen("2001:db8::1:50000"), (true, true, false));
    assert_eq!(seen("[fe80::1%eth0]:4000"), (true, true, false));
    assert_eq!(seen("fe80::1%eth0"), (true, false, false));
}

#[test]
fn lists_are_read_from_the_right() {
    for (proxies, text, client) in [
        (1, "1.2.3.4, 5.6.7.8", "5.6.7.8"),
        (2, "1.2.3.4, 5.6.7.8", "1.2.3.4"),
        (2, "\\x00 nonsense, 1.2.3.4:5, 5.6.7.8", "1.2.3.4"),
        (3, "1.2.3.4, 5.6.7.8", "unknown"),
        (2, "1.2.3.4", "unknown"),
        (2, "alice", "text"),
        (1, "1.2.3.4, unknown", "unknown"),
        (1, "x=y, 5.6.7.8", "5.6.7.8"),
        (1, "for=1.2.3.4;proto=https, for=\"[2001:db8:0:1:2::]:4711\"", "2001:db8:0:1::"),
        (1, "\"1.2.3.4, 5.6.7.8\"", "5.6.7.8"),
        (2, "\"1.2.3.4, 5.6.7.8\"", "1.2.3.4"),
        (1, "\"1.2.3.4\"", "1.2.3.4"),
        (1, "'198.51.100.1, 192.0.2.10'", "192.0.2.10"),
        (1, "[198.51.100.2]", "198.51.100.2"),
        (1, "(203.0.113.9, 198.51.100.2)", "198.51.100.2"),
        (1, "[2001:db8::1], [2001:db8:0:1::2]", "2001:db8:0:1::"),
        (1, "[[2001:db8::1], [2001:db8:0:1::2]]", "2001:db8:0:1::"),
        (1, "203.0.113.9,+198.51.100.1", "198.51.100.1"),
        (2, "203.0.113.9,+198.51.100.1", "203.0.113.9"),
        (1, "a+b", "text"),
        (1, "(alice)", "text"),
        (1, "Doe, John", "text"),
        (1, "a=b, c=d", "text"),
        (1, "/map?at=1,1.2.3.4", "text"),
        (1, "/near,1.2.3.4", "text"),
    ] {
        assert_eq!(read(proxies, text), client, "{proxies} {text}");
    }
}
