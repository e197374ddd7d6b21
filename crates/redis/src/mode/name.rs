//! The form in which this process stores and looks up a key: a number, which is found without writing its text, or
//! bytes.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use tollgate_protocol::{Key, Number};

/// A key for a look-up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum KeyRef<'k> {
    Number(Number),
    Bytes(&'k [u8]),
}

impl<'k> KeyRef<'k> {
    /// Calls `read` with a key's number or bytes.
    #[inline]
    pub(crate) fn with<K: Key + ?Sized, R>(key: &K, read: impl FnOnce(KeyRef<'_>) -> R) -> R {
        match key.number() {
            Some(number) => read(KeyRef::Number(number)),
            None => key.with_bytes(|bytes| read(KeyRef::Bytes(bytes))),
        }
    }

    pub(crate) fn to_owned_key(self) -> OwnedKey {
        match self {
            Self::Number(number) => OwnedKey::Number(number),
            Self::Bytes(bytes) => OwnedKey::Bytes(bytes.into()),
        }
    }

    /// The key's bytes. All processes write the same bytes.
    pub(crate) fn bytes(self) -> Cow<'k, [u8]> {
        match self {
            Self::Number(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }
}

impl<'k> From<&'k [u8]> for KeyRef<'k> {
    #[inline]
    fn from(bytes: &'k [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'k, const N: usize> From<&'k [u8; N]> for KeyRef<'k> {
    #[inline]
    fn from(bytes: &'k [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

/// A key that is stored.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum OwnedKey {
    Number(Number),
    Bytes(Box<[u8]>),
}

impl OwnedKey {
    #[inline]
    pub(crate) fn as_ref(&self) -> KeyRef<'_> {
        match self {
            Self::Number(number) => KeyRef::Number(*number),
            Self::Bytes(bytes) => KeyRef::Bytes(bytes),
        }
    }
}

impl Hash for KeyRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Number(number) => number.hash(state),
            Self::Bytes(bytes) => Bytes(bytes).hash(state),
        }
    }
}

impl Hash for OwnedKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

impl papaya::Equivalent<OwnedKey> for KeyRef<'_> {
    #[inline]
    fn equivalent(&self, held: &OwnedKey) -> bool {
        *self == held.as_ref()
    }
}

/// A key whose form is known at compile time, so that the look-up compares only this form.
pub(crate) trait LookupKey<'k>: Copy + Hash + papaya::Equivalent<OwnedKey> + Into<KeyRef<'k>> {}

impl<'k, T: Copy + Hash + papaya::Equivalent<OwnedKey> + Into<KeyRef<'k>>> LookupKey<'k> for T {}

/// [`KeyRef::Bytes`].
#[derive(Copy, Clone, Debug)]
pub(crate) struct Bytes<'k>(pub(crate) &'k [u8]);

impl<'k> From<Bytes<'k>> for KeyRef<'k> {
    #[inline]
    fn from(bytes: Bytes<'k>) -> Self {
        Self::Bytes(bytes.0)
    }
}

impl From<Number> for KeyRef<'_> {
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

impl papaya::Equivalent<OwnedKey> for Bytes<'_> {
    #[inline]
    fn equivalent(&self, held: &OwnedKey) -> bool {
        matches!(held, OwnedKey::Bytes(bytes) if **bytes == *self.0)
    }
}

impl papaya::Equivalent<OwnedKey> for Number {
    #[inline]
    fn equivalent(&self, held: &OwnedKey) -> bool {
        matches!(held, OwnedKey::Number(number) if number == self)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use papaya::Equivalent;

    use super::*;

    #[test]
    fn owned_key_is_24_bytes() {
        assert_eq!(size_of::<OwnedKey>(), 24);
    }

    #[test]
    fn key_forms_hash_and_compare_alike() {
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        let names = [
            KeyRef::Bytes(b""),
            KeyRef::Bytes(b"7"),
            KeyRef::Number(7_u32.into()),
            KeyRef::Number((-7_i32).into()),
            KeyRef::Number(Ipv4Addr::from(7).into()),
            KeyRef::Number(Ipv6Addr::from(7).into()),
            KeyRef::Number(((7_u128 << 64) | 7).into()),
        ];
        for (index, name) in names.into_iter().enumerate() {
            for (other_index, other) in names.into_iter().enumerate() {
                let held = other.to_owned_key();
                assert_eq!(name.equivalent(&held), index == other_index);
                assert_eq!(other.bytes(), held.as_ref().bytes());
            }
            let held = name.to_owned_key();
            let hash = hasher.hash_one(&held);
            assert_eq!(hasher.hash_one(name), hash);
            let (known, is_found) = match name {
                KeyRef::Number(number) => (hasher.hash_one(number), number.equivalent(&held)),
                KeyRef::Bytes(bytes) => (hasher.hash_one(Bytes(bytes)), Bytes(bytes).equivalent(&held)),
            };
            assert_eq!((known, is_found), (hash, true));
        }
    }

    #[test]
    fn key_ref_holds_number_or_bytes() {
        assert!(KeyRef::with("a", |name| name == KeyRef::Bytes(b"a")));
        assert!(KeyRef::with(&9_u64, |name| name == KeyRef::Number(9_u16.into()) && *name.bytes() == *b"9"));
    }
}
