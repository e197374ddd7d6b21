//! Keys that are spread over several servers.

mod at_once;
mod moved;
mod owners;
mod routing;
mod servers;

use tollgate_redis::{InProcess, Shard};

/// Names servers `a`, `b`, … with weight 1.
fn named<T: Clone>(servers: &[T]) -> Vec<Shard<T>> {
    ["a", "b", "c", "d"].iter().zip(servers).map(|(name, server)| Shard::new(name, server.clone())).collect()
}

/// One client of these servers in this process.
fn set(servers: &[InProcess]) -> InProcess {
    InProcess::sharded(named(servers)).expect("the set is valid")
}
