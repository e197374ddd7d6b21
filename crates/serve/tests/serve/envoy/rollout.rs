//! Two replicas behind one gateway are replaced in turn, in the middle of a window: no request fails, none passes without an
//! answer, and both replicas together admit exactly what they would have admitted without the rollout.

use std::path::Path;

use tokio::task::spawn_blocking;

use super::changes::{HEALTH, TIMEOUT};
use super::process::{Program, Traffic, gateway};
use crate::client::block_on;
use crate::server::{FREE, Place, Server, limit};

/// The limit of each replica. The traffic before and during the rollout does not use it up.
const LIMIT: u64 = 4_000;

/// Starts a replica with a state of its own.
fn replica(rules: &Path, state: &Path, address: &str) -> Server {
    let flags = FREE.replace("--drain 0s", "--drain 10s").replacen("127.0.0.1:0", address, 1);
    Server::start_with(&[rules], &format!("{flags} --state {}", state.display()), &[])
}

// G143
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn rollout_of_two_replicas_keeps_the_limit_and_loses_no_request() {
    let Some(program) = Program::find() else { return };
    let place = Place::with(limit("", "key", LIMIT));
    let states = ["first", "second"].map(|name| place.path(name));
    let mut replicas = states.clone().map(|state| Some(replica(&place.rules(), &state, "127.0.0.1:0")));
    let addresses = replicas.each_ref().map(|server| server.as_ref().expect("it runs").address("grpc"));
    let envoy = program.start(&gateway(&addresses, TIMEOUT, HEALTH));
    block_on(async {
        let traffic = Traffic::start(envoy.address("open"), 4);
        traffic.wait_for(200).await;
        for (at, slot) in replicas.iter_mut().enumerate() {
            let mut old = slot.take().expect("a replica runs");
            let (rules, state, address) = (place.rules(), states[at].clone(), addresses[at].clone());
            let replaced = spawn_blocking(move || {
                old.signal("TERM");
                assert_eq!(old.wait(), 0, "{}", old.log());
                replica(&rules, &state, &address)
            });
            *slot = Some(replaced.await.unwrap());
            envoy.wait_for("cluster.tollgate.membership_healthy", 2).await;
            traffic.wait_for(200).await;
        }
        traffic.wait_until_all_have(429).await;
        let statuses = traffic.end().await;
        assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
        assert_eq!(statuses[&200], 2 * LIMIT, "{statuses:?}");
        envoy.assert_all_answered().await;
    });
    replicas.into_iter().flatten().for_each(Server::stop);
}
