//! Calls to the shared state: to the scripts on a server that the tests start, and to the model of that server.

mod holds;
mod model;
mod names;
mod region_scripts;
mod regions;
mod scripts;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tollgate::{Limit, Timestamp};
use tollgate_protocol::script::{self, By};
use tollgate_protocol::{Call, Error, LimitStanding, Place, Plan, Question, Reply, Scope, ServerModel};
use tollgate_testing::operations::config;
use tollgate_testing::redis::Server;

/// A connection to a server. It sends each call at once.
struct Direct(RefCell<redis::Connection>);

impl Direct {
    fn of(server: &Server) -> Self {
        Self(RefCell::new(server.connection()))
    }

    fn call(&self, call: &Call) -> Result<Reply, Error> {
        let ask = |by| script::command(call, by).query(&mut *self.0.borrow_mut());
        let answer = match ask(By::Hash) {
            Err(error) if script::is_unknown(&error) => ask(By::Text),
            answer => answer,
        };
        script::reply(call, &answer.map_err(|error| script::failure(&error))?)
    }
}

fn redis_keys(connection: &mut redis::Connection) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(connection).unwrap()
}

/// Runs each case with its own tag of keys. Asserts that each key on the server expires, and returns the keys.
fn run_cases<S: Strategy>(
    server: &Server,
    cases: u32,
    seed: u64,
    strategy: S,
    run: impl Fn(&str, S::Value) -> Result<(), TestCaseError>,
) -> Vec<String> {
    let case = Cell::new(0);
    TestRunner::new(Config { rng_seed: RngSeed::Fixed(seed), ..config(cases) })
        .run(&strategy, |values| {
            case.set(case.get() + 1);
            run(&format!("{{{}}}", case.get()), values)
        })
        .unwrap();
    // Most keys have expired by now. Every other key has an expiry time.
    let mut connection = server.connection();
    let keys = redis_keys(&mut connection);
    for key in &keys {
        let left: i64 = redis::cmd("PTTL").arg(key).query(&mut connection).unwrap();
        assert_ne!(left, -1, "{key} never expires");
    }
    keys
}

/// A call about the key `tag`. Without a time, the server's time decides.
fn call(tag: &str, plan: &Arc<Plan>, ask: Question, now_us: Option<u64>) -> Call {
    let now = now_us.map(|now_us| Timestamp::from_nanos(now_us.saturating_mul(1_000)));
    let (tag, plan) = (tag.as_bytes().to_vec(), Arc::clone(plan));
    Call { tag, plan, ask, now, place: Place::default(), scope: Scope::Limits }
}

fn plan(limits: &[Limit]) -> Arc<Plan> {
    Arc::new(Plan::new(limits).unwrap())
}

/// A server in Rust. Each call passes the time.
#[derive(Default)]
struct Model(RefCell<ServerModel>);

impl Model {
    fn call(&self, call: &Call) -> Reply {
        self.0.borrow_mut().answer(call, 0)
    }
}
