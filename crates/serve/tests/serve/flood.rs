//! A flood of new values. A client controls values, so they must not make the process grow.

use futures_util::future::join_all;

use crate::client::{Grpc, LIMIT, new_values};
use crate::server::Place;

const STORES: &str = "
domain: rl
tollgate: {}
descriptors:
  - key: compact
    rate_limit: { unit: year, every: 70, requests_per_unit: 2 }
  - key: keyed
    rate_limit: { unit: year, every: 70, requests_per_unit: 2, store: keyed, max_keys: 20000 }
  - key: sketch
    rate_limit: { unit: year, every: 70, requests_per_unit: 2, store: sketch }
";

/// The values of the flood. Every store is full after the first half: the largest has room for some 130,000.
const VALUES: u64 = 400_000;
const CONNECTIONS: u64 = 4;
const CALLS: u64 = 16;
/// The second half may exceed the first by this amount, because the allocator returns memory late.
const SLACK: u64 = 4 << 20;

// G114
#[test]
#[ignore = "takes a minute; ci/release.sh runs it"]
fn flood_of_new_values_keeps_memory_flat() {
    Place::with(STORES).serve("", async |server| {
        let start = server.resident_bytes();
        let (mut halves, mut number) = ([0; 2], 0);
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Grpc::connect(&server.address("grpc")).await);
        }
        while number < VALUES {
            let first = number;
            number += CONNECTIONS * CALLS;
            let calls = (first..number).map(|number| {
                let mut grpc = connections[usize::try_from(number % CONNECTIONS).unwrap()].clone();
                async move { grpc.ok(LIMIT, &new_values(number)).await }
            });
            for answer in join_all(calls).await {
                // Three statuses, and a code in front of them.
                assert!(answer.len() > 10, "{answer:?}");
            }
            let half = &mut halves[usize::from(number > VALUES / 2)];
            *half = server.resident_bytes().max(*half);
        }
        let [warm, later] = halves;
        println!(
            "{number} new values in each store: {start} bytes at the start, then at most {warm}, then at most {later}"
        );
        assert!(later <= warm + SLACK, "from {warm} to {later} bytes");
    });
}
