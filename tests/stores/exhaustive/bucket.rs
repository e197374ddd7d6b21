//! A bucket of two slots. The steps follow `find`, `insert` and `is_sole_slot` in `store::compact::table`.

use super::{BEGINNING, MASK, PASSES, visit};
use tollgate::small::{self, SmallGcra, ahead};

const WAYS: usize = 2;
const KEYS: usize = 3;
/// How far a clock may be behind another: more than a horizon, and less than a quarter of the range.
const LAG: u8 = 3;

/// The policy for a full bucket. The last three variants break a rule on purpose.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Rule {
    Inherit,
    Forget,
    Spill,
    /// Inherit, but takes the first slot that is idle by the thread's own clock: must fail.
    FirstIdle,
    /// Spill, but takes the slot before it records the evicted debt: must fail.
    TakeFirst,
    /// Inherit, but does not read the newest time for a word that is too far ahead: must fail.
    Late,
}

impl Rule {
    fn looks_again(self) -> bool {
        matches!(self, Self::Forget | Self::Spill | Self::TakeFirst)
    }

    fn spills(self) -> bool {
        matches!(self, Self::Spill | Self::TakeFirst)
    }
}

/// The word of a slot: the number of a key plus one, and a state. Zero is empty.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Slot {
    key: u8,
    state: u8,
}

impl Slot {
    fn order(self, now: u8) -> i8 {
        i8::try_from(small::order(self.state, now)).unwrap()
    }
}

/// The position of a thread in its check.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum At {
    Clock,
    /// Loads the slot at this distance from its home.
    Load(u8),
    /// Reads the newest time for the word that it has just loaded, because that word is too far ahead.
    Newest(u8),
    /// Reads the debt that the sketch holds for its key.
    Debt,
    /// Raises the newest time.
    Raise,
    /// Writes the debt of the key that it evicts.
    Record,
    Exchange,
    /// After the insertion: writes the debt of the evicted key, which is too late.
    RecordLate,
    /// After the insertion: checks whether its key is in the other slot.
    Alone,
    /// After the insertion: checks whether the sketch has a larger debt than it started with.
    AloneDebt,
    Retreat,
    Done,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Thread {
    key: u8,
    at: At,
    /// How far its clock is behind.
    lag: u8,
    now: u8,
    /// The loaded slots, by distance from home: the word, its rank, and how far ahead it is.
    seen: [(Slot, i8, u8); WAYS],
    /// The chosen place, whether it holds the thread's key, and how far ahead the key is.
    chosen: (u8, bool, u8),
    admitted: bool,
}

#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Bucket<const N: usize> {
    /// The full time.
    clock: u8,
    /// The newest time of any written word, with all its bits.
    newest: u8,
    slots: [Slot; WAYS],
    threads: [Thread; N],
    /// The content of an exact sketch: arrival times with all their bits.
    spilled: [u8; KEYS],
    /// The debt of each key from all its admissions: arrival times with all their bits.
    owed: [u8; KEYS],
    /// Admissions for which the debts of the keys had no room.
    over: u8,
    /// Retreats that failed, and live words that were replaced under `Forget`.
    raced: u8,
    forgot: u8,
}

struct Model {
    rule: Rule,
    word: SmallGcra,
}

impl Model {
    /// A model with one unit per tick.
    fn new(rule: Rule, burst: u64) -> Self {
        Self { rule, word: SmallGcra::new(burst) }
    }

    /// The number of ticks by which the clock may advance. It does not advance under rules that look again: there a new
    /// key is admitted only some steps after its exchange, so the order of the debts would be unknown.
    fn passes(&self) -> u8 {
        if self.rule.looks_again() { 0 } else { PASSES }
    }

    /// The rank of a word for a thread and how far ahead it is, as in `find`. `None` if the newest time must be read.
    fn rank(&self, slot: Slot, now: u8) -> Option<(i8, u8)> {
        if slot.key == 0 {
            return Some((i8::MIN, 0));
        }
        let ahead = ahead(slot.state, now, self.word.horizon()).ok()?;
        Some((slot.order(now), ahead))
    }

    fn chosen(&self, thread: &Thread) -> (u8, bool, u8) {
        let [near, far] = thread.seen;
        for (place, (slot, _, ahead)) in (0..).zip([near, far]) {
            if slot.key == thread.key {
                return (place, true, ahead);
            }
        }
        let first_idle = self.rule == Rule::FirstIdle && near.2 == 0;
        // The first-idle control prefers the near slot if it is idle, whatever the other slot holds.
        let place = u8::from(!first_idle && far.1 < near.1);
        let started = match self.rule {
            Rule::Inherit | Rule::FirstIdle | Rule::Late => thread.seen[usize::from(place)].2,
            _ => 0,
        };
        (place, false, started)
    }

    /// The slot at this distance from the home of a key. In the control, all keys begin with the first slot.
    fn place(&self, key: u8, distance: u8) -> usize {
        let home = if self.rule == Rule::FirstIdle { 0 } else { key };
        usize::from(home + distance) % WAYS
    }

    /// Runs one step of a thread.
    fn step<const N: usize>(&self, bucket: &mut Bucket<N>, index: usize) {
        let mut thread = bucket.threads[index];
        let key = usize::from(thread.key) - 1;
        match thread.at {
            At::Clock => {
                thread.now = bucket.clock - thread.lag;
                thread.at = At::Load(0);
            }
            At::Load(step) => self.load(bucket, &mut thread, step),
            At::Newest(step) => self.read_newest(bucket, &mut thread, step),
            At::Raise => {
                bucket.newest = bucket.newest.max(thread.now);
                let (place, here, _) = thread.chosen;
                let evicts = !here && thread.seen[usize::from(place)].2 > 0;
                thread.at = if evicts && self.rule == Rule::Spill { At::Record } else { At::Exchange };
            }
            At::Debt => {
                thread.chosen.2 = bucket.spilled[key].saturating_sub(thread.now);
                self.decided(&mut thread);
            }
            At::Record | At::RecordLate => {
                let (slot, _, ahead) = thread.seen[usize::from(thread.chosen.0)];
                let evicted = &mut bucket.spilled[usize::from(slot.key) - 1];
                *evicted = (*evicted).max(thread.now + ahead);
                thread.at = if thread.at == At::Record { At::Exchange } else { At::Alone };
            }
            At::Exchange => self.exchange(bucket, &mut thread),
            At::Alone => {
                let other = bucket.slots[self.place(thread.key, thread.chosen.0 + 1)];
                thread.at = match other.key == thread.key {
                    true => At::Retreat,
                    false if self.rule.spills() => At::AloneDebt,
                    false => At::Done,
                };
            }
            At::AloneDebt => {
                let debt = bucket.spilled[key].saturating_sub(thread.now);
                thread.at = if debt <= thread.chosen.2 { At::Done } else { At::Retreat };
            }
            At::Retreat => {
                let inserted = self.admitted(&thread);
                let own = &mut bucket.slots[self.place(thread.key, thread.chosen.0)];
                if *own == inserted {
                    *own = Slot::default();
                    thread.decide_again();
                } else {
                    bucket.raced += 1;
                    thread.at = At::Done;
                }
            }
            At::Done => unreachable!("a thread that is done takes no step"),
        }
        if thread.at == At::Done {
            if thread.admitted {
                // Checks whether the key's debt left room, as of the present time. A thread whose time lags may see a
                // debt that is already paid at the present time.
                let owed = &mut bucket.owed[key];
                let ahead = owed.saturating_sub(bucket.clock);
                bucket.over += u8::from(ahead + 1 > self.word.horizon());
                *owed = (*owed).max(thread.now) + 1;
            }
            // Clears what the thread no longer needs. Otherwise equal states would look different.
            thread = Thread { at: At::Done, ..Thread::new(thread.key) };
        }
        bucket.threads[index] = thread;
    }

    fn load<const N: usize>(&self, bucket: &Bucket<N>, thread: &mut Thread, step: u8) {
        let slot = bucket.slots[self.place(thread.key, step)];
        let rank = self.rank(slot, thread.now);
        let (rank_or_least, ahead) = rank.unwrap_or((i8::MIN, 0));
        thread.seen[usize::from(step)] = (slot, rank_or_least, ahead);
        if rank.is_some() || self.rule == Rule::Late {
            self.loaded(thread, step);
        } else {
            thread.at = At::Newest(step);
        }
    }

    fn read_newest<const N: usize>(&self, bucket: &Bucket<N>, thread: &mut Thread, step: u8) {
        let (slot, rank, seen_ahead) = &mut thread.seen[usize::from(step)];
        let horizon = self.word.horizon();
        let far = ahead(slot.state, thread.now, horizon).expect_err("it was too far ahead");
        if thread.now + far <= bucket.newest + horizon {
            (*rank, *seen_ahead) = (slot.order(thread.now), far);
        }
        self.loaded(thread, step);
    }

    fn exchange<const N: usize>(&self, bucket: &mut Bucket<N>, thread: &mut Thread) {
        let (chosen, here, _) = thread.chosen;
        let (seen, _, ahead) = thread.seen[usize::from(chosen)];
        let own = &mut bucket.slots[self.place(thread.key, chosen)];
        if *own != seen {
            thread.decide_again();
            return;
        }
        *own = self.admitted(thread);
        bucket.forgot += u8::from(!here && ahead > 0 && self.rule == Rule::Forget);
        thread.at = match self.rule {
            _ if here => At::Done,
            Rule::TakeFirst if ahead > 0 => At::RecordLate,
            rule if rule.looks_again() => At::Alone,
            _ => At::Done,
        };
    }

    /// The word of a thread's key after its admission.
    fn admitted(&self, thread: &Thread) -> Slot {
        let after = self.word.admit(thread.chosen.2).expect("it was admitted");
        Slot { key: thread.key, state: thread.now.wrapping_add(after) & MASK }
    }

    /// After a place is loaded: loads the next one, or chooses.
    fn loaded(&self, thread: &mut Thread, step: u8) {
        if thread.seen[usize::from(step)].0.key != thread.key && usize::from(step) + 1 < WAYS {
            thread.at = At::Load(step + 1);
            return;
        }
        if step == 0 {
            // The key is in its home slot, so the content of the other slot does not matter.
            thread.seen[1] = Default::default();
        }
        thread.chosen = self.chosen(thread);
        if !thread.chosen.1 && self.rule.spills() {
            thread.at = At::Debt;
        } else {
            self.decided(thread);
        }
    }

    fn decided(&self, thread: &mut Thread) {
        thread.admitted = self.word.admit(thread.chosen.2).is_some();
        thread.at = if thread.admitted { At::Raise } else { At::Done };
    }
}

impl Thread {
    fn new(key: u8) -> Self {
        let seen = Default::default();
        Self { key, at: At::Clock, now: 0, lag: 0, seen, chosen: (0, false, 0), admitted: false }
    }

    /// Decides again as of the same time, and clears what the thread has seen.
    fn decide_again(&mut self) {
        let Self { key, lag, now, .. } = *self;
        *self = Self { lag, now, at: At::Load(0), ..Self::new(key) };
    }
}

/// The faults found over all interleavings from one starting state.
#[derive(Default, Debug)]
struct Found {
    states: usize,
    duplicates: usize,
    over: usize,
    most_raced: u8,
}

impl Model {
    /// Runs threads that check these keys, one unit each, with these slots: first with equal clocks, and then with the
    /// first thread's clock behind by 1 to `LAG`.
    fn run<const N: usize>(&self, keys: [u8; N], slots: [Slot; WAYS], found: &mut Found) {
        // Words that wrap around between the times of two threads are excluded: see the last test.
        let of_all = |slot: &Slot| slot.key == 0 || (-4..=2).contains(&slot.order(BEGINNING));
        // The order of the debts is known only if the exchange itself admits: see `passes`.
        let lags = !self.rule.looks_again() && slots.iter().all(of_all);
        for lag in 0..=if lags { LAG } else { 0 } {
            let mut threads = keys.map(Thread::new);
            threads[0].lag = lag;
            self.run_threads(threads, slots, found);
        }
    }

    fn run_threads<const N: usize>(&self, threads: [Thread; N], slots: [Slot; WAYS], found: &mut Found) {
        let mut owed = [0; KEYS];
        for slot in slots.into_iter().filter(|slot| slot.key > 0) {
            if let Ok(ahead @ 1..) = ahead(slot.state, BEGINNING, self.word.horizon()) {
                owed[usize::from(slot.key) - 1] = BEGINNING + ahead;
            }
        }
        let beginning = Bucket {
            clock: BEGINNING,
            newest: BEGINNING,
            slots,
            threads,
            spilled: [0; KEYS],
            owed,
            over: 0,
            raced: 0,
            forgot: 0,
        };
        found.states += visit(beginning, |bucket, near| {
            let twice = bucket.slots[0].key > 0 && bucket.slots[0].key == bucket.slots[1].key;
            let done = bucket.threads.iter().all(|thread| thread.at == At::Done);
            // A new key that is about to look or to retreat may be in two slots.
            let settled = done || !self.rule.looks_again();
            found.duplicates += usize::from(twice && settled && (N == 2 || bucket.raced == 0));
            let raced = if N == 2 { 0 } else { bucket.raced };
            found.over += usize::from(done && bucket.over > raced + bucket.forgot);
            found.most_raced = found.most_raced.max(bucket.raced);
            for (index, thread) in bucket.threads.iter().enumerate() {
                if thread.at != At::Done {
                    let mut next = *bucket;
                    self.step(&mut next, index);
                    near.push(next);
                }
            }
            if bucket.clock < BEGINNING + self.passes() && !done {
                near.push(Bucket { clock: bucket.clock + 1, ..*bucket });
            }
        });
    }

    /// The possible contents of a slot at the start: nothing, or a word of any key. Such a word is as far ahead as
    /// possible, just paid, paid earlier, paid long ago, or so far ahead that it has wrapped around. No word wraps
    /// around during the run.
    fn words(&self) -> Vec<Slot> {
        let aheads = [self.word.horizon(), 0, u8::MAX, MASK / 2 + 1 + PASSES, MASK / 2];
        let word = |key| aheads.map(|ahead| Slot { key, state: BEGINNING.wrapping_add(ahead) & MASK });
        [Slot::default()].into_iter().chain([1, 2, 3].into_iter().flat_map(word)).collect()
    }

    /// Runs from every starting state, until `enough` returns true.
    fn all(&self, threads: &[[u8; 2]], enough: fn(&Found) -> bool) -> Found {
        let mut found = Found::default();
        for &keys in threads {
            for first in self.words() {
                for second in self.words() {
                    if (first.key == 0 || first.key != second.key) && !enough(&found) {
                        self.run(keys, [first, second], &mut found);
                    }
                }
            }
        }
        found
    }
}

/// Two threads with the same key, or with two keys.
const TWO: [[u8; 2]; 2] = [[1, 1], [1, 2]];

// G6, G9, G12
#[test]
fn two_threads_from_every_start() {
    for rule in [Rule::Inherit, Rule::Forget, Rule::Spill] {
        for (burst, threads) in [(1, &TWO[..]), (2, &TWO[..1])] {
            let found = Model::new(rule, burst).all(threads, |_| false);
            assert_eq!(found.duplicates, 0, "no key is in two slots under {rule:?}: {found:?}");
            assert_eq!(found.over, 0, "no key is admitted more than its room under {rule:?}: {found:?}");
        }
    }
}

/// Three threads on an empty bucket, on a full one, and on a bucket with one idle key and one key that owes.
// G7
#[test]
fn three_threads_from_some_starts() {
    let word = |key, ahead: i8| Slot { key, state: BEGINNING.wrapping_add_signed(ahead) & MASK };
    let beginnings = [
        [Slot::default(); 2],
        [word(2, 1), word(3, 1)],
        [word(3, 0), word(2, 1)],
        [word(2, -1), word(3, -6)],
    ];
    for rule in [Rule::Inherit, Rule::Forget, Rule::Spill] {
        let mut found = Found::default();
        for slots in beginnings {
            for keys in [[1, 1, 1], [1, 1, 2]] {
                Model::new(rule, 1).run(keys, slots, &mut found);
            }
        }
        assert_eq!(found.duplicates, 0, "no key is in two slots unless a retreat failed: {rule:?} {found:?}");
        assert_eq!(found.over, 0, "each failed retreat admits at most one more: {rule:?} {found:?}");
        assert!(found.most_raced < 3, "fewer retreats fail than there are threads: {rule:?} {found:?}");
        assert!(found.most_raced == 0 || rule != Rule::Inherit, "no retreat fails under Inherit: {found:?}");
    }
}

/// The controls: the models find each fault that the rules prevent.
// G7
#[test]
fn broken_rules_are_detected() {
    let both = |found: &Found| found.duplicates > 0 && found.over > 0;
    let first_idle = Model::new(Rule::FirstIdle, 1).all(&TWO, both);
    assert!(
        both(&first_idle),
        "the first idle slot: a key is in two slots and is admitted too much: {first_idle:?}"
    );
    let admits_more = |found: &Found| found.over > 0;
    for rule in [Rule::TakeFirst, Rule::Late] {
        let found = Model::new(rule, 1).all(&TWO, admits_more);
        assert!(admits_more(&found), "{rule:?} admits a key more than its room: {found:?}");
    }
}

/// The exception to the law that a key has one slot. If a word is half the range old, it is far behind for one thread,
/// and wraps around for a thread with a later time. So the threads rank it differently.
// G9
#[test]
fn wrapped_word_may_give_two_slots() {
    let old = Slot { key: 2, state: (BEGINNING + MASK / 2 + 1) & MASK };
    let mut found = Found::default();
    for slots in [[Slot::default(), old], [old, Slot::default()]] {
        Model::new(Rule::Inherit, 1).run([1, 1], slots, &mut found);
    }
    assert!(found.duplicates > 0, "{found:?}");
}
