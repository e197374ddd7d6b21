use super::*;
use crate::base::reclaim::pin;

type Witnesses = Nodes<Arc<()>, ()>;

fn node(witness: &Arc<()>) -> KeyNode<Arc<()>, ()> {
    KeyNode { state: KeyState::fresh(0), key: Arc::clone(witness) }
}

fn at<'g>(
    nodes: &'g Witnesses,
    node: &NewNode<'_, Arc<()>, ()>,
    guard: &'g Pinned,
) -> &'g KeyNode<Arc<()>, ()> {
    // SAFETY: the node is written, and it is dropped only after this guard.
    unsafe { nodes.get(node.number(), guard) }
}

// G34
#[test]
fn nodes_have_own_lines_and_drop_once() {
    let (witness, guard) = (Arc::new(()), pin());
    let allocator = Witnesses::new(1);
    let nodes: Vec<_> = (0..100).map(|_| allocator.place(node(&witness), &guard)).collect();
    let mut lines: Vec<usize> =
        nodes.iter().map(|node| std::ptr::from_ref(at(&allocator, node, &guard)).addr() / 64).collect();
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 100);
    assert_eq!(Arc::strong_count(&witness), 101);
    let (kept, dropped): (Vec<_>, Vec<_>) =
        nodes.into_iter().enumerate().partition(|(index, _)| index % 3 == 0);
    drop(dropped);
    assert_eq!(Arc::strong_count(&witness), 1 + kept.len());
    drop(kept);
    assert_eq!(Arc::strong_count(&witness), 1);
}

#[test]
fn many_nodes_are_dense_and_memory_is_reused() {
    const MANY: usize = 50_000;
    let (witness, guard) = (Arc::new(()), pin());
    let allocator = Witnesses::new(1);
    let place = || -> Vec<_> { (0..MANY).map(|_| allocator.place(node(&witness), &guard)).collect() };
    let nodes = place();
    let segments = allocator.directory.len.load(Ordering::Relaxed) as usize;
    assert!(segments < SMALL as usize + MANY / NODES, "{segments} segments for {MANY} nodes");
    let kept: Vec<_> = nodes.into_iter().enumerate().filter(|(index, _)| index % 10 == 0).collect();
    drop((place(), kept));
    let more = allocator.directory.len.load(Ordering::Relaxed) as usize;
    assert!(
        more < segments * 5 / 4,
        "{segments} segments for all keys, {more} after a second set of keys and a tenth of the first"
    );
}

// G34
#[test]
fn empty_blocks_are_freed() {
    let (witness, allocator) = (Arc::new(()), Witnesses::new(1));
    std::thread::scope(|scope| {
        let work = || {
            let guard = pin();
            let many = if cfg!(miri) { 50_000 } else { 300_000 };
            let nodes: Vec<_> = (0..many).map(|_| allocator.place(node(&witness), &guard)).collect();
            assert!(Arc::strong_count(&allocator.directory) > 256);
            drop(nodes);
        };
        scope.spawn(work).join().expect("the thread does not panic");
    });
    // Another thread frees them with what it retires, after all threads have unpinned that were pinned at that time.
    unsafe fn nothing(_: *mut (), _: usize, _: &Pinned) {}
    for _ in 0..10_000_000 {
        if Arc::strong_count(&allocator.directory) == 2 {
            return;
        }
        // SAFETY: nothing is freed.
        unsafe { pin().retire(std::ptr::null_mut(), 0, usize::MAX, nothing) };
    }
    panic!("{} blocks are left", Arc::strong_count(&allocator.directory) - 1);
}

// G34
#[test]
fn large_stores_of_every_node_size_have_arenas() {
    fn has_arena<K>() -> bool {
        Nodes::<K, ()>::new(1).directory.arena(FIRST_IN_ARENA).is_some()
    }
    // A block has a power of two of segments, so its bytes differ by a factor of two.
    let found = [
        has_arena::<u64>(),
        has_arena::<[u64; 4]>(),
        has_arena::<[u64; 8]>(),
        has_arena::<[u64; 9]>(),
        has_arena::<[u64; 64]>(),
        has_arena::<[u64; 4_000]>(),
    ];
    assert_eq!(found, [cfg!(all(target_os = "linux", not(miri))); 6]);
}

#[test]
fn level_of_each_block_is_computed() {
    for (id, expected) in [
        (0, (0, 0)),
        (FIRST_LEVEL - 1, (0, 0)),
        (FIRST_LEVEL, (1, FIRST_LEVEL)),
        (2 * FIRST_LEVEL - 1, (1, FIRST_LEVEL)),
        (2 * FIRST_LEVEL, (2, 2 * FIRST_LEVEL)),
        (BLOCKS - 1, (LEVELS - 1, BLOCKS / 2)),
    ] {
        assert_eq!(level(id), expected, "{id}");
    }
    assert_eq!(u64::from(BLOCKS) << (SEGMENT_BITS + PLACE_BITS), 1 << NUMBER_BITS);
    for id in [0, 1, SMALL - 1, SMALL, SMALL + 63, SMALL + 64, 1 << 20, 1 << 27] {
        let (block, segment) = Segment::<u64, ()>::block(id);
        assert_eq!(Segment::<u64, ()>::id(block, segment), id);
    }
}
