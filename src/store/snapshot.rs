//! What the snapshots of all stores have in common: errors, times, a checksum, and a reader of fields.
//!
//! # Time
//! Clocks count from the Unix epoch, so a snapshot has the time at which it was made, and another process can compare it.
//! If the clock has advanced since, the debts are paid for that time. If the clock is behind the snapshot (it was stepped
//! back, or the snapshot's was wrong), no time counts as passed: each debt continues from the present time. So a step of
//! the clock frees no key, and a wrong clock locks none for longer than its debt, rounded up to a whole window.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    rustdoc::private_intra_doc_links,
    reason = "users do not see this module; only packages of this repository use it"
)]

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
#[cfg(feature = "std")]
use std::io;

use crate::algorithm::compact::STATES;
use crate::algorithm::step::{Algorithm, Tail as _};
use crate::sketch::hash::mix;

/// The number of header fields that define the meaning of compact states.
pub(crate) const LAYOUT: usize = 6;
/// The hash of this text shows whether the hasher is the one that made the snapshot's hashes.
pub const PROBE: &str = "tollgate snapshot";

/// The reason why a snapshot was not restored. The limiter is unchanged.
///
/// # Examples
/// ```
/// use tollgate::{Quota, RateLimiter};
///
/// let limiter = RateLimiter::new(Quota::per_hour(10));
/// let error = limiter.restore(b"something else").unwrap_err();
/// assert!(!error.to_string().is_empty());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct SnapshotError(pub(crate) Problem);

/// Why a text of bytes is not a snapshot of this limiter.
#[allow(missing_docs, reason = "`Display` explains each variant, and users do not see them")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    NotOne,
    Version {
        got: u32,
        own: u32,
    },
    Truncated {
        len: usize,
        at: usize,
    },
    TooLong {
        extra: usize,
    },
    Checksum,
    Hasher,
    Build,
    Layout {
        got: [u64; LAYOUT],
        own: [u64; LAYOUT],
    },
    Size {
        got: [u64; 2],
        own: [u64; 2],
    },
    #[cfg_attr(not(feature = "std"), allow(dead_code, reason = "stores with words of their own need it"))]
    Algorithm {
        got: Box<str>,
        own: Box<str>,
    },
    Content {
        what: &'static str,
    },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot restore the snapshot: ")?;
        match &self.0 {
            Problem::NotOne => write!(f, "these bytes are not a tollgate snapshot"),
            Problem::Version { got, own } => {
                write!(f, "it has version {got}, and this library reads version {own}")
            }
            Problem::Truncated { len, at } => {
                write!(f, "truncated after {len} bytes, in the field at byte {at}")
            }
            Problem::TooLong { extra } => write!(f, "{extra} extra bytes after the end"),
            Problem::Checksum => write!(f, "the data is damaged: its checksum does not match"),
            Problem::Hasher => write!(
                f,
                "it was made with another hasher, so its keys would not be found; build both limiters with the same \
                 seeds (Builder::seeds) or the same hasher (Builder::hasher)"
            ),
            Problem::Build => write!(
                f,
                "a program for another processor wrote it, which computes other hashes of keys; start without it"
            ),
            Problem::Layout { got, own } => differs(f, got, own),
            Problem::Size { got, own } => write!(
                f,
                "it has {} slots and {} sketch cells, and this store has {} and {}; build both limiters with the same \
                 capacity and overflow",
                got[0], got[1], own[0], own[1]
            ),
            Problem::Algorithm { got, own } => {
                write!(f, "it was made with another algorithm or quota: {got}, and this limiter has {own}")
            }
            Problem::Content { what } => write!(f, "its {what} is invalid, although the checksum matches"),
        }
    }
}

crate::base::debug_shows_message!(SnapshotError);

impl SnapshotError {
    pub(crate) const fn content(what: &'static str) -> Self {
        Self(Problem::Content { what })
    }
}

impl Problem {
    /// Returns the error with this problem.
    pub const fn error(self) -> SnapshotError {
        SnapshotError(self)
    }

    /// Returns the error that this part of the content is wrong.
    pub const fn content(what: &'static str) -> SnapshotError {
        SnapshotError::content(what)
    }
}

impl Error for SnapshotError {}

/// Writes the differences between two layouts.
fn differs(f: &mut fmt::Formatter<'_>, got: &[u64; LAYOUT], own: &[u64; LAYOUT]) -> fmt::Result {
    let (&[states, burst, num, den, ..], &[own_states, own_burst, own_num, own_den, ..]) = (got, own);
    let name = |states: u64| {
        let name = usize::try_from(states).ok().and_then(|states| STATES.get(states));
        name.copied().unwrap_or("unknown states")
    };
    if states != own_states {
        let (got, own) = (name(states), name(own_states));
        return write!(f, "it was made with another algorithm: it holds {got}, and this limiter {own}");
    }
    write!(f, "it was made with ")?;
    if burst != own_burst {
        write!(f, "another quota: its limit or burst is {burst} units, and this limiter's {own_burst}")
    } else if (num, den) != (own_num, own_den) {
        write!(
            f,
            "another quota: its windows or units take {num}/{den} ns, and this limiter's {own_num}/{own_den} ns"
        )
    } else {
        write!(f, "other tiers or another overdraft, so its states use another tick length")
    }
}

/// FNV-1a over eight bytes at a time, with a mix at the end. It detects accidental damage, not an adversary.
pub(crate) struct Checksum {
    sum: u64,
    len: u64,
    /// The bytes since the last whole word.
    word: [u8; 8],
}

impl Checksum {
    pub(crate) const fn new() -> Self {
        Self { sum: 0xCBF2_9CE4_8422_2325, len: 0, word: [0; 8] }
    }

    pub(crate) fn of(bytes: &[u8]) -> u64 {
        let mut sum = Self::new();
        sum.add(bytes);
        sum.finish()
    }

    pub(crate) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            // Less than 8.
            let at = (self.len % 8) as usize;
            let (now, later) = bytes.split_at(bytes.len().min(8 - at));
            self.word[at..at + now.len()].copy_from_slice(now);
            self.len += now.len() as u64;
            if self.len.is_multiple_of(8) {
                self.mix_word();
            }
            bytes = later;
        }
    }

    fn mix_word(&mut self) {
        let word = u64::from_le_bytes(core::mem::take(&mut self.word));
        self.sum = (self.sum ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }

    pub(crate) fn finish(mut self) -> u64 {
        if !self.len.is_multiple_of(8) {
            self.mix_word();
        }
        mix(self.sum ^ self.len)
    }
}

/// Reads the fields of a snapshot. No field can make it allocate more than the snapshot's own bytes.
#[derive(Clone, Debug)]
pub struct SnapshotReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> SnapshotReader<'a> {
    /// Reads the first fields: what the bytes are, and their version.
    pub fn begin(bytes: &'a [u8], magic: &[u8; 8], own: u32) -> Result<Self, SnapshotError> {
        if !bytes.starts_with(magic) {
            return Err(SnapshotError(Problem::NotOne));
        }
        let mut reader = Self { bytes, at: magic.len() };
        match reader.u32()? {
            got if got == own => Ok(reader),
            got => Err(SnapshotError(Problem::Version { got, own })),
        }
    }

    /// Reads the checksum at the end of the bytes, and compares it.
    pub(crate) fn end(&mut self) -> Result<(), SnapshotError> {
        let end = self.at;
        let sum = self.u64()?;
        if self.at < self.bytes.len() {
            return Err(SnapshotError(Problem::TooLong { extra: self.bytes.len() - self.at }));
        }
        if sum != Checksum::of(&self.bytes[..end]) {
            return Err(SnapshotError(Problem::Checksum));
        }
        Ok(())
    }

    /// Reads from a position that [`SnapshotReader::position`] returned.
    pub const fn at(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Returns the number of bytes that were read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Compares the checksum at the end first, and leaves it out of the fields.
    #[cfg(feature = "std")]
    pub fn verify(&mut self) -> Result<(), SnapshotError> {
        let Some((fields, sum)) = self.bytes.split_last_chunk().filter(|(fields, _)| fields.len() >= self.at)
        else {
            return Err(self.truncated());
        };
        self.bytes = fields;
        match u64::from_le_bytes(*sum) == Checksum::of(fields) {
            true => Ok(()),
            false => Err(SnapshotError(Problem::Checksum)),
        }
    }

    /// Checks that no field is left.
    #[cfg(feature = "std")]
    pub fn done(&self) -> Result<(), SnapshotError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(SnapshotError(Problem::TooLong { extra })),
        }
    }

    fn truncated(&self) -> SnapshotError {
        SnapshotError(Problem::Truncated { len: self.bytes.len(), at: self.at })
    }

    /// Checks that `len` more bytes are there.
    pub(crate) fn has(&self, len: usize) -> Result<(), SnapshotError> {
        if self.bytes.len() - self.at < len { Err(self.truncated()) } else { Ok(()) }
    }

    /// Reads this many bytes.
    pub fn slice(&mut self, len: usize) -> Result<&'a [u8], SnapshotError> {
        self.has(len)?;
        let taken = &self.bytes[self.at..self.at + len];
        self.at += len;
        Ok(taken)
    }

    /// Reads `N` bytes.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let taken = *found.ok_or_else(|| self.truncated())?;
        self.at += N;
        Ok(taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.take().map(u32::from_le_bytes)
    }

    /// Reads a number.
    pub fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a count of entries of `size` bytes, and checks that the input has room for them.
    pub(crate) fn count(&mut self, size: usize) -> Result<usize, SnapshotError> {
        let truncated = self.truncated();
        let count = self.u64()?;
        let room = (self.bytes.len() - self.at) / size;
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(truncated),
        }
    }
}

/// The time of a snapshot, and of the call that restores it.
#[derive(Copy, Clone, Debug)]
pub struct SnapshotTimes {
    /// The time of the snapshot, in nanoseconds of its clock.
    pub then_ns: u64,
    /// The time of the restart, in nanoseconds of its clock.
    pub now_ns: u64,
}

impl SnapshotTimes {
    /// Returns by how much the clock is behind that of the snapshot. States move back by it, so no time counts as passed.
    pub const fn back_ns(self) -> u64 {
        self.then_ns.saturating_sub(self.now_ns)
    }

    /// Returns the time since the snapshot.
    pub(crate) const fn passed_ns(self) -> u64 {
        self.now_ns.saturating_sub(self.then_ns)
    }
}

/// Takes the next bytes of a snapshot.
#[cfg(feature = "std")]
pub type PutBytes<'p> = dyn FnMut(&[u8]) -> io::Result<()> + 'p;

/// Writes a snapshot in one pass: the first fields, the parts that `write` puts, and the checksum.
#[cfg(feature = "std")]
pub fn write_snapshot(
    to: &mut dyn io::Write,
    magic: &[u8; 8],
    version: u32,
    write: impl FnOnce(&mut PutBytes<'_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut sum = Checksum::new();
    let mut put = |bytes: &[u8]| {
        sum.add(bytes);
        to.write_all(bytes)
    };
    put(magic)?;
    put(&version.to_le_bytes())?;
    write(&mut put)?;
    to.write_all(&sum.finish().to_le_bytes())
}

/// The most bytes of an algorithm's name with its quota.
const LONGEST_NAME: usize = 1_000;

/// Appends the algorithm's name and quota, which a snapshot and the store that restores it must have in common, and the
/// number of words of a state.
pub(crate) fn put_algorithm<A: Algorithm>(algorithm: &A, into: &mut Vec<u8>) {
    let text = format!("{algorithm:?}");
    put_text(text.get(..text.len().min(LONGEST_NAME)).unwrap_or_default(), into);
    let words = 1 + A::Tail::zeroed(algorithm.tail_len()).words().len();
    // A tail has at most 65,536 words.
    put_u64(words as u64, into);
}

/// Appends a text: its length, and its bytes.
pub fn put_text(text: &str, into: &mut Vec<u8>) {
    put_u64(text.len() as u64, into);
    into.extend_from_slice(text.as_bytes());
}

/// Appends a number.
pub fn put_u64(number: u64, into: &mut Vec<u8>) {
    into.extend_from_slice(&number.to_le_bytes());
}

impl<'a> SnapshotReader<'a> {
    /// Reads what [`put_algorithm`] wrote, and compares it.
    pub(crate) fn same_algorithm(&mut self, algorithm: &impl Algorithm) -> Result<(), SnapshotError> {
        let mut own = Vec::new();
        put_algorithm(algorithm, &mut own);
        let mut own = SnapshotReader { bytes: &own, at: 0 };
        let [(got, got_words), (own, own_words)] = [(self.text()?, self.u64()?), (own.text()?, own.u64()?)];
        if (got, got_words) == (own, own_words) {
            return Ok(());
        }
        let got = got.chars().take(LONGEST_NAME).collect::<String>().into();
        Err(SnapshotError(Problem::Algorithm { got, own: own.into() }))
    }

    /// Reads a text.
    pub fn text(&mut self) -> Result<&'a str, SnapshotError> {
        let len = self.count(1)?;
        str::from_utf8(self.slice(len)?).map_err(|_| SnapshotError::content("text"))
    }
}

/// A key that a snapshot of a keyed limiter can hold: texts, bytes, numbers and addresses.
///
/// # Examples
/// ```
/// use tollgate::stores::SnapshotKey;
///
/// #[derive(PartialEq, Eq, Hash, Clone, Debug)]
/// struct Account(u64);
///
/// impl SnapshotKey for Account {
///     fn write(&self, into: &mut Vec<u8>) {
///         self.0.write(into);
///     }
///
///     fn read(bytes: &[u8]) -> Option<Self> {
///         u64::read(bytes).map(Self)
///     }
/// }
///
/// let mut bytes = Vec::new();
/// Account(7).write(&mut bytes);
/// assert_eq!(Account::read(&bytes), Some(Account(7)));
/// ```
#[cfg(feature = "std")]
pub trait SnapshotKey: Sized {
    /// Appends the key as bytes: less than 4 GiB.
    fn write(&self, into: &mut Vec<u8>);

    /// Returns the key that [`SnapshotKey::write`] wrote as these bytes. `None` for bytes that it never writes.
    fn read(bytes: &[u8]) -> Option<Self>;
}

#[cfg(feature = "std")]
macro_rules! snapshot_keys {
    ($($key:ty: $self:ident => $bytes:expr, $from:ident => $read:expr;)+) => {$(
        impl SnapshotKey for $key {
            fn write(&$self, into: &mut Vec<u8>) {
                into.extend_from_slice($bytes.as_ref());
            }

            fn read($from: &[u8]) -> Option<Self> {
                $read
            }
        }
    )+};
}

#[cfg(feature = "std")]
snapshot_keys! {
    String: self => self.as_bytes(), bytes => core::str::from_utf8(bytes).ok().map(Into::into);
    Box<str>: self => self.as_bytes(), bytes => core::str::from_utf8(bytes).ok().map(Into::into);
    Vec<u8>: self => self, bytes => Some(bytes.into());
    Box<[u8]>: self => self, bytes => Some(bytes.into());
    u32: self => self.to_le_bytes(), bytes => bytes.try_into().ok().map(Self::from_le_bytes);
    u64: self => self.to_le_bytes(), bytes => bytes.try_into().ok().map(Self::from_le_bytes);
    u128: self => self.to_le_bytes(), bytes => bytes.try_into().ok().map(Self::from_le_bytes);
    std::net::Ipv4Addr: self => self.octets(), bytes => <[u8; 4]>::try_from(bytes).ok().map(Into::into);
    std::net::Ipv6Addr: self => self.octets(), bytes => <[u8; 16]>::try_from(bytes).ok().map(Into::into);
}

#[cfg(feature = "std")]
impl SnapshotKey for std::net::IpAddr {
    fn write(&self, into: &mut Vec<u8>) {
        match self {
            Self::V4(addr) => addr.write(into),
            Self::V6(addr) => addr.write(into),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        std::net::Ipv4Addr::read(bytes)
            .map(Self::V4)
            .or_else(|| std::net::Ipv6Addr::read(bytes).map(Self::V6))
    }
}
