//! Saves the state of a compact store as bytes, and restores it.
//!
//! ```text
//! magic 8 | version u32 | sections … | checksum u64
//!   header:  layout of states 6 × u64, hasher's probe u64, time ns u64, buckets, ways, cells, shift: u64 each
//!   slots:   count u64, then for each slot with a debt: index u64, and a u64: ahead (low 40 bits), fingerprint (above)
//!   cells:   count u64, then for each cell with a debt: index u64, ahead u16 (coarse)
//!   ends:    count u64, then for each group of keys with a debt: index u64, ahead u64
//! ```
//! All numbers are little-endian. Each state is written as its distance *ahead* of the snapshot's time. So a limiter
//! whose ticks are counted from another start can restore it. A restore subtracts the time that has passed since the
//! snapshot.

use alloc::vec::Vec;
use core::hash::BuildHasher;

use super::table::Image;
use super::{Compact, WAYS};
use crate::algorithm::CompactAlgorithm;
use crate::algorithm::compact::{CompactState, STATE_BITS};
use crate::base::check_time::CheckTime;
use crate::sketch::tat::CellsImage;
use crate::store::snapshot::{Checksum, LAYOUT, PROBE, Problem, SnapshotError, SnapshotReader};

const MAGIC: &[u8; 8] = b"TOLLGATE";
const VERSION: u32 = 4;

impl<A: CompactAlgorithm, H: BuildHasher> Compact<A, H> {
    /// The layout, and the other header values that a snapshot and this store must have in common.
    fn header(&self) -> ([u64; LAYOUT], [u64; 5]) {
        let [slots, cells, shift] = self.table.shape();
        (self.plan.word.layout(), [self.hasher.hash_one(PROBE), WAYS as u64, slots, cells, shift])
    }

    pub(crate) fn snapshot(&self, time: CheckTime) -> Vec<u8> {
        let image = self.table.image(&self.plan.word, time);
        let mut bytes = Vec::with_capacity(160 + image.slots.len() * 16 + image.spilled.cells.len() * 10);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let (layout, shape) = self.header();
        let numbers = layout.into_iter().chain(shape).chain([time.ns(), image.slots.len() as u64]);
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        for &(slot, word) in &image.slots {
            bytes.extend_from_slice(&slot.to_le_bytes());
            bytes.extend_from_slice(&word.rotate_left(STATE_BITS).to_le_bytes());
        }
        let CellsImage { cells, ends } = &image.spilled;
        bytes.extend_from_slice(&(cells.len() as u64).to_le_bytes());
        for &(cell, ahead) in cells {
            bytes.extend_from_slice(&cell.to_le_bytes());
            bytes.extend_from_slice(&ahead.to_le_bytes());
        }
        bytes.extend_from_slice(&(ends.len() as u64).to_le_bytes());
        for &(end, ahead) in ends {
            bytes.extend_from_slice(&end.to_le_bytes());
            bytes.extend_from_slice(&ahead.to_le_bytes());
        }
        let sum = Checksum::of(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn restore(&self, bytes: &[u8], time: CheckTime) -> Result<(), SnapshotError> {
        let (then_ns, image) = self.read(bytes)?;
        self.table.clear();
        self.table.fill_with(&self.plan.word, &image, then_ns, time.ns());
        Ok(())
    }

    /// [`Compact::restore`] into a store that was never charged. Touches only memory that the snapshot fills.
    pub(crate) fn restore_new(&self, bytes: &[u8], time: CheckTime) -> Result<(), SnapshotError> {
        let (then_ns, image) = self.read(bytes)?;
        self.table.fill_with(&self.plan.word, &image, then_ns, time.ns());
        Ok(())
    }

    /// Reads the image and its time, and checks them against this store. Writes nothing.
    fn read(&self, bytes: &[u8]) -> Result<(u64, Image), SnapshotError> {
        let mut reader = SnapshotReader::begin(bytes, MAGIC, VERSION)?;
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
            image.spilled.cells.push((reader.u64()?, u16::from_le_bytes(reader.take()?)));
        }
        for _ in 0..reader.count(16)? {
            image.spilled.ends.push((reader.u64()?, reader.u64()?));
        }
        reader.end()?;
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
            return Err(SnapshotError::content("list of slots or cells"));
        }
        Ok((then_ns, image))
    }
}
