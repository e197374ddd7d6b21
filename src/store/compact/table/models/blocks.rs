//! Models of blocks: denials that race with each other, and with a charge.

use super::{WAYS, X, key, model};
use crate::algorithm::compact::slot::SlotWord;
use crate::algorithm::compact::ticks::{Interval, UnitRate};
use crate::algorithm::compact::{BlockedWord, CompactState, newest_of};
use crate::base::check_time::CheckTime;
use crate::base::decision::{Decision, Outcome};
use crate::base::sync::Ordering::{AcqRel, Acquire, Relaxed, Release};
use crate::base::sync::{Arc, both};
use crate::store::compact::table::{Full, SlotTable};
use crate::store::op::Operation;

const SEC: u64 = 1_000_000_000;

/// A table of one bucket, in which a key has used some of its two units at second 100. A block lasts for ten seconds.
struct Shared {
    table: SlotTable<BlockedWord, WAYS>,
    word: BlockedWord,
}

impl Shared {
    fn new() -> Arc<Self> {
        Self::with_used(2)
    }

    fn with_used(units: u64) -> Arc<Self> {
        let rate = UnitRate { interval: Interval { num: SEC, den: 1 }, burst: 2 };
        let word = BlockedWord::new(rate, 10 * SEC).unwrap();
        let table = SlotTable::new(1, word.horizon(), Full::Forget, newest_of(&word)).unwrap();
        let shared = Self { table, word };
        shared.table.newest.raise(200 * SEC, |now_ns| now_ns);
        assert!(shared.check(100, units).is_allowed());
        Arc::new(shared)
    }

    fn check(&self, at: u64, cost: u64) -> Decision {
        let Self { table, word } = self;
        table.check(word, table.place(X), word.moment(at * SEC), cost)
    }

    fn peek(&self, at: u64) -> Decision {
        self.table.peek(&self.word, self.table.place(X), CheckTime::from_ns(at * SEC), 1)
    }
}

fn end(denial: &Decision) -> u64 {
    denial.at_ns() + denial.block_ns()
}

/// Two denials at different times.
fn race_to_block(deny: fn(&Shared, u64) -> Decision) {
    let shared = Shared::new();
    let (a, b) = both(&shared, move |s| deny(s, 100), move |s| deny(s, 101));
    // The second denial may find a unit that has refilled, if no block has begun.
    let denials = [a, b].into_iter().filter(Decision::is_denied);
    let now = shared.peek(102);
    for denial in denials {
        assert_eq!(end(&denial), end(&now), "one block starts from one state, and ends at its stated time");
    }
}

/// The denial of the control: it stores the block without a look at the slot.
fn block_by_store(shared: &Shared, at: u64) -> Decision {
    let Shared { table, word } = shared;
    let (place, moment) = (table.place(X), word.moment(at * SEC));
    let slot = &table.buckets[0][place.home::<WAYS>()];
    let ahead = SlotWord::unpack(slot.load(Acquire)).state.wrapping_sub(moment.reference) & ((1 << 40) - 1);
    let after = word.block(ahead).unwrap_or(ahead);
    slot.store(place.word(moment.reference.wrapping_add(after)), Release);
    word.uncharged(Outcome::Denied, after, moment, 1)
}

// G131
#[test]
fn racing_denials_in_a_bucket_start_one_block() {
    model(|| race_to_block(|shared, at| shared.check(at, 2)));
}

// G131
#[test]
#[should_panic(expected = "one block starts from one state")]
fn control_blocks_in_a_bucket_by_store_start_twice() {
    model(|| race_to_block(block_by_store));
}

/// A denial, in parallel with a charge of the last unit.
// G131
#[test]
fn block_in_a_bucket_racing_a_charge_loses_neither() {
    model(|| {
        let shared = Shared::with_used(1);
        let (denial, forced) = both(
            &shared,
            |s| s.check(100, 2),
            |s| {
                let (table, at) = (&s.table, CheckTime::from_ns(100 * SEC));
                table.apply(&s.word, Operation::Force, table.place(X), at, 1)
            },
        );
        // If the charge is first, the block covers it. During the block, nothing is charged.
        assert!(denial.is_block() && forced.charged() <= 1);
        let now = shared.peek(100);
        assert!(now.is_block() && end(&now) == 110 * SEC, "the block is not lost");
    });
}

/// A block, in parallel with the first check of a key that takes the other slot: both stay.
// G131
#[test]
fn block_stays_beside_a_new_key() {
    model(|| {
        let shared = Shared::new();
        let y = key(2, 1);
        let (denial, other) = both(
            &shared,
            |s| s.check(100, 1),
            move |s| s.table.check(&s.word, s.table.place(y), s.word.moment(100 * SEC), 1),
        );
        assert!(denial.is_block() && other.is_allowed());
        assert!(shared.peek(109).is_block() && !shared.peek(110).is_block(), "the block ends at its time");
    });
}

/// An operator blocks the key for nine seconds, in parallel with a charge.
fn race_with_an_operator(block: fn(&Shared)) {
    let shared = Shared::with_used(1);
    let (_, forced) = both(&shared, block, |s| {
        let (table, at) = (&s.table, CheckTime::from_ns(100 * SEC));
        table.apply(&s.word, Operation::Force, table.place(X), at, 1)
    });
    assert!(forced.charged() <= 1);
    let now = shared.peek(100);
    assert!(now.is_block() && end(&now) >= 109 * SEC, "the block of an operator is not lost");
}

// G146
#[test]
fn block_of_an_operator_in_a_bucket_is_not_lost() {
    model(|| {
        race_with_an_operator(|s| {
            assert!(s.table.block_for(&s.word, X, CheckTime::from_ns(100 * SEC), 9 * SEC));
        });
    });
}

// G146
#[test]
#[should_panic(expected = "the block of an operator is not lost")]
fn control_block_of_an_operator_by_one_attempt_is_lost() {
    model(|| {
        race_with_an_operator(|s| {
            let Shared { table, word } = s;
            let (place, moment) = (table.place(X), word.moment(100 * SEC));
            let slot = &table.buckets[0][place.home::<WAYS>()];
            let seen = slot.load(Acquire);
            let ahead = SlotWord::unpack(seen).state.wrapping_sub(moment.reference) & ((1 << 40) - 1);
            let after = word.block_for(ahead, 9 * SEC).unwrap_or(ahead);
            let next = place.word(moment.reference.wrapping_add(after));
            let _ = slot.compare_exchange(seen, next, AcqRel, Relaxed);
        });
    });
}
