//! Calls to the shared state: to a server that the tests start, and to the model of its script.

mod holds;
mod model;
mod names;
mod regions;
mod scripts;

use std::sync::Arc;

use std::cell::Cell;
use std::time::Duration;

use futures_util::FutureExt as _;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tollgate::{ManualClock, Timestamp};
use tollgate_redis::internals::{Call, LimitState, Place, Plan, Question, Reply, Scope, Transport};
use tollgate_redis::{Client, Error, InProcess, Limit};
use tollgate_testing::operations::config;
use tollgate_testing::redis::Server;

/// A client without a guard.
struct Direct(Client, tokio::runtime::Runtime);

impl Direct {
    fn new(client: Client) -> Self {
        Self(client, crate::one_thread())
    }

    fn of(server: &Server) -> Self {
        Self::new(crate::client(server))
    }

    #[allow(clippy::disallowed_methods, reason = "real servers take real time")]
    fn call(&self, call: &Call) -> Result<Reply, Error> {
        let answer = async { tokio::time::timeout(Duration::from_secs(20), self.0.call(call)).await };
        self.1.block_on(answer).expect("the server answers")
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

/// A model whose own clock is stopped. Each call passes the time.
fn stopped_model() -> InProcess {
    InProcess::new(ManualClock::default())
}

/// The model's reply.
fn modelled(model: &InProcess, call: &Call) -> Reply {
    model.call(call).now_or_never().expect("the model answers at once").unwrap()
}
