//! Loom models of leases: two threads that spend, and a source or a clock, in every interleaving up to a bound on
//! preemptions.
//!
//! The assertion of each model states its law. A *control* is the same model with one wrong step, which the docs of
//! `striped` exclude. A control must fail, which shows that the model can detect the fault.

use super::word::{Gathered, exchange};
use super::*;
use crate::base::clock::Timestamp;
use crate::base::quota::Quota;
use crate::base::sync::{Arc, AtomicU64, Ordering, spawn};

#[cfg(tollgate_shuttle)]
mod many;

const LIFE: u64 = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
/// The time of the first leases, and a later time at which other leases are taken.
const T1: u64 = 1 << 40;
const T2: u64 = T1 + LIFE / 2;
/// The expiry of leases that were taken at `T1`.
const E1: u64 = T1 + LIFE;

fn model(run: impl Fn() + Sync + Send + 'static) {
    crate::base::sync::explore(3, run);
}

/// A source in one word. It grants the wanted units, or all that it has left.
struct Pot {
    left: AtomicU64,
    /// The units that it granted at the later time, `T2`.
    late: AtomicU64,
}

impl LeaseSource for Pot {
    fn limit(&self) -> u64 {
        1_000
    }

    fn lease(&self, request: &LeaseRequest) -> Result<Lease, Decision> {
        let mut left = self.left.load(Ordering::SeqCst);
        loop {
            if left < request.least {
                return Err(Decision::denied(request.least, 1_000, left, HOUR, request.now));
            }
            let units = left.min(request.wanted);
            match self.left.compare_exchange(left, left - units, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    let late = if request.now.as_nanos() == T2 { units } else { 0 };
                    self.late.fetch_add(late, Ordering::SeqCst);
                    return Ok(Lease::new(units, HOUR));
                }
                Err(now) => left = now,
            }
        }
    }
}

fn leases<P: LeaseSource>(source: P, stripes: usize) -> Leases<P> {
    let life = Duration::from_nanos(LIFE);
    Leases::new(source, &StripeOptions { stripes: Some(stripes), life, max_block: 8 })
}

fn leases_of_pot(units: u64, stripes: usize) -> Leases<Pot> {
    leases(Pot { left: AtomicU64::new(units), late: AtomicU64::new(0) }, stripes)
}

impl<P: LeaseSource> Leases<P> {
    /// Fills a stripe with `units` units that were taken at `taken_ns`. The next block has `1 << log2` units, or twice
    /// as many if it is requested in the first half of the life.
    fn fill(&self, stripe: usize, taken_ns: u64, log2: u32, units: u64) {
        let word = self.terms.layout.pack(self.terms.layout.expiry(taken_ns, LIFE), log2, units);
        self.words.stripes[stripe].store(word, Ordering::SeqCst);
    }

    fn check(&self, thread: usize, now_ns: u64, cost: u64) -> u64 {
        if self.check_on(thread, cost, Timestamp::from_nanos(now_ns)).is_allowed() { cost } else { 0 }
    }

    /// Spends all available units at `now_ns`, unit by unit.
    fn drain(&self, now_ns: u64) -> u64 {
        std::iter::from_fn(|| (self.check(0, now_ns, 1) > 0).then_some(1)).sum()
    }

    /// Charges the source. Returns the stripe's previous word and the granted units; for controls.
    fn charged(&self, home: usize, now_ns: u64, missing: u64, wanted: u64) -> (u64, Option<Gathered>) {
        let word = self.words.stripes[home].load(Ordering::SeqCst);
        let now = Timestamp::from_nanos(now_ns);
        let lease = self.source.lease(&LeaseRequest { least: missing, wanted, holders: 2, now });
        let hand = lease.map(|lease| Gathered {
            units: lease.units(),
            expiry: self.terms.layout.expiry(now_ns, lease.life_ns),
        });
        (word, hand.ok())
    }
}

/// Runs `first` and `second` in parallel, and returns the units that each of them spent.
fn both<P: Send + Sync + 'static>(
    leases: Leases<P>,
    first: impl FnOnce(&Leases<P>) -> u64 + Send + 'static,
    second: impl FnOnce(&Leases<P>) -> u64 + Send + 'static,
) -> (Arc<Leases<P>>, u64, u64) {
    let leases = Arc::new(leases);
    let (one, two) = crate::base::sync::both(&leases, first, second);
    (leases, one, two)
}

// G50
#[test]
fn two_stripes_spend_the_source_exactly() {
    model(|| {
        let parent = Direct::new(Gcra::new(Quota::new(8, HOUR)));
        let leases = leases(parent, 2);
        leases.fill(0, T1, 1, 0);
        leases.fill(1, T1, 1, 0);
        let (leases, a, b) = both(leases, |l| l.check(0, T1, 1) + l.check(0, T1, 2), |l| l.check(1, T1, 3));
        assert_eq!(a + b + leases.drain(T1), 8, "each charged unit can be spent exactly once");
    });
}

/// One thread gives units back, while the other thread leases a block and spends from it.
fn race_give_back_and_lease(give_back: fn(&Striped) -> u64) {
    let leases = leases(Direct::new(Gcra::new(Quota::new(8, HOUR))), 2);
    leases.fill(0, T1, 1, 0);
    leases.fill(1, T1, 1, 0);
    let spent = leases.check(0, T1, 1);
    let (leases, back, more) = both(leases, give_back, |l| l.check(1, T1, 1));
    assert!(back <= spent + more, "units that stripes hold do not come back");
    assert_eq!(spent + more + leases.drain(T1), 8 + back, "each other unit can be spent exactly once");
}

// G150
#[test]
fn give_back_leaves_held_units() {
    model(|| race_give_back_and_lease(|l| l.give_back(CheckTime::from_ns(T1), 8)));
}

/// Gives back all that the source was charged.
// G150
#[test]
#[should_panic(expected = "units that stripes hold do not come back")]
fn control_give_back_of_held_units() {
    model(|| {
        race_give_back_and_lease(|l| Store::<()>::give_back(&*l.source, (), CheckTime::from_ns(T1), 8));
    });
}

// G51
#[test]
fn one_of_two_calls_gets_a_unit() {
    model(|| {
        let leases = leases_of_pot(2, 2);
        leases.fill(0, T1, 3, 0);
        // The call that asks the source first gets both units, and holds them in its hand for a moment.
        let (leases, a, b) = both(leases, |l| l.check(0, T1, 1), |l| l.check(1, T1, 1));
        assert!(a + b >= 1, "at least one of two threads gets one of two units");
        assert_eq!(a + b + leases.drain(T1), 2, "a later check gets the other unit");
    });
}

/// One thread refills a stripe of one unit for a cost of two, while the other thread spends from it.
fn race_refill_and_spend(refill: fn(&Leases<Pot>) -> u64) {
    let leases = leases_of_pot(2, 1);
    leases.fill(0, T1, 0, 1);
    let (leases, a, b) = both(leases, refill, |l| l.check(0, T1, 1));
    let spent = a + b + leases.drain(T1);
    assert!(spent <= 3, "a refill spends no unit of the stripe twice: {spent} > 3");
    assert_eq!(spent, 3, "a refill loses no unit");
}

/// Spends two units from a stripe that holds at most one, and refills the stripe by a plain store.
fn refill_by_store(leases: &Leases<Pot>) -> u64 {
    let (word, hand) = leases.charged(0, T1, 1, 2);
    let Some(hand) = hand else { return 0 };
    let rest = leases.terms.layout.held(word, T1) + hand.units - 2;
    leases.words.stripes[0].store(leases.terms.layout.pack(hand.expiry, 0, rest), Ordering::SeqCst);
    2
}

#[test]
fn refill_and_spend_race() {
    model(|| race_refill_and_spend(|l| l.check(0, T1, 2)));
}

// G50
#[test]
#[should_panic(expected = "a refill spends no unit of the stripe twice")]
fn control_plain_store_refill_spends_twice() {
    model(|| race_refill_and_spend(refill_by_store));
}

/// One thread takes both units of another thread's stripe, while that thread spends one.
fn race_steal_and_spend(steal: fn(&Leases<Pot>) -> u64) {
    let leases = leases_of_pot(0, 2);
    leases.fill(1, T1, 0, 2);
    let (leases, a, b) = both(leases, steal, |l| l.check(1, T1, 1));
    assert!(a == 0 || b == 0, "only one of the two threads gets units");
    let spent = a + b + leases.drain(T1);
    assert!(spent <= 2, "a unit that is taken from a stripe is not spent there too: {spent} > 2");
    assert_eq!(spent, 2, "no unit is lost when one thread takes from another's stripe");
}

// G50
#[test]
fn steal_and_spend_race() {
    model(|| race_steal_and_spend(|l| l.check(0, T1, 2)));
}

// G50
#[test]
#[should_panic(expected = "only one of the two threads gets units")]
fn control_plain_store_steal_spends_twice() {
    model(|| {
        race_steal_and_spend(|l| {
            let word = l.words.stripes[1].load(Ordering::SeqCst);
            let held = l.terms.layout.held(word, T1);
            if held < 2 {
                return 0;
            }
            l.words.stripes[1].store(word - held, Ordering::SeqCst);
            2
        });
    });
}

// G51
#[test]
fn two_steals_lose_no_unit() {
    model(|| {
        let leases = leases_of_pot(0, 4);
        leases.fill(2, T1, 0, 1);
        leases.fill(3, T1, 0, 1);
        let (leases, a, b) = both(leases, |l| l.check(0, T1, 2), |l| l.check(1, T1, 2));
        assert!(a == 0 || b == 0, "only one of the two threads gets both units");
        assert_eq!(a + b + leases.drain(T1), 2, "units that are put back can be spent");
    });
}

// G50
#[test]
fn expired_lease_is_not_spent() {
    model(|| {
        let leases = leases_of_pot(0, 1);
        leases.fill(0, T1, 0, 2);
        let clock = Arc::new(AtomicU64::new(E1 - 1 - LIFE / 16));
        let ticker = spawn(&clock, |clock| clock.store(E1, Ordering::SeqCst));
        let (leases, a, _) = both(
            leases,
            move |l| {
                // Loom can switch threads at this clock reading.
                let now_ns = clock.load(Ordering::SeqCst);
                let spent = l.check(0, now_ns, 1);
                assert_eq!(
                    spent,
                    u64::from(now_ns < E1),
                    "a unit can be spent until it expires, and not later"
                );
                spent
            },
            |l| l.check(0, E1, 1),
        );
        ticker.join().unwrap();
        assert!(a <= 1);
        assert_eq!(leases.drain(E1), 0, "the remaining unit has expired");
    });
}

/// Two threads find their common stripe empty and refill it, one of them half a life later than the other.
fn race_refills_at_two_times(late: fn(&Leases<Pot>) -> u64) {
    let leases = leases_of_pot(6, 1);
    leases.fill(0, T1, 1, 0);
    let (leases, _, _) = both(leases, |l| l.check(0, T1, 1), late);
    // Counts only the units in stripes: the source has no more.
    leases.source.left.store(0, Ordering::SeqCst);
    let (spent, granted) = (leases.drain(E1), leases.source.late.load(Ordering::SeqCst));
    assert!(spent <= granted, "no unit is spent after its lease has expired: {spent} > {granted}");
}

// G50
#[test]
fn refill_does_not_extend_a_lease() {
    model(|| race_refills_at_two_times(|l| l.check(0, T2, 1)));
}

// G50
#[test]
#[should_panic(expected = "no unit is spent after its lease has expired")]
fn control_join_at_later_expiry_extends_lease() {
    model(|| {
        race_refills_at_two_times(|l| {
            let Some(hand) = l.charged(0, T2, 1, 2).1 else { return 0 };
            loop {
                let word = l.words.stripes[0].load(Ordering::SeqCst);
                let units = l.terms.layout.held(word, T2) + hand.units - 1;
                let expiry = l.terms.layout.expiry_of(word).max(hand.expiry);
                if exchange(&l.words.stripes[0], word, l.terms.layout.pack(expiry, 1, units)) {
                    return 1;
                }
            }
        });
    });
}

/// One thread takes units of two expiries from other stripes. One unit is missing, because another thread spends it.
fn race_put_back_of_two_expiries(steal: fn(&Leases<Pot>) -> u64) {
    let leases = leases_of_pot(0, 4);
    leases.fill(1, T1, 0, 1);
    leases.fill(2, T2, 0, 2);
    let (leases, a, b) = both(leases, steal, |l| l.check(2, T2, 1));
    assert!(a == 0 || b == 0, "only one of the two threads gets units");
    let (spent, later) = (leases.drain(E1), 2_u64.saturating_sub(a + b));
    assert!(spent <= later, "units that are put back keep the earlier expiry: {spent} > {later}");
}

#[test]
fn put_back_keeps_the_earlier_expiry() {
    model(|| race_put_back_of_two_expiries(|l| l.check(0, T2, 3)));
}

// G50
#[test]
#[should_panic(expected = "units that are put back keep the earlier expiry")]
fn control_put_back_at_later_expiry_extends_lease() {
    model(|| {
        race_put_back_of_two_expiries(|l| {
            let home = &l.words.stripes[0];
            if l.account().held_by_others(home, T2) < 3 {
                return 0;
            }
            let mut hand = Gathered::EMPTY;
            l.account().take_from_others(home, T2, 3, &mut hand);
            if hand.units == 3 {
                return 3;
            }
            hand.expiry = l.terms.layout.expiry(T2, LIFE);
            l.account().put_back(home, T2, hand);
            0
        });
    });
}

/// One thread draws the unit of a deposit slot, while the other thread deposits two units of the same expiry.
fn race_deposit_and_draw(deposit: fn(&Leases<Pot>) -> u64) {
    let leases = leases_of_pot(0, 1);
    assert_eq!(leases.account().deposit(Lease::new(1, HOUR), T1, T1), 1);
    let (leases, a, b) = both(leases, |l| l.check(0, T1, 1), deposit);
    assert_eq!((a, b), (1, 2), "the slot holds one unit, and has room for two more");
    let spent = a + leases.drain(T1);
    assert!(spent <= 3, "a deposit spends no unit of the slot twice: {spent} > 3");
    assert_eq!(spent, 3, "a deposit loses no unit");
}

// G53
#[test]
fn deposit_and_draw_race() {
    model(|| race_deposit_and_draw(|l| l.account().deposit(Lease::new(2, HOUR), T1, T1)));
}

// G53
#[test]
#[should_panic(expected = "a deposit spends no unit of the slot twice")]
fn control_overwriting_deposit_spends_twice() {
    model(|| {
        race_deposit_and_draw(|l| {
            let slots = l.words.deposits().slots(T1);
            let slot = slots.iter().find(|slot| slot.load(Ordering::SeqCst) > 0).unwrap_or(&slots[0]);
            let word = slot.load(Ordering::SeqCst);
            let units = l.terms.layout.held(word, T1) + 2;
            slot.swap(l.terms.layout.pack(l.terms.layout.expiry(T1, LIFE), 0, units), Ordering::SeqCst);
            2
        });
    });
}

// G53
#[test]
fn two_deposits_lose_no_unit() {
    model(|| {
        let deposit = |units| move |l: &Leases<Pot>| l.account().deposit(Lease::new(units, HOUR), T1, T1);
        let (leases, a, b) = both(leases_of_pot(0, 1), deposit(1), deposit(2));
        assert_eq!((a, b), (1, 2), "both deposits have room");
        assert_eq!(leases.drain(T1), 3, "all deposited units can be spent");
    });
}

/// The words of one key among many: one stripe, and deposits.
struct KeyLeases {
    pot: Pot,
    terms: Terms,
    words: Small,
}

impl KeyLeases {
    fn account(&self) -> Account<'_, Pot, Small> {
        Account { source: &self.pot, terms: &self.terms, words: &self.words }
    }

    fn spend(&self, cost: u64) -> u64 {
        if self.account().charge_on(0, T1, cost).0.is_allowed() { cost } else { 0 }
    }
}

/// One thread spends a key's units, another takes them out, and a third deposits.
fn race_take_all_and_spend(take: fn(&KeyLeases) -> u64) {
    let pot = Pot { left: AtomicU64::new(0), late: AtomicU64::new(0) };
    let of =
        KeyLeases { pot, terms: Terms::new(1_000, Duration::from_nanos(LIFE), 8), words: Small::default() };
    of.account().deposit(Lease::new(2, HOUR), T1, T1);
    assert_eq!(of.spend(1), 1, "the other unit is in the stripe or in the deposits");
    let of = Arc::new(of);
    let spender = spawn(&of, |of| of.spend(1));
    let depositor = spawn(&of, |of| of.account().deposit(Lease::new(1, HOUR), T1, T1));
    let taken = take(&of);
    let (spent, deposited) = (spender.join().unwrap(), depositor.join().unwrap());
    let left = of.account().held(T1);
    assert!(taken + spent + left <= 1 + deposited, "no unit is both given back and spent");
    assert_eq!(taken + spent + left, 2, "no unit is lost");
}

#[test]
fn taken_units_are_not_spent() {
    model(|| {
        race_take_all_and_spend(|of| {
            let mut taken = 0;
            of.account().take_all(T1, |units, _| taken += units);
            taken
        });
    });
}

#[test]
#[should_panic(expected = "no unit is both given back and spent")]
fn control_plain_store_take_returns_spent_units() {
    // A bound of two preemptions finds the fault.
    crate::base::sync::explore(2, || {
        race_take_all_and_spend(|of| {
            let places = of.words.all(T1);
            let take = |place: &AtomicU64| {
                let units = of.terms.layout.held(place.load(Ordering::SeqCst), T1);
                place.store(0, Ordering::SeqCst);
                units
            };
            places.map(take).sum()
        });
    });
}

/// Shows the known limit of denials: while one call holds both units in its hand, another call is denied.
// G51
#[test]
#[should_panic(expected = "both of two threads get one of two units")]
fn units_in_another_hand_are_not_seen() {
    model(|| {
        let leases = leases_of_pot(2, 2);
        leases.fill(0, T1, 3, 0);
        let (_, a, b) = both(leases, |l| l.check(0, T1, 1), |l| l.check(1, T1, 1));
        assert_eq!(a + b, 2, "both of two threads get one of two units");
    });
}
