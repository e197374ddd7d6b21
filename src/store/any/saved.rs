//! The states of a store in a snapshot. A sketch cannot save its counts.
//!
//! ```text
//! kind u8: 0 nothing | 1 direct: a state | 2 keyed: keys | 3 compact: length u64, a snapshot of its own
//! ```

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    rustdoc::private_intra_doc_links,
    reason = "users do not see this module; only packages of this repository use it"
)]

use std::hash::{BuildHasher, Hash};
use std::io;

use super::{AnyStore, Pair};
use crate::base::check_time::CheckTime;
use crate::base::decision::Decision;
use crate::store::keyed::saved::END;
use crate::store::op::Migrate as _;
use crate::store::snapshot::{PutBytes, SnapshotError, SnapshotKey, SnapshotReader, SnapshotTimes};

impl<K, H> AnyStore<K, H>
where
    K: Hash + Eq + Clone + Send + Sync + SnapshotKey + 'static,
    H: BuildHasher + Clone,
{
    /// Puts the states that owe something now.
    #[doc(hidden)]
    pub fn save(&self, now_ns: u64, put: &mut PutBytes<'_>) -> io::Result<()> {
        if !self.is_used() {
            return put(&[0]);
        }
        by_kind!(&self.pair, late =>
            {
                let mut state = vec![1];
                late.get().into_iter().for_each(|store| store.save(now_ns, &mut state));
                put(&state)
            },
            {
                put(&[2])?;
                late.get().map_or(Ok(()), |store| store.save(now_ns, put))
            },
            {
                let image = late.snapshot(CheckTime::from_ns(now_ns))?;
                put(&[3])?;
                put(&(image.len() as u64).to_le_bytes())?;
                put(&image)
            },
            put(&[0]),
        )
    }

    /// Returns the largest debt of any key beyond the burst, or 0; `u64::MAX` if it is not known.
    #[doc(hidden)]
    pub fn largest_debt(&self, now_ns: u64) -> u64 {
        let debts = self.debts();
        let beyond = |decision: &Decision| match debts.owed(decision) {
            owed if owed > decision.limit() => owed,
            _ => 0,
        };
        by_kind!(&self.pair, late =>
            beyond(&late.peek(&(), CheckTime::from_ns(now_ns), 0)),
            {
                let mut most = 0;
                if let Some(store) = late.get() {
                    store.for_each(now_ns, |_, decision| most = beyond(&decision).max(most));
                }
                most
            },
            if late.is_known() { 0 } else { u64::MAX },
            0,
        )
    }

    /// Sets the states of a store that no request uses yet.
    #[doc(hidden)]
    pub fn load(&self, reader: &mut SnapshotReader<'_>, times: SnapshotTimes) -> Result<(), SnapshotError> {
        let [kind] = reader.take()?;
        let wrong = SnapshotError::content("kind of store");
        let no_memory = |_| SnapshotError::content("store, which takes more memory than there is,");
        by_kind!(&self.pair, late =>
            match kind {
                0 => Ok(()),
                1 => {
                    let store = late.make().map_err(no_memory)?;
                    store.read(reader, times).map(|state| store.set(&state))
                }
                _ => Err(wrong),
            },
            match kind {
                0 => Ok(()),
                2 => {
                    let store = late.make().map_err(no_memory)?;
                    store.read(reader, times, |key, state| store.put(key, state, times.now_ns))
                }
                _ => Err(wrong),
            },
            match kind {
                0 => Ok(()),
                3 => {
                    let len = reader.count(1)?;
                    let image = reader.slice(len)?;
                    late.make().map_err(no_memory)?.restore_new(image, CheckTime::from_ns(times.now_ns))
                }
                _ => Err(wrong),
            },
            if kind == 0 { Ok(()) } else { Err(wrong) },
        )
    }
}

/// Reads past the states of a store.
pub fn skip(reader: &mut SnapshotReader<'_>) -> Result<(), SnapshotError> {
    let words = |reader: &mut SnapshotReader<'_>| {
        reader.text()?;
        Ok(usize::try_from(reader.u64()?).unwrap_or(usize::MAX).saturating_mul(size_of::<u64>()))
    };
    match reader.take()? {
        [0] => Ok(()),
        [1] => {
            let words = words(reader)?;
            let [is_used] = reader.take()?;
            reader.slice(if is_used == 0 { 0 } else { words }).map(drop)
        }
        [2] => {
            let words = words(reader)?;
            loop {
                match reader.u32()? {
                    END => return Ok(()),
                    len => reader.slice((len as usize).saturating_add(words))?,
                };
            }
        }
        [3] => {
            let len = reader.count(1)?;
            reader.slice(len).map(drop)
        }
        _ => Err(SnapshotError::content("kind of store")),
    }
}
