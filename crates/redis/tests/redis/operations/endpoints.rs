//! Clusters whose nodes announce host names, no addresses, or other addresses.

use std::time::Duration;

use super::newer;
use crate::faults::cluster::assert_moved_slots_are_charged_once;
use crate::faults::subject::{LOCAL, Subject};
use crate::{strict, wait_until};
use tollgate::Quota;
use tollgate_redis::{Client, DecidedBy, Limit, OnFailure};
use tollgate_testing::redis::{Cluster, Proxy};
use tollgate_testing::skipped::skip;

/// Sets an option of every node. Returns `None` if the servers are too old: before version 7, nodes do not announce
/// what changes while they run.
#[track_caller]
fn set(cluster: &Cluster, option: &str, value: impl Fn(usize) -> String) -> Option<()> {
    let info: String = cluster.nodes[0].command(&["INFO", "server"]);
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).expect("a version");
    if version.split('.').next().and_then(|major| major.parse::<u32>().ok()) < Some(7) {
        skip(&format!("server {version} does not announce {option} at once"));
        return None;
    }
    for (at, node) in cluster.nodes.iter().enumerate() {
        newer::<()>(node, &["CONFIG", "SET", option, &value(at)])?;
    }
    Some(())
}

/// Waits until every node sends a map whose nodes satisfy `is_so`: the host, if the map has one, and the port.
fn until_announced(cluster: &Cluster, is_so: impl Fn(Option<&str>, u16) -> bool) {
    type Node = (Option<String>, u16);
    for node in &cluster.nodes {
        wait_until("the node announces the addresses", || {
            let map: Vec<redis::Value> = node.command(&["CLUSTER", "SLOTS"]);
            let holder = |range: &redis::Value| -> Node {
                let redis::Value::Array(parts) = range else { panic!("{range:?}") };
                let redis::Value::Array(holder) = &parts[2] else { panic!("{range:?}") };
                redis::from_redis_value(redis::Value::Array(holder[..2].to_vec())).expect("a host and a port")
            };
            map.iter().map(holder).all(|(host, port)| is_so(host.as_deref(), port))
        });
    }
}

/// Asserts that a client that knows one node calls all nodes at addresses that begin with `host`, and no other address.
#[cfg(target_os = "linux")]
fn assert_called_at(cluster: &Cluster, seed: &str, host: &str) {
    let client = Client::cluster([seed]).expect("the address is valid").blocking();
    let builder = client.limiter("endpoints", Limit::gcra(Quota::per_hour(10)));
    let limiter = strict(builder, &[]).atomic().expect("a valid limit");
    for key in 0..50_u64 {
        // A node has a quarter of a second to send the map, which a busy machine may need.
        wait_until("the server decides", || limiter.check(&key).by() == DecidedBy::Server);
    }
    for node in &cluster.nodes {
        let list: String = node.command(&["CLIENT", "LIST", "TYPE", "normal"]);
        // The limiters of this crate are the only clients that call a script.
        let ours: Vec<_> = list.lines().filter(|line| line.contains("cmd=eval")).collect();
        assert!(!ours.is_empty(), "{list}");
        for line in ours {
            assert!(line.contains(&format!(" laddr={host}:")), "{line}");
        }
    }
}

/// Asserts that clients follow the redirections of the nodes.
fn assert_redirects(cluster: &Cluster) {
    assert_moved_slots_are_charged_once(cluster, &Subject::both_patient(&cluster.urls(), LOCAL));
}

/// The nodes listen at two addresses, as behind a translation of addresses. Clients first use one of them.
#[cfg(target_os = "linux")]
fn at_two_addresses() -> Option<Cluster> {
    Cluster::start_with(&["--bind", "127.0.0.1", "127.0.0.2"], 0)
}

#[cfg(target_os = "linux")]
fn seed(cluster: &Cluster, host: &str) -> String {
    format!("redis://{host}:{}/", cluster.nodes[0].port())
}

#[cfg(target_os = "linux")]
#[test]
fn cluster_with_announced_ip_is_called_there() {
    let Some(cluster) = at_two_addresses() else { return };
    let Some(()) = set(&cluster, "cluster-announce-ip", |_| "127.0.0.2".to_owned()) else { return };
    until_announced(&cluster, |host, _| host == Some("127.0.0.2"));
    // The seed at 127.0.0.1 only sends the map.
    assert_called_at(&cluster, &seed(&cluster, "127.0.0.1"), "127.0.0.2");
    assert_redirects(&cluster);
}

/// The nodes announce no host. The client uses the host through which it reached the node that sent the map.
#[cfg(target_os = "linux")]
#[test]
fn cluster_with_unknown_endpoint_is_called_at_seed_host() {
    let Some(cluster) = at_two_addresses() else { return };
    let unknown = |_| "unknown-endpoint".to_owned();
    let Some(()) = set(&cluster, "cluster-preferred-endpoint-type", unknown) else { return };
    until_announced(&cluster, |host, _| host.is_none());
    assert_called_at(&cluster, &seed(&cluster, "127.0.0.2"), "127.0.0.2");
    assert_redirects(&cluster);
}

#[test]
fn cluster_with_host_names_decides_and_redirects() {
    let Some(cluster) = Cluster::start() else { return };
    let by_name = |_| "hostname".to_owned();
    let Some(()) = set(&cluster, "cluster-preferred-endpoint-type", by_name) else { return };
    // Nodes without a name send `?`.
    until_announced(&cluster, |host, _| host == Some("?"));
    assert_redirects(&cluster);
    let cluster = Cluster::start().expect("a second cluster starts");
    let Some(()) = set(&cluster, "cluster-preferred-endpoint-type", by_name) else { return };
    let Some(()) = set(&cluster, "cluster-announce-hostname", |_| "localhost".to_owned()) else { return };
    until_announced(&cluster, |host, _| host == Some("localhost"));
    assert_redirects(&cluster);
}

/// The nodes announce the ports of proxies.
#[test]
fn cluster_with_announced_ports_is_called_there() {
    let Some(cluster) = Cluster::start() else { return };
    let proxies: Vec<_> = cluster.nodes.iter().map(|node| Proxy::start(node.port())).collect();
    let Some(()) = set(&cluster, "cluster-announce-port", |at| proxies[at].port().to_string()) else {
        return;
    };
    until_announced(&cluster, |_, port| proxies.iter().any(|proxy| proxy.port() == port));
    let client = Client::cluster([&*cluster.nodes[0].url()]).expect("the address is valid").blocking();
    let builder = client.limiter("ports", Limit::gcra(Quota::per_hour(10))).timeout(Duration::from_secs(2));
    let limiter = builder.on_failure(OnFailure::Closed).atomic().expect("a valid limit");
    let by_server = || (0..50_u64).filter(|key| limiter.check(key).by() == DecidedBy::Server).count();
    wait_until("the servers decide all keys", || by_server() == 50);
    // The seed itself holds slots too. The client calls it at the announced port only.
    proxies.iter().for_each(|proxy| proxy.refuse(true));
    assert_eq!(by_server(), 0, "{:?}", limiter.health());
    proxies.iter().for_each(|proxy| proxy.refuse(false));
    assert_redirects(&cluster);
}
