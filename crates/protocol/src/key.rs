//! The keys of shared limiters.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A key of a shared limiter.
///
/// All processes must write the same bytes for the same key.
pub trait Key {
    /// Returns the key's bytes. Distinct keys of one limiter have distinct bytes.
    fn bytes(&self) -> Cow<'_, [u8]>;

    /// Calls `read` with the key's bytes. An implementation that must first write the bytes can do so without an
    /// allocation.
    #[inline]
    fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        read(&self.bytes())
    }

    /// Returns the number or address whose text is the key's bytes, if there is one. The default is `None`, which is
    /// always correct.
    ///
    /// Limiters that hold keys look them up by this number, and write the text only to call the server. Return a number
    /// for all keys of one limiter, or for none. The limiter holds a key twice if it is used both as a number and as
    /// bytes.
    ///
    /// ```
    /// # use tollgate_protocol as tollgate_redis;
    /// use std::borrow::Cow;
    /// use tollgate_redis::{Key, Number};
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

/// A number or address that is a key: see [`Key::number`].
///
/// Numbers of different types are equal if their text is equal.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    kind: NumberKind,
    high: u64,
    low: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum NumberKind {
    Unsigned,
    /// A negative number; the bits hold its magnitude.
    Negative,
    V4,
    V6,
}

impl Number {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "takes the upper and the lower half")]
    const fn new(kind: NumberKind, bits: u128) -> Self {
        Self { kind, high: (bits >> 64) as u64, low: bits as u64 }
    }

    const fn bits(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }
}

/// Writes the number as it appears in keys.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            NumberKind::Unsigned => write!(f, "{}", self.bits()),
            NumberKind::Negative => write!(f, "-{}", self.bits()),
            NumberKind::V4 => {
                let [.., a, b, c, d] = self.low.to_be_bytes();
                write!(f, "{}", Ipv4Addr::new(a, b, c, d))
            }
            NumberKind::V6 => write!(f, "{}", Ipv6Addr::from(self.bits())),
        }
    }
}

impl Hash for Number {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The kind is not hashed. There are only four kinds, and the comparison distinguishes them.
        if self.high != 0 {
            state.write_u64(self.high);
        }
        state.write_u64(self.low);
    }
}

/// The buffer size for the text of a number or address. The longest is an address:
/// `ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255`; a `u128` with a sign would have 40 characters.
const LONGEST_TEXT: usize = 48;

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

/// The unit key: one state for all requests.
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
    fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        (**self).with_bytes(read)
    }

    #[inline]
    fn number(&self) -> Option<Number> {
        (**self).number()
    }
}

/// The pair's bytes: the length of the first key, a colon, the first key, and the second key.
impl<A: Key, B: Key> Key for (A, B) {
    fn bytes(&self) -> Cow<'_, [u8]> {
        let (one, other) = (self.0.bytes(), self.1.bytes());
        let length = one.len().to_string();
        Cow::Owned([length.as_bytes(), b":", &one, &other].concat())
    }
}

/// Implements [`Key`] for numbers and addresses. Each line converts one type into a [`Number`].
macro_rules! numbers {
    ($($key:ty, $own:ident => $number:expr;)+) => {
        $(impl From<$key> for Number {
            #[inline]
            fn from($own: $key) -> Self {
                $number
            }
        }

        impl Key for $key {
            fn bytes(&self) -> Cow<'_, [u8]> {
                Cow::Owned(self.to_string().into_bytes())
            }

            #[inline]
            fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
                let mut text = [0; LONGEST_TEXT];
                let mut rest = &mut text[..];
                if write!(rest, "{self}").is_err() {
                    return read(&self.bytes());
                }
                let len = LONGEST_TEXT - rest.len();
                read(&text[..len])
            }

            #[inline]
            fn number(&self) -> Option<Number> {
                Some(Number::from(*self))
            }
        })+
    };
}

numbers! {
    u16, number => Self::new(NumberKind::Unsigned, number.into());
    u32, number => Self::new(NumberKind::Unsigned, number.into());
    u64, number => Self::new(NumberKind::Unsigned, number.into());
    u128, number => Self::new(NumberKind::Unsigned, number);
    i32, number => i64::from(number).into();
    i64, number => {
        let kind = if number < 0 { NumberKind::Negative } else { NumberKind::Unsigned };
        Self::new(kind, number.unsigned_abs().into())
    };
    Ipv4Addr, address => Self::new(NumberKind::V4, address.to_bits().into());
    Ipv6Addr, address => Self::new(NumberKind::V6, address.to_bits());
    IpAddr, address => match address {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => address.into(),
    };
}
