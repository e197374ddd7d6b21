//! Calls of a client without a guard, about keys on a server, on a Cluster, and on two servers.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::sync::Arc;
use std::time::Duration;

use tollgate::{Block, Quota};
use tollgate_protocol::{Call, Place, Plan, Question, Scope, Transport};
use tollgate_redis::{InProcess, Limit};
use tollgate_testing::limits::all_kinds;
use tollgate_testing::redis::{Cluster, Server};

use crate::{client, client_of, in_tasks};

/// A call about the key `tag`, at the server's time.
fn call(tag: &str, plan: &Arc<Plan>, ask: Question) -> Call {
    let (tag, plan) = (tag.as_bytes().to_vec(), Arc::clone(plan));
    Call { tag, plan, ask, now: None, place: Place::default(), scope: Scope::Limits }
}

fn plan(limits: &[Limit]) -> Arc<Plan> {
    Arc::new(Plan::new(limits).unwrap())
}

// G85
#[tokio::test]
async fn lost_script_is_resent() {
    let Some(server) = Server::start() else { return };
    let client = client(&server);
    let plan = plan(&[Limit::gcra(Quota::per_day(10)), Limit::fixed_window(Quota::per_day(10))]);
    for left in (0..10).rev() {
        let reply = client.call(&call("{k}", &plan, Question::Check { cost: 1 })).await.unwrap();
        assert_eq!((reply.granted, plan.remaining(&reply)), (1, left));
        if left % 3 == 0 {
            server.command::<()>(&["SCRIPT", "FLUSH"]);
        }
    }
}

/// The client calls the node that holds a key's slot at once, and all keys of a call are in one slot.
// G75
#[tokio::test]
async fn cluster_answers_for_all_keys() {
    let Some(cluster) = Cluster::start() else { return };
    let plan = plan(&[Limit::gcra(Quota::per_day(2)), Limit::sliding_window(Quota::per_day(2))]);
    let client = client_of(&cluster);
    for key in 0..60 {
        let call = |ask| call(&format!("tollgate:v1:{{{key}}}"), &plan, ask);
        let check = Question::Check { cost: 1 };
        for (ask, units) in
            [(check, 1), (check, 1), (check, 0), (Question::Post { process: 1, epoch: 5, total: 1 }, 1)]
        {
            assert_eq!(client.call(&call(ask)).await.unwrap().granted, units, "{key}: {ask:?}");
        }
    }
    for node in &cluster.nodes {
        let errors: String = node.command(&["INFO", "errorstats"]);
        assert!(!errors.contains("MOVED"), "a call went to another node: {errors}");
    }
}

/// Two processes copy a key, one of them late: after the other has charged the copy, and after a refund of it.
async fn copy_late<T: Transport>(server: [&T; 2], limit: Limit) {
    let plan = plan(&[limit]);
    let name = format!("{:?}", limit.kind());
    let call = |ask| call(&format!("{{{name}}}"), &plan, ask);
    let peek = call(Question::Peek { cost: 0 });
    let [old, new] = server;
    let is_spacing = limit.most() == u64::MAX;
    let cost = if is_spacing { 1 } else { 6 };
    assert_eq!(old.call(&call(Question::Check { cost })).await.unwrap().granted, cost, "{name}");
    assert!(!new.has_states(&peek).await.unwrap(), "{name}");
    let (late, first) = (old.read_states(&peek).await.unwrap(), old.read_states(&peek).await.unwrap());
    new.write_states(&peek, &first).await.unwrap();
    assert!(new.has_states(&peek).await.unwrap(), "{name}");
    let left = plan.remaining(&new.call(&peek).await.unwrap());
    assert_eq!(left, if is_spacing { 0 } else { 4 }, "{name}");
    let charge = new.call(&call(Question::Check { cost: 3 })).await.unwrap();
    assert_eq!(charge.granted, if is_spacing { 0 } else { 3 }, "{name}");
    new.write_states(&peek, &late).await.unwrap();
    let left = plan.remaining(&new.call(&peek).await.unwrap());
    assert_eq!(left, u64::from(!is_spacing), "{name}: a late copy replaced or repeated a charge");
    // The refund removes all units, and the key expires at once. The state at the old server lives on.
    let back = new.call(&call(Question::Refund { units: 9, at_us: charge.now_us })).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let rest = plan.remaining(&new.call(&peek).await.unwrap());
    assert!(new.has_states(&peek).await.unwrap(), "{name}: after a refund of {}", back.granted);
    new.write_states(&peek, &late).await.unwrap();
    let left = plan.remaining(&new.call(&peek).await.unwrap());
    assert_eq!(left, rest, "{name}: refunded units are charged again");
}

// G97
#[tokio::test]
async fn late_copy_of_a_moved_key_changes_nothing() {
    let quota = Quota::per_day(10);
    // All but an adaptive start, which gives a new key fewer units.
    let limits = [
        &all_kinds(quota)[..12],
        &[Limit::gcra(quota).with_block(Block::of(Duration::from_secs(60))).unwrap()],
    ]
    .concat();
    let models = [InProcess::default(), InProcess::default()];
    let (Some(one), Some(two)) = (Server::start(), Server::start()) else { return };
    let clients = [&one, &two].map(client);
    in_tasks(limits.len(), |at| {
        let (models, clients, limit) = (models.clone(), clients.clone(), limits[at]);
        async move {
            copy_late(models.each_ref(), limit).await;
            copy_late(clients.each_ref(), limit).await;
        }
    })
    .await;
    let life: i64 = two.command(&["PTTL", "{Gcra}:cg0"]);
    assert!((1..86_400_000).contains(&life), "the mark of a copy expires");
    for key in two.command::<Vec<String>>(&["KEYS", "*"]) {
        let life: i64 = two.command(&["PTTL", &key]);
        assert!((1..4 * 86_400_000).contains(&life), "{key} lives for {life} ms");
    }
}
