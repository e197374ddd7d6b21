//! Nodes of a cluster are killed or hang.

use tollgate_redis::{DecidedBy, OnFailure};

use super::subject::{LIMIT, LOCAL, POLICIES, SHARE, Subject};
use crate::wait_until;
use tollgate_testing::redis::Cluster;

/// Returns enough keys for each node to hold some. The keys contain no character that needs an escape.
fn keys() -> Vec<String> {
    (0..60).map(|key| format!("key{key}")).collect()
}

/// Starts a cluster whose nodes keep answering while another node is down. Returns `None` without a Redis program.
fn in_parts() -> Option<Cluster> {
    let cluster = Cluster::start()?;
    for node in &cluster.nodes {
        let _: redis::Value = node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    Some(cluster)
}

/// Returns subjects that have called all nodes.
fn known(cluster: &Cluster, policy: OnFailure) -> [Subject; 2] {
    let subjects = Subject::both_of_cluster(&cluster.urls(), policy);
    for subject in &subjects {
        subject.until_server();
        ask_all(subject);
    }
    subjects
}

fn ask_all(subject: &Subject) {
    for key in keys() {
        let _ = subject.check(&key);
    }
}

/// Without replicas, the failure policy decides the keys of a killed node. The other nodes still decide their own keys.
// G84
#[test]
#[ignore = "several seconds unless optimised; .ci/run runs it"]
fn killed_node_affects_only_its_keys() {
    for policy in POLICIES {
        let Some(mut cluster) = in_parts() else { return };
        let subjects = known(&cluster, policy);
        cluster.nodes[0].kill();
        for subject in &subjects {
            // Five rounds open the breakers of the node's slots.
            for _ in 0..5 {
                ask_all(subject);
            }
            let by = |key: &String| (0..3).any(|_| subject.check(key).by() == DecidedBy::Server);
            let held = keys().iter().filter(|key| by(key)).count();
            let live = keys().iter().filter(|key| slot(&cluster, key) > 5_460).count();
            assert_eq!(held, live, "{}: the server decides every key of the live nodes", subject.name());
            subject.until_open();
            let tally = subject.check_times("key0", 20);
            assert!(policy != LOCAL || tally.let_through <= SHARE);
        }
        cluster.nodes[0].restart();
    }
}

/// Repeats checks until the server decides all keys.
fn until_server_decides_all_keys(subject: &Subject) {
    wait_until(&format!("the server decides for {}", subject.name()), || {
        keys().iter().all(|key| subject.check(key).by() == DecidedBy::Server)
    });
    assert!(!subject.health().is_partitioned());
}

fn slot(cluster: &Cluster, key: &str) -> u16 {
    cluster.nodes[2].command(&["CLUSTER", "KEYSLOT", &format!("{{faults|{key}}}")])
}

/// A node accepts connections and never replies. Clients that connected before and new clients both handle this.
#[test]
fn hung_node_affects_only_its_keys() {
    let Some(cluster) = in_parts() else { return };
    let others: Vec<_> = keys().into_iter().filter(|key| slot(&cluster, key) > 5_460).collect();
    let old = known(&cluster, LOCAL);
    cluster.nodes[0].pause();
    // The hung node is the first address in their list.
    let new = Subject::both_of_cluster(&cluster.urls(), LOCAL);
    for subject in old.iter().chain(&new) {
        for _ in 0..3 {
            ask_all(subject);
        }
        wait_until(&format!("other nodes decide for {}", subject.name()), || {
            // The subject also keeps checking the keys of the hung node.
            ask_all(subject);
            others.iter().filter(|key| subject.check(key).by() == DecidedBy::Server).count() == others.len()
        });
    }
    cluster.nodes[0].resume();
    old.iter().chain(&new).for_each(until_server_decides_all_keys);
}

/// A node hangs until its replica is promoted. When the node resumes, it still believes that it holds its slots.
#[test]
fn replica_replaces_hung_node() {
    let Some(cluster) = Cluster::start_with_replicas(1) else { return };
    let old = known(&cluster, LOCAL);
    cluster.nodes[0].pause();
    let new = Subject::both_of_cluster(&cluster.urls(), LOCAL);
    old.iter().chain(&new).for_each(until_server_decides_all_keys);
    cluster.nodes[0].resume();
    old.iter().chain(&new).for_each(until_server_decides_all_keys);
}

/// Clients follow slots that move between nodes, and each call is charged once.
#[test]
fn moved_slots_are_charged_once() {
    let Some(cluster) = Cluster::start() else { return };
    assert_moved_slots_are_charged_once(&cluster, &Subject::both_patient(&cluster.urls(), LOCAL));
}

pub(crate) fn assert_moved_slots_are_charged_once(cluster: &Cluster, subjects: &[Subject; 2]) {
    // These keys belong to the first of three nodes.
    let keys: Vec<_> = keys().into_iter().filter(|key| slot(cluster, key) <= 5_460).take(4).collect();
    let (from, to) = (&cluster.nodes[0], &cluster.nodes[1]);
    let [from_id, to_id] = [from, to].map(|node| node.command::<String>(&["CLUSTER", "MYID"]));
    for subject in subjects {
        subject.until_server();
    }
    for (at, key) in keys.iter().enumerate() {
        let subject = &subjects[at % 2];
        let slot = slot(cluster, key).to_string();
        let admitted = |times| {
            let tally = subject.check_times(key, times);
            assert_eq!(tally.by_policy, 0, "{}: {:?}", subject.name(), subject.health());
            tally.admitted
        };
        // ASK redirect: the node that holds the slot lacks the key, and sends the client to the importing node.
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]);
        let mut sum = admitted(3);
        assert_eq!(sum, 3);
        let moved: u64 = to.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
        assert_eq!(moved, 1, "the client followed the ASK redirect");
        // MOVED redirect: the slot now belongs to the other node.
        to.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        from.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &to_id]);
        sum += admitted(2 * LIMIT);
        assert_eq!(sum, LIMIT, "{}: no unit is lost or charged twice", subject.name());
    }
}
