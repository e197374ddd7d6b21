//! Calls to the shared state: to a server that the tests start, and to the model of its script.

mod holds;
mod model;
mod names;
mod regions;
mod scripts;

use std::sync::Arc;

use futures_util::FutureExt as _;
use tollgate::{ManualClock, Timestamp};
use tollgate_redis::internals::{Call, LimitState, Place, Plan, Question, Reply, Scope, Transport};
use tollgate_redis::{InProcess, Limit};

/// A call about the key `tag`. Without a time, the server's time decides.
fn call(tag: &str, plan: &Arc<Plan>, ask: Question, now_us: Option<u64>) -> Call {
    let now = now_us.map(|now_us| Timestamp::from_nanos(now_us.saturating_mul(1_000)));
    Call {
        tag: tag.as_bytes().to_vec(),
        plan: Arc::clone(plan),
        ask,
        now,
        place: Place::default(),
        scope: Scope::Limits,
    }
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
