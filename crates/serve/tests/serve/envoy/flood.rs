//! Clients that send a new value with each request.

use super::process::{Caller, Program, gateway};
use crate::client::block_on;
use crate::server::{Place, limit};

/// The growth of a server that keeps no value. A server that keeps all values grows at least twice as much.
const MOST_BYTES: u64 = 8 << 20;
const VALUE_BYTES: usize = 16_000;

async fn ask(gateway: &str, values: std::ops::Range<u64>) {
    let clients = (0..8).map(|client| {
        let values = values.clone().filter(move |value| value % 8 == client);
        async move {
            let mut caller = Caller::connect(gateway).await;
            for value in values {
                assert_eq!(caller.status(&format!("{value:0VALUE_BYTES$}")).await, 200, "{value}");
            }
        }
    });
    futures_util::future::join_all(clients).await;
}

fn flood(values: u64) {
    let Some(program) = Program::find() else { return };
    let place = Place::with(limit("", "key", 1));
    let server = place.start("");
    let envoy = program.start(&gateway(&[server.address("grpc")], "10s", ""));
    block_on(async {
        let front = envoy.address("open");
        ask(front, 0..500).await;
        let before = server.resident_bytes();
        ask(front, 500..values).await;
        let growth = server.resident_bytes().saturating_sub(before);
        assert!(growth < MOST_BYTES, "{growth} bytes");
        // A value that came before is still counted, although it is long.
        let mut caller = Caller::connect(front).await;
        assert_eq!(caller.status(&format!("{:0VALUE_BYTES$}", values - 1)).await, 429);
        envoy.assert_all_answered().await;
    });
}

// G114
#[test]
fn flood_of_new_values_keeps_memory() {
    flood(1_500);
}

// G114
#[test]
#[ignore = "takes a minute; ci/release.sh runs it"]
fn long_flood_of_new_values_keeps_memory() {
    flood(15_000);
}
