//! The script of holds and its model give the same reply to every call: with one limit, several or none, after holds, commits,
//! releases and renewals in any order, at times that also step back. Every key that is written expires.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::Quota;
use tollgate::holds::HoldId;
use tollgate_protocol::{MOST_HELD, MOST_HOLDS, identity_of};
use tollgate_testing::limits::all_kinds;

use super::*;

const START_US: u64 = 1_700_000_000_000_000;

fn hold_call(tag: &str, plan: &Arc<Plan>, most_units: u64, ask: Question, now_us: u64) -> Call {
    Call { scope: Scope::Holds { most_units }, ..call(tag, plan, ask, Some(now_us)) }
}

/// A question whose hold is chosen among those that were taken.
#[derive(Copy, Clone, Debug)]
enum Asked {
    Plain(Question),
    /// A hold of this many units, for this many microseconds.
    Hold(u64, u64),
    Commit(usize, u64),
    Release(usize),
    /// A release of a hold whose end is not known.
    Withdraw(usize),
    Renew(usize, u64),
    /// A hold that was never taken.
    Unknown(u64),
}

fn steps() -> impl Strategy<Value = Vec<(i64, Asked)>> {
    let time = prop_oneof![
        6 => Just(0_i64),
        4 => 0_i64..3,
        4 => 0_i64..3_000_000,
        1 => 0_i64..1 << 45,
        1 => -2_000_000_i64..0,
        1 => -(1_i64 << 45)..0,
    ];
    let units = || prop_oneof![10 => 0_u64..6, 4 => 0_u64..40, 1 => select(vec![u64::MAX, 1 << 53, 1 << 51])];
    let life = || prop_oneof![4 => 0_u64..4, 4 => 0_u64..4_000_000, 1 => select(vec![u64::MAX, 1 << 50])];
    let ask = prop_oneof![
        4 => units().prop_map(|cost| Asked::Plain(Question::Check { cost })),
        2 => units().prop_map(|cost| Asked::Plain(Question::Peek { cost })),
        8 => (units(), life()).prop_map(|(units, life)| Asked::Hold(units, life)),
        4 => (any::<usize>(), units()).prop_map(|(which, units)| Asked::Commit(which, units)),
        3 => any::<usize>().prop_map(Asked::Release),
        1 => any::<usize>().prop_map(Asked::Withdraw),
        2 => (any::<usize>(), life()).prop_map(|(which, life)| Asked::Renew(which, life)),
        1 => units().prop_map(Asked::Unknown),
    ];
    prop::collection::vec((time, ask), 1..50)
}

/// Limits whose units can be held.
fn plans() -> impl Strategy<Value = (Arc<Plan>, u64)> {
    let quota = (1_u64..30, select(vec![1_000_u64, 1_000_000, 60_000_000]), 1_u64..30)
        .prop_map(|(limit, us, burst)| Quota::new(limit, Duration::from_micros(us)).burst(burst));
    let limit = (0_usize..10, quota).prop_map(|(kind, quota)| all_kinds(quota)[kind]);
    prop_oneof![
        1 => (0_u64..40).prop_map(|most| (plan(&[]), most)),
        3 => prop::collection::vec(limit, 1..=2).prop_map(|limits| (plan(&limits), MOST_HELD)),
    ]
}

/// The hold with this identity that ends at this time.
fn hold_until(end_us: u64, identity: u128) -> HoldId {
    HoldId::new(end_us * 1_000, identity)
}

/// A hold, by its end and its identity.
fn chosen(taken: &[(u64, u128)], which: usize) -> (u64, u128) {
    if taken.is_empty() { (START_US, 1) } else { taken[which % taken.len()] }
}

struct Both<'s> {
    client: &'s Direct,
    model: Model,
}

impl Both<'_> {
    /// Returns the server's reply, which is the model's reply.
    fn ask(&self, call: &Call) -> Result<Reply, TestCaseError> {
        let theirs = self.client.call(call).map_err(|error| TestCaseError::fail(error.to_string()))?;
        let ours = self.model.call(call);
        prop_assert_eq!(&theirs, &ours, "{:?} at {:?}", call.ask, call.now);
        Ok(theirs)
    }

    fn run(
        &self,
        tag: &str,
        plan: &Arc<Plan>,
        most: u64,
        steps: &[(i64, Asked)],
    ) -> Result<(), TestCaseError> {
        let (mut now_us, mut taken) = (START_US, Vec::new());
        let hold = |(end_us, identity)| hold_until(end_us, identity);
        for (identity, &(by_us, asked)) in (1..).zip(steps) {
            now_us = now_us.saturating_add_signed(by_us);
            let ask = match asked {
                Asked::Plain(ask) => ask,
                Asked::Hold(units, life_us) => {
                    Question::Hold { units, life_us, identity: identity_of(identity, units) }
                }
                Asked::Commit(which, units) => Question::Commit { hold: hold(chosen(&taken, which)), units },
                Asked::Release(which) => Question::Release { hold: hold(chosen(&taken, which)) },
                Asked::Withdraw(which) => Question::Release { hold: hold((0, chosen(&taken, which).1)) },
                Asked::Renew(which, life_us) => {
                    Question::Renew { hold: hold(chosen(&taken, which)), life_us }
                }
                Asked::Unknown(units) => Question::Commit { hold: hold((0, 0)), units },
            };
            let reply = self.ask(&hold_call(tag, plan, most, ask, now_us))?;
            let end_us = |life_us: u64| now_us.saturating_add(life_us).min((1 << 53) - 1);
            match ask {
                Question::Hold { life_us, identity, .. } if reply.done => {
                    taken.push((end_us(life_us), identity));
                }
                Question::Renew { .. } if reply.done => {
                    let Asked::Renew(which, life_us) = asked else { continue };
                    taken.push((end_us(life_us), chosen(&taken, which).1));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

// G137
#[test]
fn script_of_holds_and_model_agree() {
    let Some(server) = Server::start() else { return };
    let client = Direct::of(&server);
    let keys = run_cases(&server, 600, 0x401D, (plans(), steps()), |tag, ((plan, most), steps)| {
        Both { client: &client, model: Model::default() }.run(tag, &plan, most, &steps)
    });
    assert!(keys.iter().any(|key| key.ends_with(":h")) && keys.iter().any(|key| key.ends_with(":n")));
}

/// A key has a bounded number of holds, and one step removes all of them when they have ended.
// G136
#[test]
fn full_key_empties_in_one_step() {
    let Some(server) = Server::start() else { return };
    let both = Both { client: &Direct::of(&server), model: Model::default() };
    let plan = plan(&[]);
    let hold = |identity: u64| {
        let ask = Question::Hold { units: 1, life_us: 1_000_000, identity: identity_of(identity.into(), 1) };
        both.ask(&hold_call("{full}", &plan, MOST_HELD, ask, START_US + identity)).unwrap()
    };
    for identity in 0..MOST_HOLDS {
        assert!(hold(identity).done);
    }
    let full = hold(MOST_HOLDS);
    let first_ns = (START_US + 1_000_000) * 1_000;
    let seen = (full.done, full.held.units, full.held.ends_ns.map(|(first, _)| first));
    assert_eq!(seen, (false, MOST_HOLDS.into(), Some(first_ns)));
    // All but the last have ended.
    let began = std::time::Instant::now();
    let after = hold(MOST_HOLDS + 1_000_000 - 2);
    println!("{} holds ended in one step of {:?}", MOST_HOLDS - 1, began.elapsed());
    assert_eq!((after.done, after.held.units), (true, 2));
}

/// A call in the server's log: its number, its time, the microseconds that it took, its arguments, and its client.
type Logged = (u64, u64, u64, Vec<redis::Value>, String, String);

/// A withdrawal does not search the holds of the key: it takes O(log holds), as every other step does.
#[test]
fn withdrawal_does_not_search_all_holds() {
    let Some(server) = Server::start() else { return };
    let (client, plan) = (Direct::of(&server), plan(&[]));
    let ask = |ask: Question| client.call(&hold_call("{full}", &plan, MOST_HELD, ask, START_US)).unwrap();
    for identity in 0..u128::from(MOST_HOLDS) {
        let life_us = 1_000_000 + u64::try_from(identity).unwrap();
        assert!(ask(Question::Hold { units: 1, life_us, identity: identity_of(identity, 1) }).done);
    }
    let set = ["CONFIG", "SET", "slowlog-log-slower-than", "0", "slowlog-max-len", "1000"];
    let () = server.command(&set);
    // The shortest of many steps says how much work a step is. A longer one may include the work of other processes.
    let least_us = |hold: HoldId| {
        let () = server.command(&["SLOWLOG", "RESET"]);
        for _ in 0..100 {
            assert!(!ask(Question::Release { hold }).done);
        }
        let log: Vec<Logged> = server.command(&["SLOWLOG", "GET", "1000"]);
        let script = redis::Value::BulkString(b"EVALSHA".to_vec());
        let of_scripts = log.iter().filter(|call| call.3.first() == Some(&script)).map(|call| call.2);
        of_scripts.min().expect("the server logs the calls")
    };
    let identity = u128::MAX;
    let known = least_us(hold_until(START_US + 1_000_000, identity));
    let unknown = least_us(hold_until(0, identity));
    assert!(unknown < 5 * known, "{unknown} µs for a withdrawal, {known} µs for a release");
}

/// Each hold that has ended is left out once. A peek does not search it again and again.
#[test]
fn peeks_do_not_search_ended_holds_again() {
    let Some(server) = Server::start() else { return };
    let (client, plan) = (Direct::of(&server), plan(&[]));
    let ask = |ask: Question, now_us: u64| {
        client.call(&hold_call("{full}", &plan, MOST_HELD, ask, now_us)).unwrap()
    };
    for identity in 0..u128::from(MOST_HOLDS) {
        let life_us = if identity == 0 { 600_000_000 } else { 1_000_000 };
        let identity = identity_of(identity, 1);
        assert!(ask(Question::Hold { units: 1, life_us, identity }, START_US).done);
    }
    let keys: Vec<String> = server.command(&["KEYS", "*"]);
    let members = || server.command::<u64>(&["ZCARD", &keys[0]]);
    assert_eq!((keys.len(), members()), (1, MOST_HOLDS + 1), "all holds, and their sum");
    let () = server.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..100 {
        assert_eq!(ask(Question::Peek { cost: 0 }, START_US + 2_000_000).held.units, 1);
        assert_eq!(members(), 2, "only the hold that has not ended is searched again");
    }
    let stats: String = server.command(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_zremrangebyscore:calls=1,"), "ended holds are removed once: {stats}");
}
