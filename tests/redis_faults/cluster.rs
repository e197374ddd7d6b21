//! Nodes of a cluster that are killed.

use tollgate::redis::DecidedBy;

use crate::servers::Cluster;
use crate::subject::{LOCAL, POLICIES, SHARE, Subject};

/// Keys enough that each node holds some.
fn keys() -> Vec<String> {
    (0..60).map(|key| format!("key {key}")).collect()
}

fn ask_all(subject: &Subject) {
    for key in keys() {
        let _ = subject.check(&key);
    }
}

/// Without replicas a node's keys are decided by the policy, and the others' by their nodes as ever.
#[test]
fn a_node_that_is_down_takes_only_its_own_keys_along() {
    for policy in POLICIES {
        let Some(mut cluster) = Cluster::start() else { return };
        for node in &cluster.nodes {
            let _: redis::Value = node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        }
        let subjects = Subject::both_of_cluster(&cluster.urls(), policy);
        for subject in &subjects {
            subject.until_server();
            ask_all(subject);
        }
        cluster.nodes[0].kill();
        for subject in &subjects {
            // Until the breakers of the node's slots are open.
            for _ in 0..5 {
                ask_all(subject);
            }
            let by = |key: &String| (0..3).any(|_| subject.check(key).by() == DecidedBy::Server);
            let held = keys().iter().filter(|key| by(key)).count();
            // A third is gone, and what shares a breaker with it: two of sixteen.
            assert!((20..60).contains(&held), "{}: {held} of 60", subject.name());
            assert!(subject.health().is_partitioned());
            let tally = subject.check_times("key 0", 20);
            assert!(policy != LOCAL || tally.let_through <= SHARE);
        }
        cluster.nodes[0].restart();
    }
}

/// A replica takes over, and requests go to it.
#[test]
fn a_replica_takes_over() {
    let Some(mut cluster) = Cluster::start_with_replicas(1) else { return };
    let subjects = Subject::both_of_cluster(&cluster.urls(), LOCAL);
    for subject in &subjects {
        subject.until_server();
        ask_all(subject);
    }
    cluster.nodes[0].kill();
    for subject in &subjects {
        let began = std::time::Instant::now();
        let is_whole = || keys().iter().all(|key| subject.check(key).by() == DecidedBy::Server);
        while !is_whole() {
            assert!(began.elapsed().as_secs() < 60, "{}: {:?}", subject.name(), subject.health());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(!subject.health().is_partitioned());
    }
}
