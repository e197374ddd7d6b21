//! Loom models of the blocks that contain nodes.

use super::*;
use crate::base::sync::explore;
use crate::base::sync::thread;

type Blocks = Directory<u64, ()>;

/// Two segments of one block.
const ONE: u32 = SMALL;
const OTHER: u32 = SMALL + 1;

/// One thread closes the only open segment of a block, while another thread opens the other segment.
fn open_while_closing(close: fn(&Arc<Blocks>, &Pinned)) {
    explore(3, move || {
        let directory = Arc::new(Blocks::new());
        directory.len.store(OTHER + 1, Ordering::Relaxed);
        assert!(directory.open(ONE, &reclaim::pin()));
        let other = Arc::clone(&directory);
        let closing = thread::spawn(move || close(&other, &reclaim::pin()));
        let opened = directory.open(OTHER, &reclaim::pin());
        closing.join().unwrap();
        let opened = opened || directory.open(OTHER, &reclaim::pin());
        assert!(opened, "a segment that no thread uses can be opened again");
        let guard = reclaim::pin();
        let segment = directory.segment(OTHER, &guard).expect("an open segment is in the directory");
        assert_eq!(segment.take(), Some(0));
        directory.release(OTHER, 1, &guard);
        directory.release(OTHER, HELD, &guard);
        drop(guard);
        assert_eq!(Arc::strong_count(&directory), 1, "a block without open segments is freed");
    });
}

#[test]
fn segment_opened_while_block_closes_is_kept() {
    open_while_closing(|directory, guard| directory.release(ONE, HELD, guard));
}

#[test]
#[should_panic(expected = "an open segment is in the directory")]
fn control_closing_without_check_loses_segment() {
    open_while_closing(|directory, guard| {
        let segments = directory.segments(SMALL, guard).expect("the block has an open segment");
        segments[0].taken.store(CLOSED, Ordering::Relaxed);
        if segments[0].open.fetch_and(!1, Ordering::AcqRel) == 1 {
            segments[0].open.store(CLOSED, Ordering::Relaxed);
            directory.leave(SMALL, guard);
        }
    });
}
