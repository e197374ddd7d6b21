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
const VERSION: &str = "v1";
/// The maximum length of an escaped key. A longer key is replaced by 128 bits of its SHA-256.
const LONGEST: usize = 96;

/// Appends escaped bytes. Different inputs have different outputs, and the output has no brace, bar or unreadable byte.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    // Plain bytes are copied together, with the byte before them.
    for part in bytes.chunk_by(|_, &next| is_plain(next)) {
        match part {
            &[byte, ref rest @ ..] if !is_plain(byte) => {
                out.push(b'%');
                hex(byte, out);
                out.extend(rest);
            }
            _ => out.extend(part),
        }
    }
}

/// Returns whether a byte stays as it is.
const fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/' | b'@')
}

/// Returns the common start of all keys in Redis of the limiter with this name: prefix, version and name, up to the bar.
pub fn head(prefix: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    escape(prefix.as_bytes(), &mut out);
    out.push(b':');
    out.extend(VERSION.as_bytes());
    out.extend(b":{");
    escape(name.as_bytes(), &mut out);
    out.push(b'|');
    out
}

/// Returns the key in Redis of a limiter's key, up to and including the closing brace. `head` is from [`head`]. The name of a
/// limit's state is this key, a colon, and [`PlannedLimit::name`](crate::PlannedLimit::name).
pub fn tagged(head: &[u8], key: &[u8]) -> Vec<u8> {
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
