//! Loom models of one key's allowance: spenders, and the holder of the ledger.
//!
//! Each model's assertion states its law. A *control* is the same model with one step done in the incorrect way that
//! the protocol's docs warn of. It must fail, which shows that the model can detect the fault.

use tollgate::internals::sync::{Arc, Mutex, thread};

use super::*;

fn model(run: impl Fn() + Sync + Send + 'static) {
    tollgate::internals::sync::explore(3, run);
}

/// A key's entry: its word, and in the ledger the value to which the word was set and the units found spent.
struct WriteBackKey {
    word: Allowance,
    ledger: Mutex<KeyLedger>,
}

#[derive(Default)]
struct KeyLedger {
    was: u64,
    posted: u64,
}

impl WriteBackKey {
    fn new(left: u64, until: u64) -> Self {
        Self { word: Allowance::new(left, until), ledger: Mutex::new(KeyLedger { was: left, posted: 0 }) }
    }

    /// Posts the spent units, and sets the allowance to the units left plus `more`.
    fn sync(&self, more: u64) {
        let mut ledger = self.ledger.lock().unwrap();
        let was = ledger.was;
        let Reset { spent, left } = self.word.reset(was, |spent| was - spent + more);
        ledger.posted += spent;
        ledger.was = left;
    }

    /// Like `sync`, with a plain store.
    fn sync_by_store(&self, more: u64) {
        let mut ledger = self.ledger.lock().unwrap();
        let left = self.word.word.load(Ordering::SeqCst);
        ledger.posted += ledger.was - left;
        ledger.was = left + more;
        self.word.word.store(left + more, Ordering::SeqCst);
    }
}

fn spend(entry: &WriteBackKey, cost: u64, now: u64) -> u64 {
    if let Spend::Done(_) = entry.word.spend(cost, now) { cost } else { 0 }
}

fn spenders_and_a_post(sync: fn(&WriteBackKey, u64)) {
    let entry = Arc::new(WriteBackKey::new(2, 10));
    let threads = [1, 2].map(|cost| {
        let entry = entry.clone();
        thread::spawn(move || spend(&entry, cost, 0))
    });
    sync(&entry, 1);
    let mut admitted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    while spend(&entry, 1, 0) > 0 {
        admitted += 1;
    }
    entry.sync(0);
    assert_eq!(admitted, 3, "the allowance is spent exactly once");
    assert_eq!(entry.ledger.lock().unwrap().posted, admitted, "every admitted unit is posted once");
}

// G81
#[test]
fn units_spent_during_a_post_are_posted_once() {
    model(|| spenders_and_a_post(WriteBackKey::sync));
}

// G80
#[test]
#[should_panic(expected = "the allowance is spent exactly once")]
fn control_plain_store_hands_units_out_twice() {
    model(|| spenders_and_a_post(WriteBackKey::sync_by_store));
}

/// The window ends at 10. The first window's allowance is 2, the next one's is 1. A spender at 10 spends from the next
/// window. The holder of the ledger sets the next allowance, and then the end of the next window. If `is_early`, it also
/// writes that end first.
fn spend_across_a_window_end(is_early: bool) {
    let entry = Arc::new(WriteBackKey::new(2, 10));
    let late = {
        let entry = entry.clone();
        thread::spawn(move || spend(&entry, 1, 10) + spend(&entry, 1, 10))
    };
    let mut ledger = entry.ledger.lock().unwrap();
    if is_early {
        entry.word.set_until(20);
    }
    let Reset { spent, left } = entry.word.reset(ledger.was, |_| 1);
    ledger.posted += spent;
    ledger.was = left;
    entry.word.set_until(20);
    drop(ledger);
    assert!(late.join().unwrap() <= 1, "units of a past window are not spent in the next");
}

// G80
#[test]
fn next_window_begins_with_its_own_allowance() {
    model(|| spend_across_a_window_end(false));
}

#[test]
#[should_panic(expected = "units of a past window")]
fn control_window_end_is_written_before_the_word() {
    model(|| spend_across_a_window_end(true));
}

/// A key with one place in a table. Removed entries are never read again.
struct Place {
    present: Mutex<Arc<WriteBackKey>>,
    /// Units posted from removed entries.
    posted: Mutex<u64>,
}

impl Place {
    fn spend(&self) -> u64 {
        loop {
            let entry = self.present.lock().unwrap().clone();
            match entry.word.spend(1, 0) {
                Spend::Done(_) => return 1,
                Spend::Dead => self.replace(&entry),
                Spend::Short(_) | Spend::Over => return 0,
            }
        }
    }

    /// The next entry of the key, which begins with one unit.
    fn replace(&self, dead: &Arc<WriteBackKey>) {
        let mut present = self.present.lock().unwrap();
        if Arc::ptr_eq(&present, dead) {
            *self.posted.lock().unwrap() += dead.ledger.lock().unwrap().posted;
            *present = Arc::new(WriteBackKey::new(1, 10));
        }
    }
}

fn spend_during_a_removal(kill: fn(&WriteBackKey) -> Removal) {
    let first = Arc::new(WriteBackKey::new(2, 10));
    let place = Arc::new(Place { present: Mutex::new(first.clone()), posted: Mutex::new(0) });
    let threads = [(); 2].map(|()| {
        let place = place.clone();
        thread::spawn(move || place.spend())
    });
    first.sync(0);
    if kill(&first) == Removal::Done {
        place.replace(&first);
    }
    let admitted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let last = place.present.lock().unwrap().clone();
    last.sync(0);
    let posted = *place.posted.lock().unwrap() + last.ledger.lock().unwrap().posted;
    assert_eq!(posted, admitted, "every admitted unit is posted, also units of a removed entry");
}

// G81
#[test]
fn removed_entry_keeps_no_unit() {
    model(|| spend_during_a_removal(|entry| entry.word.kill(entry.ledger.lock().unwrap().was)));
}

// G81
#[test]
#[should_panic(expected = "every admitted unit is posted, also units of a removed entry")]
fn control_unconditional_kill_loses_units() {
    model(|| {
        spend_during_a_removal(|entry| {
            entry.word.word.store(DEAD, Ordering::SeqCst);
            Removal::Done
        });
    });
}
