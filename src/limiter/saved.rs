//! Snapshots of limiters whose stores have the words of each key.

use core::hash::{BuildHasher, Hash};
use std::io;

use super::at::Timed;
use super::{At, RateLimiter};
use crate::algorithm::Algorithm;
use crate::base::check_time::CheckTime;
use crate::base::clock::Clock;
use crate::store::snapshot::{SnapshotReader, SnapshotTimes, write_snapshot};
use crate::store::{Direct, Keyed, SnapshotError, SnapshotKey};

const KEYED: &[u8; 8] = b"TOLLKEYS";
const DIRECT: &[u8; 8] = b"TOLLWORD";
const VERSION: u32 = 1;

/// Writes into memory, which never fails.
fn in_memory(write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Vec<u8> {
    let mut bytes = Vec::new();
    match write(&mut bytes) {
        Ok(()) => bytes,
        Err(error) => unreachable!("a vector takes all bytes: {error}"),
    }
}

/// Reads the time of a snapshot whose checksum is right.
fn begin<'s>(
    snapshot: &'s [u8],
    magic: &[u8; 8],
    now_ns: u64,
) -> Result<(SnapshotReader<'s>, SnapshotTimes), SnapshotError> {
    let mut reader = SnapshotReader::begin(snapshot, magic, VERSION)?;
    reader.verify()?;
    let then_ns = reader.u64()?;
    Ok((reader, SnapshotTimes { then_ns, now_ns }))
}

impl<K, A, H, C> RateLimiter<Keyed<K, A, H>, C>
where
    K: Hash + Eq + Send + Sync + SnapshotKey + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    /// Returns the keys and their states as bytes, for [`RateLimiter::restore`] in this process or in another one. Leaves
    /// out keys that owe nothing now.
    ///
    /// # Consistency
    /// Requests can be decided during the call. Each key's state in the snapshot is one that the key had at some time
    /// during the call.
    ///
    /// # Complexity
    /// O(keys). A key takes 12 bytes, its own bytes, and 8 bytes for each further word of its state.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{Gcra, Quota, RateLimiter};
    ///
    /// let build = || RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_hour(1)));
    /// let before = build();
    /// assert!(before.check("alice").is_allowed());
    /// let bytes = before.snapshot();
    ///
    /// let after = build();
    /// after.restore(&bytes)?;
    /// assert!(after.check("alice").is_denied() && after.check("bob").is_allowed());
    /// # Ok::<(), tollgate::stores::SnapshotError>(())
    /// ```
    pub fn snapshot(&self) -> Vec<u8> {
        in_memory(|bytes| self.save(self.now_ns(), bytes))
    }

    fn save(&self, now_ns: u64, to: &mut dyn io::Write) -> io::Result<()> {
        write_snapshot(to, KEYED, VERSION, |put| {
            put(&now_ns.to_le_bytes())?;
            self.store.save(now_ns, put)
        })
    }

    /// Sets the keys to those of a snapshot, less the debts that time has paid since.
    ///
    /// If this limiter's clock is behind the snapshot's clock (it was stepped back, or has another origin), the debts
    /// continue from this limiter's present time, as if no time had passed since the snapshot. Call this method before the
    /// limiter is in use. If a key is charged during the call, it owes both debts. If the limiter has a cap and the snapshot
    /// has more keys, the keys beyond the cap are forgotten.
    ///
    /// # Errors
    /// Returns an error if the bytes were cut or changed, or come from a limiter with another algorithm, quota or type of
    /// key. The error names the difference, and changes nothing.
    ///
    /// # Complexity
    /// O(keys).
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.load(snapshot, self.now_ns())
    }

    fn load(&self, snapshot: &[u8], now_ns: u64) -> Result<(), SnapshotError> {
        let (reader, times) = begin(snapshot, KEYED, now_ns)?;
        // Read twice, so that an error changes nothing.
        let mut all = reader.clone();
        self.store.read(&mut all, times, |_, _| {})?;
        all.done()?;
        self.clear();
        self.store.read(&mut reader.clone(), times, |key, state| self.store.put(key, state, now_ns))
    }
}

impl<K, A, H, C> At<'_, RateLimiter<Keyed<K, A, H>, C>>
where
    K: Hash + Eq + Send + Sync + SnapshotKey + 'static,
    A: Algorithm,
    H: BuildHasher,
    C: Clock,
{
    /// [`RateLimiter::snapshot`] at this time.
    pub fn snapshot(self) -> Vec<u8> {
        in_memory(|bytes| self.limiter.save(self.now.as_nanos(), bytes))
    }

    /// [`RateLimiter::restore`] at this time.
    ///
    /// # Errors
    /// As for that method.
    pub fn restore(self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.limiter.load(snapshot, self.now.as_nanos())
    }
}

impl<A: Algorithm, C: Clock> RateLimiter<Direct<A>, C> {
    /// Returns the state as bytes, for [`RateLimiter::restore`] in this process or in another one.
    ///
    /// # Examples
    /// ```
    /// use tollgate::{FixedWindow, Quota, RateLimiter};
    ///
    /// let build = || RateLimiter::direct(FixedWindow::new(Quota::per_day(2)));
    /// let (before, after) = (build(), build());
    /// assert!(before.check().is_allowed());
    /// after.restore(&before.snapshot())?;
    /// assert_eq!(after.peek().remaining(), before.peek().remaining());
    /// # Ok::<(), tollgate::stores::SnapshotError>(())
    /// ```
    pub fn snapshot(&self) -> Vec<u8> {
        self.save(self.time())
    }

    fn save(&self, at: CheckTime) -> Vec<u8> {
        let mut state = at.ns().to_le_bytes().to_vec();
        self.store.save(at.ns(), &mut state);
        in_memory(|bytes| write_snapshot(bytes, DIRECT, VERSION, |put| put(&state)))
    }

    /// Sets the state to that of a snapshot, less the debt that time has paid since.
    ///
    /// If this limiter's clock is behind the snapshot's clock, the debt continues from this limiter's present time. Call
    /// this method before the limiter is in use: charges made during the call may be lost.
    ///
    /// # Errors
    /// Returns an error if the bytes were cut or changed, or come from a limiter with another algorithm or quota. The error
    /// names the difference, and changes nothing.
    pub fn restore(&self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.load(snapshot, self.time())
    }

    fn load(&self, snapshot: &[u8], at: CheckTime) -> Result<(), SnapshotError> {
        let (mut reader, times) = begin(snapshot, DIRECT, at.ns())?;
        let state = self.store.read(&mut reader, times)?;
        reader.done()?;
        self.store.set(&state);
        Ok(())
    }
}

impl<A: Algorithm, C: Clock> At<'_, RateLimiter<Direct<A>, C>> {
    /// [`RateLimiter::snapshot`] at this time.
    pub fn snapshot(self) -> Vec<u8> {
        self.limiter.save(CheckTime::given(self.now))
    }

    /// [`RateLimiter::restore`] at this time.
    ///
    /// # Errors
    /// As for that method.
    pub fn restore(self, snapshot: &[u8]) -> Result<(), SnapshotError> {
        self.limiter.load(snapshot, CheckTime::given(self.now))
    }
}
