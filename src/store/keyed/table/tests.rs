use super::super::nodes::NUMBER_BITS;
use super::index::{TOMBSTONE, new_lines, tag};
use super::search::{RANKED_TOGETHER, SWEPT};
use super::*;
use crate::store::state::{KeyState, Kill};

#[test]
fn word_packs_tag_and_number() {
    for hash in [0, 1, u64::MAX, u64::MAX >> SHARD_BITS, 0x0123_4567_89AB_CDEF] {
        for place in [0, 1, 62, 63, 64, (1 << NUMBER_BITS) - 1] {
            let word = word_of(hash, place);
            for word in [word, word | FROZEN] {
                assert!(is_filled(word) && has_tag(word, tag_of(hash)));
                assert_eq!((tag(word), number(word)), (tag_of(hash), place));
                assert_eq!(over(word, tag_of(hash)) | FILLED, word & ((FILLED << 1) - 1));
                assert!(over(word, tag_of(hash)) < FILLED && over(word, tag_of(hash) ^ 1) >= FILLED);
            }
        }
        for other in [EMPTY, TOMBSTONE, EMPTY | FROZEN, TOMBSTONE | FROZEN] {
            assert!(!is_filled(other) && !has_tag(other, tag_of(hash)));
            assert!(over(other, tag_of(hash)) >= FILLED);
        }
    }
}

#[test]
fn search_visits_each_slot_once() {
    for len in [1, 2, 64] {
        let lines = new_lines(len, EMPTY);
        for tag in [0_usize, 5, (1 << TAG_BITS) - 1] {
            let mut slots: Vec<_> = search(&lines, tag as u64).map(std::ptr::from_ref).collect();
            let base = lines.as_ptr().cast::<AtomicU64>();
            let home = (tag >> (TAG_BITS - len.ilog2())) * SLOTS;
            assert_eq!(slots[0], base.wrapping_add(home + tag % SLOTS / 2 * 2));
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), len * SLOTS);
        }
    }
}

// G35
#[test]
fn search_looks_at_as_many_nodes_as_told_wherever_it_starts() {
    let guard = reclaim::pin();
    // In a table of few keys, most shards have none. In one of many, a shard has several lines.
    for (keys, most) in
        [(5_u64, None), (300, None), (50_000, None), (5, Some(5)), (64, Some(64)), (300, Some(1_000))]
    {
        let table = NodeTable::<u64, ()>::new(0, most, 1);
        (0..keys).for_each(|key| insert(&table, key, &guard));
        for place in (0..200).map(|key| table.hash(hash(key))) {
            let mut seen = Vec::new();
            let most = usize::try_from(keys.min(12)).unwrap();
            let found = table.search(place, most, &guard, |node| {
                seen.push(node.key);
                Some(node.key + 1)
            });
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), most, "{keys} keys");
            let (rank, held) = found.expect("the table has keys");
            assert_eq!((rank, held.node.key), (seen[0] + 1, seen[0]), "the smallest rank");
            assert!(table.search(place, most, &guard, |_| None).is_none(), "no key has a rank");
        }
        let mut looked = 0;
        let found = table.search(0, 12, &guard, |_| {
            looked += 1;
            Some(0)
        });
        assert!(found.is_some() && looked <= RANKED_TOGETHER, "looked at {looked} keys");
    }
}

/// A shard of a store with a cap has some keys, so that a search for room finds them in one shard.
#[test]
fn stores_with_small_caps_use_few_shards() {
    for (most, shards) in
        [(1, 1), (63, 1), (64, 2), (1_000, 32), (1_024, 32), (16_384, SHARDS), (1 << 40, SHARDS)]
    {
        let table = NodeTable::<u64, ()>::new(0, Some(most), 1);
        let mut used: Vec<_> = (0..1_u64 << 20).map(|key| table.shard(table.hash(hash(key)))).collect();
        used.sort_unstable();
        used.dedup();
        assert_eq!(used.len(), shards, "a cap of {most}");
    }
}

fn lines(table: &NodeTable<u64, ()>) -> usize {
    (0..SHARDS).map(|shard| table.index(shard)).filter(|index| !index.is_vacant()).map(Index::len).sum()
}

fn hash(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn insert_at(table: &NodeTable<u64, ()>, hash: u64, key: u64, now_ns: u64, guard: &Pinned) -> Filling {
    let mut new = table.place(KeyNode { state: KeyState::fresh(0), key }, guard);
    loop {
        let Err(place) = table.find(hash, guard, |held| *held == key) else { panic!("{key} is new") };
        if let Some(filling) = place.fill(&mut new, now_ns, &mut None) {
            return filling;
        }
    }
}

fn insert(table: &NodeTable<u64, ()>, key: u64, guard: &Pinned) {
    let _ = insert_at(table, table.hash(hash(key)), key, 0, guard);
}

fn remove(table: &NodeTable<u64, ()>, key: u64, guard: &Pinned) {
    let Ok(held) = table.find(table.hash(hash(key)), guard, |held| *held == key) else {
        panic!("{key} is there")
    };
    assert!(held.node.state.kill() == Kill::Done);
    table.unlink(held, guard);
}

// G34
#[test]
fn indices_grow_and_shrink_with_the_keys() {
    let guard = reclaim::pin();
    let table = NodeTable::<u64, ()>::new(0, None, 1);
    let insert = |key| insert(&table, key, &guard);
    (0..100_000).for_each(insert);
    assert_eq!(table.len(), 100_000);
    let slots = lines(&table) * SLOTS;
    assert!((133_000..400_000).contains(&slots), "{slots} slots for 100,000 keys");
    assert!((0..100_000).all(|key| table.get(hash(key), &guard, |held| *held == key).is_ok()));
    table.for_each(|node| node.state.kill() == Kill::Done);
    assert_eq!((table.len(), lines(&table)), (0, SHARDS));
    // Tombstones do not make the index grow.
    for key in 0..200_000 {
        insert(key);
        remove(&table, key, &guard);
    }
    assert_eq!((table.len(), lines(&table)), (0, SHARDS));
}

#[test]
fn emptied_indices_shrink_at_a_visit() {
    let guard = reclaim::pin();
    let table = NodeTable::<u64, ()>::new(0, None, 1);
    (0..100_000).for_each(|key| insert(&table, key, &guard));
    (0..100_000).for_each(|key| remove(&table, key, &guard));
    assert!(lines(&table) > SHARDS, "removals alone do not shrink an index");
    table.for_each(|_| panic!("no key is left"));
    assert_eq!(lines(&table), SHARDS);
}

// G34
#[test]
fn large_indices_lie_in_arenas_until_they_are_freed() {
    let guard = reclaim::pin();
    let (keys, has_arenas) = (20_000, cfg!(all(target_os = "linux", not(miri))));
    let table = NodeTable::<u64, ()>::new(600_000, None, 1);
    let memory = Arc::clone(&table.memory);
    (0..keys).for_each(|key| insert(&table, key, &guard));
    let in_arena = |shard| memory.is_in_arena(table.index(shard));
    assert!((0..SHARDS).all(|shard| in_arena(shard) == has_arenas));
    // The first place of a shard is in use when its index is copied.
    for shard in 0..SHARDS {
        table.rebuild(shard, table.lines(shard, &guard), &guard);
        assert!(!in_arena(shard));
    }
    assert!((0..keys).all(|key| table.get(hash(key), &guard, |held| *held == key).is_ok()));
    drop((guard, table));
    unsafe fn nothing(_: *mut (), _: usize, _: &Pinned) {}
    for _ in 0..10_000_000 {
        if Arc::strong_count(&memory) == 1 {
            return;
        }
        // SAFETY: nothing is freed.
        unsafe { reclaim::pin().retire(std::ptr::null_mut(), 0, usize::MAX, nothing) };
    }
    panic!("{} indices are left", Arc::strong_count(&memory) - 1);
}

#[test]
fn grown_shard_rests_from_sweeps_for_the_grace_period() {
    let guard = reclaim::pin();
    let table = NodeTable::<u64, ()>::new(0, None, 1);
    let insert = |key: u64, now_ns: u64| insert_at(&table, key << 47, key, now_ns, &guard);
    // The first index has eight slots, and grows at the seventh key.
    for key in 0..7 {
        let _ = insert(key, 5 * GRACE_NS);
    }
    // The index grows to 64 slots at the 25th key. It is more than half full from the 33rd key.
    assert!((7..39).all(|key| insert(key, 5 * GRACE_NS) == Filling::No));
    // One insert of eight sweeps.
    assert_eq!(insert(39, 6 * GRACE_NS - GRACE_NS / 100), Filling::No, "the shard rests");
    assert!((40..47).all(|key| insert(key, 6 * GRACE_NS + GRACE_NS / 100) == Filling::No));
    assert_eq!(insert(47, 6 * GRACE_NS + GRACE_NS / 100), Filling::Yes);
}

/// The inserts that sweep look at four words for each insert, whatever the size of the index.
#[test]
fn sweeps_visit_each_word_once_before_a_rebuild() {
    for lines in [1, 2, 4, 8, 16, 64] {
        let slots = lines * SLOTS;
        let inserts =
            (slots / 2 + 1..=slots * 3 / 4).filter(|used| used.is_multiple_of(swept_together(lines)));
        assert_eq!(inserts.count() * SWEPT * swept_together(lines), slots, "{lines} lines");
    }
}

/// The hash of a key of [`forty_keys`].
fn forty_hash(key: u64) -> u64 {
    key << 48
}

/// A table of forty keys, which are in one shard, whose index has eight lines.
fn forty_keys(guard: &Pinned) -> NodeTable<u64, ()> {
    let table = NodeTable::<u64, ()>::new(0, None, 1);
    for key in 0..40 {
        let _ = insert_at(&table, forty_hash(key), key, 0, guard);
    }
    assert_eq!(table.lines(0, guard).1.len(), 8);
    table
}

/// A sweep removes what it finds in its words, and nothing else, and counts it.
#[test]
fn sweep_removes_the_nodes_of_its_words() {
    let guard = reclaim::pin();
    let table = forty_keys(&guard);
    let sweep = || table.sweep(0, &guard, |node| node.key % 2 == 0 && node.state.kill() == Kill::Done);
    sweep();
    assert!((20..40).contains(&table.len()), "a part of the words");
    // A sweep visits at least a quarter of the words.
    (0..3).for_each(|_| sweep());
    assert_eq!(table.len(), 20, "all of the words");
    for key in 0..40 {
        assert_eq!(table.find(forty_hash(key), &guard, |held| *held == key).is_ok(), key % 2 == 1);
    }
}

/// So a flood of new keys pays for a bounded number of removals, and still fewer keys are left than before.
#[test]
fn sweep_ends_after_as_many_removals_as_inserts() {
    let guard = reclaim::pin();
    let table = forty_keys(&guard);
    let visited_by_sweep = |kills: bool| {
        let mut visited = 0;
        table.sweep(0, &guard, |node| {
            visited += 1;
            kills && node.state.kill() == Kill::Done
        });
        visited
    };
    let part = visited_by_sweep(true);
    assert!((8..=16).contains(&part), "{part} nodes in 16 words");
    assert_eq!(table.len(), 40 - part);
    let both = visited_by_sweep(false);
    assert!((17..=32).contains(&both), "{both} nodes in 32 words");
}
