//! What this process knows a key by: a number, which is looked up without writing it, or its bytes.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::key::Key;

/// A number or an address that is a key: see [`Key::number`].
///
/// Numbers of different types are the same if they are written alike.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    kind: Kind,
    high: u64,
    low: u64,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Unsigned,
    /// Its magnitude, of one that is less than 0.
    Negative,
    V4,
    V6,
}

impl Number {
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the halves")]
    const fn new(kind: Kind, bits: u128) -> Self {
        Self { kind, high: (bits >> 64) as u64, low: bits as u64 }
    }

    const fn bits(self) -> u128 {
        ((self.high as u128) << 64) | self.low as u128
    }
}

/// As it is written in keys.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Unsigned => write!(f, "{}", self.bits()),
            Kind::Negative => write!(f, "-{}", self.bits()),
            Kind::V4 => {
                let [.., a, b, c, d] = self.low.to_be_bytes();
                write!(f, "{}", Ipv4Addr::new(a, b, c, d))
            }
            Kind::V6 => write!(f, "{}", Ipv6Addr::from(self.bits())),
        }
    }
}

macro_rules! unsigned {
    ($($number:ty),+) => {
        $(impl From<$number> for Number {
            #[inline]
            fn from(number: $number) -> Self {
                Self::new(Kind::Unsigned, number.into())
            }
        })+
    };
}

unsigned!(u16, u32, u64, u128);

impl From<i64> for Number {
    #[inline]
    fn from(number: i64) -> Self {
        let kind = if number < 0 { Kind::Negative } else { Kind::Unsigned };
        Self::new(kind, number.unsigned_abs().into())
    }
}

impl From<i32> for Number {
    #[inline]
    fn from(number: i32) -> Self {
        i64::from(number).into()
    }
}

impl From<Ipv4Addr> for Number {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::new(Kind::V4, address.to_bits().into())
    }
}

impl From<Ipv6Addr> for Number {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Self::new(Kind::V6, address.to_bits())
    }
}

impl From<IpAddr> for Number {
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

/// A key that is looked up.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Name<'k> {
    Number(Number),
    Bytes(&'k [u8]),
}

impl Name<'_> {
    /// Calls `act` with a key's name.
    #[inline]
    pub(super) fn with<K: Key + ?Sized, R>(key: &K, act: impl FnOnce(Name<'_>) -> R) -> R {
        match key.number() {
            Some(number) => act(Name::Number(number)),
            None => key.with_bytes(|bytes| act(Name::Bytes(bytes))),
        }
    }

    pub(super) fn to_held(self) -> Held {
        match self {
            Self::Number(number) => Held::Number(number),
            Self::Bytes(bytes) => Held::Bytes(bytes.into()),
        }
    }
}

impl<'k> Name<'k> {
    /// The key's bytes, as all processes write them.
    pub(super) fn bytes(self) -> Cow<'k, [u8]> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }
}

impl<'k> From<&'k [u8]> for Name<'k> {
    #[inline]
    fn from(bytes: &'k [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'k, const N: usize> From<&'k [u8; N]> for Name<'k> {
    #[inline]
    fn from(bytes: &'k [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

/// A name that is kept.
#[derive(Debug)]
pub(super) enum Held {
    Number(Number),
    Bytes(Box<[u8]>),
}

impl Held {
    #[inline]
    pub(super) fn name(&self) -> Name<'_> {
        match self {
            Self::Number(number) => Name::Number(*number),
            Self::Bytes(bytes) => Name::Bytes(bytes),
        }
    }
}

impl Hash for Name<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Number(number) => number.hash(state),
            Self::Bytes(bytes) => Bytes(bytes).hash(state),
        }
    }
}

impl Hash for Held {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl PartialEq for Name<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => one == other,
            (Self::Bytes(one), Self::Bytes(other)) => one == other,
            _ => false,
        }
    }
}

impl Eq for Name<'_> {}

impl PartialEq for Held {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for Held {}

impl papaya::Equivalent<Held> for Name<'_> {
    #[inline]
    fn equivalent(&self, held: &Held) -> bool {
        *self == held.name()
    }
}

/// A name of which kind it is known where it is compiled: so the look-up is of that kind alone.
pub(super) trait Known<'k>: Copy + Hash + papaya::Equivalent<Held> + Into<Name<'k>> {}

impl Known<'_> for Number {}
impl<'k> Known<'k> for Bytes<'k> {}
impl<'k> Known<'k> for Name<'k> {}

/// [`Name::Bytes`].
#[derive(Copy, Clone, Debug)]
pub(super) struct Bytes<'k>(pub(super) &'k [u8]);

impl<'k> From<Bytes<'k>> for Name<'k> {
    #[inline]
    fn from(bytes: Bytes<'k>) -> Self {
        Self::Bytes(bytes.0)
    }
}

impl From<Number> for Name<'_> {
    #[inline]
    fn from(number: Number) -> Self {
        Self::Number(number)
    }
}

impl Hash for Bytes<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

impl Hash for Number {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Not the kind: there are four, which the comparison tells apart.
        if self.high != 0 {
            state.write_u64(self.high);
        }
        state.write_u64(self.low);
    }
}

impl papaya::Equivalent<Held> for Bytes<'_> {
    #[inline]
    fn equivalent(&self, held: &Held) -> bool {
        matches!(held, Held::Bytes(bytes) if **bytes == *self.0)
    }
}

impl papaya::Equivalent<Held> for Number {
    #[inline]
    fn equivalent(&self, held: &Held) -> bool {
        matches!(held, Held::Number(number) if number == self)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {

    use papaya::Equivalent;

    use super::*;

    #[test]
    fn a_kept_name_is_small() {
        assert_eq!(size_of::<Held>(), 24);
    }

    #[test]
    fn names_are_found_where_they_are_kept() {
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        let names = [
            Name::Bytes(b""),
            Name::Bytes(b"7"),
            Name::Number(7_u32.into()),
            Name::Number((-7_i32).into()),
            Name::Number(Ipv4Addr::from(7).into()),
            Name::Number(Ipv6Addr::from(7).into()),
            Name::Number(((7_u128 << 64) | 7).into()),
        ];
        for (index, name) in names.into_iter().enumerate() {
            for (other_index, other) in names.into_iter().enumerate() {
                let held = other.to_held();
                assert_eq!(name.equivalent(&held), index == other_index);
                assert_eq!(other.bytes(), held.name().bytes());
            }
            let held = name.to_held();
            let hash = hasher.hash_one(&held);
            assert_eq!(hasher.hash_one(name), hash);
            let (known, is_found) = match name {
                Name::Number(number) => (hasher.hash_one(number), number.equivalent(&held)),
                Name::Bytes(bytes) => (hasher.hash_one(Bytes(bytes)), Bytes(bytes).equivalent(&held)),
            };
            assert_eq!((known, is_found), (hash, true));
        }
    }

    #[test]
    fn a_key_gives_its_number_or_its_bytes() {
        assert!(Name::with("a", |name| name == Name::Bytes(b"a")));
        assert!(Name::with(&9_u64, |name| name == Name::Number(9_u16.into()) && *name.bytes() == *b"9"));
    }
}
