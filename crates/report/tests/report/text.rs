//! Texts from others.

use tollgate_report::text::printable;

#[test]
fn unprintable_bytes_are_escaped() {
    assert_eq!(printable(b"caf\xc3\xa9 \xff\n", 50), "café \\xff\\x0a");
    assert_eq!(printable("a\u{9b}\u{202e}".as_bytes(), 50), "a\\xc2\\x9b\\xe2\\x80\\xae");
    assert_eq!(printable("a\u{202e}b\u{2028}".as_bytes(), 50), "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8");
    assert_eq!(printable(b"abcdef", 3), "abc…");
    assert_eq!(printable(b"abc", 3), "abc");
}
