//! Saves the state of a compact store as bytes, and restores it.
//!
//! ```text
//! magic 8 | version u32 | sections … | checksum u64
//!   header:  layout of states 6 × u64, hasher's probe u64, time ns u64, buckets, ways, cells, shift: u64 each
//!   slots:   count u64, then for each slot with a debt: index u64, and a u64: ahead (low 40 bits), fingerprint (above)
//!   cells:   count u64, then for each cell with a debt: index u64, ahead u16 (coarse)
//! ```
//! All numbers are little-endian. Each state is written as its distance *ahead* of the snapshot's time. So a limiter
//! whose ticks are counted from another start can restore it. A restore subtracts the time that has passed since the
//! snapshot.

use alloc::vec::Vec;
use core::error::Error;
use core::fmt;
use core::hash::BuildHasher;

use super::table::Image;
use super::{Compact, WAYS};
use crate::algorithm::CompactAlgorithm;
use crate::algorithm::compact::{CompactState, STATE_BITS, STATES};
use crate::base::check_time::CheckTime;
use crate::sketch::hash::mix;

const MAGIC: &[u8; 8] = b"TOLLGATE";
const VERSION: u32 = 2;
/// The number of header fields that define the meaning of states.
const LAYOUT: usize = 6;
/// The hash of this text shows whether the hasher is the one that made the snapshot's fingerprints.
const PROBE: &str = "tollgate snapshot";

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
pub struct SnapshotError(Problem);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Problem {
    NotOne,
    Version { got: u32 },
    Truncated { len: usize, at: usize },
    TooLong { extra: usize },
    Checksum,
    Hasher,
    Layout { got: [u64; LAYOUT], own: [u64; LAYOUT] },
    Size { got: [u64; 2], own: [u64; 2] },
    Content { what: &'static str },
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot restore the snapshot: ")?;
        match &self.0 {
            Problem::NotOne => write!(f, "these bytes are not a tollgate snapshot"),
            Problem::Version { got } => {
                write!(f, "it has version {got}, and this library reads version {VERSION}")
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
            Problem::Layout { got, own } => differs(f, got, own),
            Problem::Size { got, own } => write!(
                f,
                "it has {} slots and {} sketch cells, and this store has {} and {}; build both limiters with the same \
                 capacity and overflow",
                got[0], got[1], own[0], own[1]
            ),
            Problem::Content { what } => write!(f, "its {what} is invalid, although the checksum matches"),
        }
    }
}

crate::base::debug_shows_message!(SnapshotError);

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
fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0xCBF2_9CE4_8422_2325_u64 ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
    }
    mix(sum)
}

struct SnapshotReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl SnapshotReader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        let taken = found.ok_or(SnapshotError(Problem::Truncated { len: self.bytes.len(), at: self.at }))?;
        self.at += N;
        Ok(*taken)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.take().map(u64::from_le_bytes)
    }

    /// Reads a count of entries of `size` bytes, and checks that the input has room for them.
    fn count(&mut self, size: usize) -> Result<usize, SnapshotError> {
        let at = self.at;
        let count = self.u64()?;
        let room = (self.bytes.len() - self.at) / size;
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(SnapshotError(Problem::Truncated { len: self.bytes.len(), at })),
        }
    }
}

const fn content(what: &'static str) -> SnapshotError {
    SnapshotError(Problem::Content { what })
}

impl<A: CompactAlgorithm, H: BuildHasher> Compact<A, H> {
    /// The layout, and the other header values that a snapshot and this store must have in common.
    fn header(&self) -> ([u64; LAYOUT], [u64; 5]) {
        let [slots, cells, shift] = self.table.shape();
        (self.plan.word.layout(), [self.hasher.hash_one(PROBE), WAYS as u64, slots, cells, shift])
    }

    pub(crate) fn snapshot(&self, time: CheckTime) -> Vec<u8> {
        let image = self.table.image(&self.plan.word, time);
        let mut bytes = Vec::with_capacity(160 + image.slots.len() * 16 + image.cells.len() * 10);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let (layout, shape) = self.header();
        let numbers = layout.into_iter().chain(shape).chain([time.ns(), image.slots.len() as u64]);
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        for &(slot, word) in &image.slots {
            bytes.extend_from_slice(&slot.to_le_bytes());
            bytes.extend_from_slice(&word.rotate_left(STATE_BITS).to_le_bytes());
        }
        bytes.extend_from_slice(&(image.cells.len() as u64).to_le_bytes());
        for &(cell, ahead) in &image.cells {
            bytes.extend_from_slice(&cell.to_le_bytes());
            bytes.extend_from_slice(&ahead.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn restore(&self, bytes: &[u8], time: CheckTime) -> Result<(), SnapshotError> {
        let (then_ns, image) = self.read(bytes)?;
        self.table.replace(&self.plan.word, &image, then_ns, time.ns());
        Ok(())
    }

    /// Reads the image and its time, and checks them against this store. Writes nothing.
    fn read(&self, bytes: &[u8]) -> Result<(u64, Image), SnapshotError> {
        let mut reader = SnapshotReader { bytes, at: 0 };
        if bytes.len() < MAGIC.len() || !bytes.starts_with(MAGIC) {
            return Err(SnapshotError(Problem::NotOne));
        }
        let _: [u8; 8] = reader.take()?;
        let version = u32::from_le_bytes(reader.take()?);
        if version != VERSION {
            return Err(SnapshotError(Problem::Version { got: version }));
        }
        let (mut layout, mut shape) = ([0; LAYOUT], [0; 5]);
        for number in layout.iter_mut().chain(&mut shape) {
            *number = reader.u64()?;
        }
        let then_ns = reader.u64()?;
        // Reads everything first, so that the error can distinguish a truncated snapshot from a changed one.
        let mut image = Image::default();
        for _ in 0..reader.count(16)? {
            image.slots.push((reader.u64()?, reader.u64()?.rotate_right(STATE_BITS)));
        }
        for _ in 0..reader.count(10)? {
            image.cells.push((reader.u64()?, u16::from_le_bytes(reader.take()?)));
        }
        let end = reader.at;
        let sum = reader.u64()?;
        if reader.at < bytes.len() {
            return Err(SnapshotError(Problem::TooLong { extra: bytes.len() - reader.at }));
        }
        if sum != checksum(&bytes[..end]) {
            return Err(SnapshotError(Problem::Checksum));
        }
        let (own_layout, own) = self.header();
        if layout != own_layout {
            return Err(SnapshotError(Problem::Layout { got: layout, own: own_layout }));
        }
        if shape[0] != own[0] {
            return Err(SnapshotError(Problem::Hasher));
        }
        if shape != own {
            let problem = Problem::Size { got: [shape[2], shape[3]], own: [own[2], own[3]] };
            return Err(SnapshotError(problem));
        }
        if !self.table.accepts(&image) {
            return Err(content("list of slots or cells"));
        }
        Ok((then_ns, image))
    }
}
