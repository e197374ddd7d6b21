//! The keys of a snapshot.
//!
//! ```text
//! algorithm | for each key that owes: length u32, key, head u64, tail words u64 … | u32::MAX
//! ```
//! The writer holds the entries of one shard in memory at a time, and writes them without a pin, so a slow disk delays no
//! reclamation.

use std::hash::{BuildHasher, Hash};
use std::io;

use super::Keyed;
use super::nodes::KeyNode;
use super::table::SHARDS;
use crate::algorithm::Algorithm;
use crate::base::reclaim;
use crate::store::op::{Debts as _, Operation};
use crate::store::snapshot::{
    PutBytes, SnapshotError, SnapshotKey, SnapshotReader, SnapshotTimes, put_algorithm,
};
use crate::store::state::{Action, KeyState, Request};

/// The length of a key that marks the end.
pub(in crate::store) const END: u32 = u32::MAX;

impl<K, A, H> Keyed<K, A, H>
where
    K: Hash + Eq + Send + Sync + SnapshotKey + 'static,
    A: Algorithm,
    H: BuildHasher,
{
    pub(crate) fn save(&self, now_ns: u64, put: &mut PutBytes<'_>) -> io::Result<()> {
        let mut chunk = Vec::new();
        put_algorithm(&self.algorithm, &mut chunk);
        for shard in 0..SHARDS {
            self.table.visit_shard(shard, |node| {
                let start = chunk.len();
                chunk.extend_from_slice(&END.to_le_bytes());
                node.key.write(&mut chunk);
                let len = u32::try_from(chunk.len() - start - size_of_val(&END)).ok();
                match len.filter(|len| *len != END && node.state.save(&self.algorithm, now_ns, &mut chunk)) {
                    Some(len) => chunk[start..start + size_of_val(&END)].copy_from_slice(&len.to_le_bytes()),
                    None => chunk.truncate(start),
                }
            });
            put(&chunk)?;
            chunk.clear();
        }
        put(&END.to_le_bytes())
    }

    /// Reads the keys of a snapshot, and passes them to `each` with their states.
    pub(crate) fn read(
        &self,
        reader: &mut SnapshotReader<'_>,
        times: SnapshotTimes,
        mut each: impl FnMut(K, KeyState<A::Tail>),
    ) -> Result<(), SnapshotError> {
        reader.same_algorithm(&self.algorithm)?;
        loop {
            let len = reader.u32()?;
            if len == END {
                return Ok(());
            }
            let key = K::read(reader.slice(len as usize)?).ok_or(SnapshotError::content("key"))?;
            if let Some(state) = KeyState::load(&self.algorithm, reader, times)? {
                each(key, state);
            }
        }
    }

    /// Inserts a key with its state. Without room under the cap, forgets the key. If another thread has charged the key in
    /// the meantime, charges the debt as well.
    pub(crate) fn put(&self, key: K, state: KeyState<A::Tail>, now_ns: u64) {
        let hash = self.hash(&key);
        let guard = reclaim::pin();
        let Ok(mut room) = self.make_room(hash, now_ns, &guard) else { return };
        let owed = state.owed(&self.algorithm, now_ns);
        self.beyond.note_debt(owed, self.algorithm.burst(), now_ns);
        // The node takes the key, so the search compares bytes.
        let (mut bytes, mut other) = (Vec::new(), Vec::new());
        key.write(&mut bytes);
        let mut is_key = |held: &K| {
            other.clear();
            held.write(&mut other);
            other == bytes
        };
        let mut new = self.table.place(KeyNode { state, key }, &guard);
        loop {
            match self.table.find(hash, &guard, &mut is_key) {
                Ok(other) => {
                    let action = Action::Apply(Operation::Force);
                    let force = Request { algorithm: &self.algorithm, action, now_ns, cost: owed };
                    if let Ok(decision) = other.node.state.apply(&force) {
                        return self.beyond.note(&decision, &self.algorithm);
                    }
                }
                Err(place) => {
                    if place.fill(&mut new, now_ns, &mut room.replaced).is_some() {
                        return room.taken();
                    }
                }
            }
        }
    }
}
