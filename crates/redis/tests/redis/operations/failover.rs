//! What limits lose when a replica of a Cluster takes over while limits are in use.

use std::time::{Duration, Instant};

use crate::{client_of, strict, wait_until};
use tollgate::Quota;
use tollgate_redis::{Blocking, Client, DecidedBy, Limit, LimiterBuilder};
use tollgate_testing::redis::{Cluster, NO_END, Server};

const LIMIT: u64 = 10;

/// Returns a limiter's builder. Only the server admits anything, and a call waits for its answer: one that comes too late was counted.
fn builder(cluster: &Cluster) -> LimiterBuilder<Blocking<Client>> {
    let limit = Limit::fixed_window(Quota::new(LIMIT, NO_END));
    strict(client_of(cluster).blocking().limiter("failover", limit), &[])
}

/// Returns a key that the first node holds, and that node's replica.
fn key_and_replica(cluster: &Cluster) -> (String, &Server) {
    let slot = |key: &String| -> u16 {
        cluster.nodes[0].command(&["CLUSTER", "KEYSLOT", &format!("{{failover|{key}}}")])
    };
    let key = (0..).map(|number| format!("key{number}")).find(|key| slot(key) <= 5_460).unwrap();
    let of_first = format!("master_port:{}\r", cluster.nodes[0].port());
    let is_replica = |node: &&Server| node.command::<String>(&["INFO", "replication"]).contains(&of_first);
    let replica = cluster.nodes.iter().find(is_replica).expect("the first node has a replica");
    (key, replica)
}

/// Kills the first node after its replica has lost the connection to it: the replica has no later write.
fn lose_writes(cluster: &Cluster, replica: &Server, writes: impl FnOnce()) {
    replica.pause();
    cluster.nodes[0].command::<u64>(&["CLIENT", "KILL", "TYPE", "replica"]);
    writes();
    cluster.nodes[0].stop_process();
    replica.resume();
}

/// Checks a key until the server denies it. Returns the admitted units.
fn admitted_until_denied(cluster: &Cluster, key: &str) -> u64 {
    let limiter = builder(cluster).atomic().unwrap();
    let mut admitted = 0;
    wait_until("the server denies", || {
        let answer = limiter.check(key);
        admitted += u64::from(answer.is_allowed());
        answer.is_denied() && answer.by() == DecidedBy::Server
    });
    admitted
}

#[test]
fn planned_failover_loses_no_charge() {
    let Some(cluster) = Cluster::start_with_replicas(1) else { return };
    let (key, replica) = key_and_replica(&cluster);
    let limiter = builder(&cluster).atomic().unwrap();
    for _ in 0..LIMIT / 2 {
        assert!(limiter.check(&key).is_allowed());
    }
    let mut asked: Option<Instant> = None;
    wait_until("the replica is the master", || {
        // A replica on a busy machine gives up after five seconds, without a word.
        if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
            replica.command::<()>(&["CLUSTER", "FAILOVER"]);
            asked = Some(Instant::now());
        }
        // Calls that fail meanwhile may have charged a unit, and admit none.
        replica.command::<String>(&["INFO", "replication"]).contains("role:master")
    });
    assert_eq!(admitted_until_denied(&cluster, &key), LIMIT / 2);
}

/// The replica has none of the charges: the client gets the limit a second time, and no more.
#[test]
fn unplanned_failover_admits_at_most_one_more_limit() {
    let Some(cluster) = Cluster::start_with_replicas(1) else { return };
    let (key, replica) = key_and_replica(&cluster);
    lose_writes(&cluster, replica, || assert_eq!(admitted_until_denied(&cluster, &key), LIMIT));
    assert_eq!(admitted_until_denied(&cluster, &key), LIMIT);
}

/// A process posts its total of the window, so its next post also restores what the replica lacks.
#[test]
fn write_back_restores_lost_charges_with_next_post() {
    let Some(cluster) = Cluster::start_with_replicas(1) else { return };
    let (key, replica) = key_and_replica(&cluster);
    let limiter = builder(&cluster).write_back().interval(Duration::from_secs(3_600)).build().unwrap();
    let charge_and_post = |units: u64| {
        let mut left = units;
        wait_until("all units are charged", || {
            left -= u64::from(limiter.block_on(|l| l.check_async(&key)).is_allowed());
            left == 0
        });
        wait_until("all units are posted", || limiter.block_on(|l| l.flush()) == 0);
    };
    lose_writes(&cluster, replica, || charge_and_post(6));
    charge_and_post(1);
    assert_eq!(admitted_until_denied(&cluster, &key), LIMIT - 7);
}
