//! Where the state of a limiter's key is kept.
//!
//! ```text
//! tollgate:v1:{api|192.0.2.1}:f0:1d
//!    │     │    │   │         └ algorithm and place of the limit, and the period of windows; `p` before that: its posts
//!    │     │    │   └ the limiter's key, escaped
//!    │     │    └ the limiter's name, escaped
//!    │     └ of the format: another one never reads this one's states
//!    └ prefix
//! ```
//! What is between the braces is all that Cluster hashes: everything of one key is in one slot, and different keys are spread over
//! all of them. Names and keys are escaped, so no text of a client can hold a brace or the separator. Long keys are hashed.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sha2::{Digest, Sha256};

use super::name::Number;

/// The version of the format of keys and states.
pub(crate) const VERSION: &str = "v1";
/// Escaped keys that are longer are replaced by 128 bits of their SHA-256.
const LONGEST: usize = 96;

/// What a shared limiter can be asked about.
///
/// All processes must write the same bytes for the same key.
pub trait Key {
    /// The key's bytes. Distinct keys of one limiter have distinct bytes.
    fn bytes(&self) -> Cow<'_, [u8]>;

    /// Calls `act` with the key's bytes. Where they must be written first, an implementation can do that without an allocation.
    #[inline]
    fn with_bytes<R>(&self, act: impl FnOnce(&[u8]) -> R) -> R {
        act(&self.bytes())
    }

    /// The number or address whose text the key's bytes are, if they are that. By default `None`, which is always right.
    ///
    /// Limiters that hold keys look them up by it, and write the text only when they ask the server. Keys of one limiter all have
    /// one, or none has: a key that is asked for both ways is held twice.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// use tollgate::redis::{Key, Number};
    ///
    /// struct Tenant(u64);
    ///
    /// impl Key for Tenant {
    ///     fn bytes(&self) -> Cow<'_, [u8]> {
    ///         Cow::Owned(self.0.to_string().into_bytes())
    ///     }
    ///     fn number(&self) -> Option<Number> {
    ///         self.0.number()
    ///     }
    /// }
    /// ```
    #[inline]
    fn number(&self) -> Option<Number> {
        None
    }
}

/// Text of numbers and addresses, on the stack.
struct Text {
    bytes: [u8; LONGEST_TEXT],
    len: usize,
}

/// The longest is that of an address: `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`; with a sign, `u128` has 40.
const LONGEST_TEXT: usize = 48;

impl fmt::Write for Text {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len.saturating_add(text.len());
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

impl Key for str {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl Key for String {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }
}

impl Key for [u8] {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }
}

/// One state for all.
impl Key for () {
    fn bytes(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[])
    }
}

impl<K: Key + ?Sized> Key for &K {
    fn bytes(&self) -> Cow<'_, [u8]> {
        (**self).bytes()
    }

    #[inline]
    fn with_bytes<R>(&self, act: impl FnOnce(&[u8]) -> R) -> R {
        (**self).with_bytes(act)
    }

    #[inline]
    fn number(&self) -> Option<Number> {
        (**self).number()
    }
}

/// Both, the first one after its length.
impl<A: Key, B: Key> Key for (A, B) {
    fn bytes(&self) -> Cow<'_, [u8]> {
        let (one, other) = (self.0.bytes(), self.1.bytes());
        let length = one.len().to_string();
        Cow::Owned([length.as_bytes(), b":", &one, &other].concat())
    }
}

macro_rules! as_text {
    ($($key:ty),+) => {
        $(impl Key for $key {
            fn bytes(&self) -> Cow<'_, [u8]> {
                Cow::Owned(self.to_string().into_bytes())
            }

            #[inline]
            fn with_bytes<R>(&self, act: impl FnOnce(&[u8]) -> R) -> R {
                let mut text = Text { bytes: [0; LONGEST_TEXT], len: 0 };
                match fmt::write(&mut text, format_args!("{self}")) {
                    Ok(()) => act(text.bytes.get(..text.len).unwrap_or_default()),
                    Err(_) => act(&self.bytes()),
                }
            }

            #[inline]
            fn number(&self) -> Option<Number> {
                Some(Number::from(*self))
            }
        })+
    };
}

as_text!(IpAddr, Ipv4Addr, Ipv6Addr, u16, u32, u64, u128, i32, i64);

/// Appends bytes so that no two texts are written alike, and none has a brace, a bar, or what is hard to read.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b':' | b'/' | b'@' => {
                out.push(byte);
            }
            _ => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

/// All that keys of one limiter begin with.
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

/// The whole of a key in Redis, but for what is appended for each of its limits: up to and with the closing brace.
pub(crate) fn tagged(head: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(head.len() + key.len() + 8);
    out.extend(head);
    escape(key, &mut out);
    if out.len() - head.len() > LONGEST {
        out.truncate(head.len());
        // No escaped key begins so.
        out.push(b'#');
        for byte in &Sha256::digest(key)[..16] {
            escape_hex(*byte, &mut out);
        }
    }
    out.push(b'}');
    out
}

fn escape_hex(byte: u8, out: &mut Vec<u8>) {
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
    fn numbers_and_addresses_are_written_alike_on_the_stack() {
        fn alike<K: Key>(key: K) {
            key.with_bytes(|bytes| assert_eq!(bytes, &*key.bytes()));
            <&K as Key>::with_bytes(&&key, |bytes| assert_eq!(bytes, &*key.bytes()));
        }
        alike(0_u16);
        alike(u64::MAX);
        alike(u128::MAX);
        alike(i64::MIN);
        alike(Ipv4Addr::BROADCAST);
        alike(Ipv6Addr::from(u128::MAX));
        alike(IpAddr::from(Ipv4Addr::BROADCAST.to_ipv6_mapped()));
        alike(Ipv6Addr::from(0xffff_ffff));
        alike("text");
        alike(());
    }

    #[test]
    fn a_number_has_the_text_of_its_key() {
        fn alike<K: Key>(key: K) {
            let number = key.number().unwrap();
            assert_eq!(number.to_string().as_bytes(), &*key.bytes());
            assert_eq!(<&K as Key>::number(&&key), Some(number));
        }
        alike(u16::MAX);
        alike(0_u32);
        alike(u64::MAX);
        alike(u128::MAX);
        alike(-1_i32);
        alike(i32::MIN);
        alike(i64::MIN);
        alike(i64::MAX);
        alike(Ipv4Addr::new(192, 0, 2, 1));
        alike(Ipv6Addr::from(u128::MAX - 1));
        alike(IpAddr::from(Ipv4Addr::BROADCAST));
        alike(IpAddr::from(Ipv4Addr::BROADCAST.to_ipv6_mapped()));
        assert_eq!(7_u16.number(), 7_i64.number(), "one text, one number");
        assert_ne!(Ipv4Addr::from(7).number(), 7_u32.number());
        assert_ne!(Ipv6Addr::from(7).number(), 7_u32.number());
        assert_ne!((-1_i64).number(), u64::MAX.number());
        assert_eq!("7".number(), None);
    }

    #[test]
    fn long_keys_are_hashed() {
        let (long, other) = (vec![b'x'; 97], vec![b'x'; 98]);
        assert_eq!(text(&long).len(), "tollgate:v1:{api|#}".len() + 32);
        assert_ne!(text(&long), text(&other));
        assert_eq!(text(&long), text(&long));
        assert!(text(&[b'x'; 96]).ends_with("xx}"));
        assert!(text(&[0xff; 40]).contains("|#"), "escaped it is longer");
    }

    #[test]
    fn pairs_are_not_run_together() {
        let pair = |one: &'static str, other: &'static str| (one, other).bytes().into_owned();
        assert_eq!(pair("GET", "/a"), b"3:GET/a");
        assert_ne!(pair("ab", "c"), pair("a", "bc"));
        assert_ne!(pair("1:a", ""), pair("", "1:a"));
        assert_eq!((("a", "b"), 7_u32).bytes(), b"4:1:ab7".as_slice());
    }

    #[test]
    fn a_tag_has_one_brace_of_each_kind() {
        for key in [&b"{"[..], b"}", b"{}", b"", &[0, 255, b'{'], b"#1"] {
            let text = text(key);
            assert_eq!((text.matches('{').count(), text.matches('}').count()), (1, 1), "{text}");
        }
        assert!(text(b"#1").contains("%23"), "nothing looks like a hash that is none");
    }
}
