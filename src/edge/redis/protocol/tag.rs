//! The Redis key that holds the state of a limiter's key.
//!
//! ```text
//! tollgate:v1:{api|192.0.2.1}:f0:1d
//!    │     │    │   │         └ algorithm and index of the limit, and the period of windows; with `p` before: its posts
//!    │     │    │   └ the limiter's key, escaped
//!    │     │    └ the limiter's name, escaped
//!    │     └ version of the format; no version reads the states of another version
//!    └ prefix
//! ```
//! Cluster hashes only the text between the braces. So the whole state of one key is in one slot, and different keys
//! are spread over all slots. Names and keys are escaped, so a client's text cannot contain a brace or the separator.
//! Long keys are hashed.

use sha2::{Digest, Sha256};

/// The version of the format of keys and states.
pub(crate) const VERSION: &str = "v1";
/// The maximum length of an escaped key. A longer key is replaced by 128 bits of its SHA-256.
const LONGEST: usize = 96;

/// Appends escaped bytes. Different inputs have different outputs, and the output has no brace, bar or unreadable byte.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b':' | b'/' | b'@' => {
                out.push(byte);
            }
            _ => {
                out.push(b'%');
                hex(byte, out);
            }
        }
    }
}

/// The common start of all keys of one limiter.
pub(crate) fn head(prefix: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    escape(prefix.as_bytes(), &mut out);
    out.push(b':');
    out.extend(VERSION.as_bytes());
    out.extend(b":{");
    escape(name.as_bytes(), &mut out);
    out.push(b'|');
    out
}

/// The key in Redis, up to and including the closing brace. A suffix for each limit follows.
pub(crate) fn tagged(head: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + key.len() + 8);
    out.extend(head);
    escape(key, &mut out);
    if out.len() - head.len() > LONGEST {
        out.truncate(head.len());
        // No escaped key begins with this byte.
        out.push(b'#');
        for byte in &Sha256::digest(key)[..16] {
            hex(*byte, &mut out);
        }
    }
    out.push(b'}');
    out
}

fn hex(byte: u8, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.extend([HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    fn text(key: &[u8]) -> String {
        String::from_utf8(tagged(&head("tollgate", "api"), key)).unwrap()
    }

    #[test]
    fn keys_are_readable_and_distinct() {
        assert_eq!(text(b"192.0.2.1"), "tollgate:v1:{api|192.0.2.1}");
        assert_eq!(text(b""), "tollgate:v1:{api|}");
        assert_eq!(text(b"a}b{c|d%e"), "tollgate:v1:{api|a%7db%7bc%7cd%25e}");
        assert_ne!(text(b"%7d"), text(b"}"));
        assert_eq!(text("é".as_bytes()), "tollgate:v1:{api|%c3%a9}");
        assert_eq!(String::from_utf8(head("my app", "a|b")).unwrap(), "my%20app:v1:{a%7cb|");
    }

    #[test]
    fn long_keys_are_hashed() {
        let (long, other) = (vec![b'x'; 97], vec![b'x'; 98]);
        assert_eq!(text(&long).len(), "tollgate:v1:{api|#}".len() + 32);
        assert_ne!(text(&long), text(&other));
        assert_eq!(text(&long), text(&long));
        assert!(text(&[b'x'; 96]).ends_with("xx}"));
        assert!(text(&[0xff; 40]).contains("|#"), "40 bytes become 120 when they are escaped");
    }

    #[test]
    fn tag_has_one_pair_of_braces() {
        for key in [&b"{"[..], b"}", b"{}", b"", &[0, 255, b'{'], b"#1"] {
            let text = text(key);
            assert_eq!((text.matches('{').count(), text.matches('}').count()), (1, 1), "{text}");
        }
        assert!(text(b"#1").contains("%23"), "a key cannot look like a hash");
    }
}
