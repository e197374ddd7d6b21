//! Reloads, drains and new certificates under load: no request fails, and none passes without an answer.

use std::collections::BTreeMap;

use tokio::task::spawn_blocking;

use super::process::{Program, Traffic, gateway};
use crate::client::{block_on, stat, wait_for_stat};
use crate::server::{Place, limit};
use crate::tls::{Authority, TLS, dns, install, wait_for};

/// Longer than any pause of a busy machine: these tests are about lost requests, not about time.
pub(super) const TIMEOUT: &str = "10s";

/// Health checks of the servers.
pub(super) const HEALTH: &str = "
      health_checks:
        - timeout: 5s
          interval: 0.1s
          no_traffic_interval: 0.1s
          unhealthy_threshold: 1
          healthy_threshold: 1
          grpc_health_check: { service_name: ratelimit }";

fn assert_admitted(statuses: &BTreeMap<u16, u64>) {
    assert!(statuses.keys().all(|&status| status == 200), "{statuses:?}");
}

// G111
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn reload_and_drain_lose_no_request() {
    let Some(program) = Program::find() else { return };
    let place = Place::with(limit("", "key", 1_000_000));
    let mut first = place.start("--drain 10s");
    let second = place.start("");
    let envoy = program.start(&gateway(&[first.address("grpc"), second.address("grpc")], TIMEOUT, HEALTH));
    block_on(async {
        let traffic = Traffic::start(envoy.address("open"), 4);
        traffic.wait_for(200).await;
        let asked = "tollgate_service_requests_total{method=\"ShouldRateLimit\"}";
        for round in 1..=3 {
            place.write("limits.yaml", limit("", "key", 1_000_000 + round));
            for server in [&first, &second] {
                let loads = "tollgate_reload_total{result=\"success\"}";
                wait_for_stat(&server.address("debug"), loads, round + 1).await;
            }
            traffic.wait_for(100).await;
        }
        assert!(stat(&first.address("debug"), asked).await > 0);
        first.signal("TERM");
        let code = spawn_blocking(move || first.wait()).await.unwrap();
        assert_eq!(code, 0);
        traffic.wait_for(200).await;
        assert_admitted(&traffic.end().await);
        envoy.assert_all_answered().await;
    });
}

// G111
#[test]
fn new_certificates_lose_no_request() {
    let Some(program) = Program::find() else { return };
    let (place, old, new) = (Place::new(), Authority::new(), Authority::new());
    place.write("limits.yaml", limit("", "key", 1_000_000));
    install(&place, &old.server());
    let own = old.issue(&[dns("gateway.example")]);
    place.write("ca.crt", old.pem());
    place.write("trusted.crt", old.pem() + &new.pem());
    place.write("own.crt", &own.cert);
    place.write("own.key", &own.key);
    let names = "--client-ca $/ca.crt --client-san gateway.example";
    let server = place.start(&format!("{TLS} {names} --connection-age 300ms"));
    let tls = format!(
        "
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          sni: localhost
          common_tls_context:
            alpn_protocols: [h2]
            tls_certificates:
              - certificate_chain: {{ filename: {} }}
                private_key: {{ filename: {} }}
            validation_context:
              trusted_ca: {{ filename: {} }}
              match_typed_subject_alt_names: [{{ san_type: DNS, matcher: {{ exact: localhost }} }}]",
        place.name("own.crt"),
        place.name("own.key"),
        place.name("trusted.crt")
    );
    let envoy = program.start(&gateway(&[server.address("grpc")], TIMEOUT, &tls));
    block_on(async {
        let traffic = Traffic::start(envoy.address("open"), 4);
        traffic.wait_for(100).await;
        install(&place, &new.server());
        wait_for(&server, &new, Some(&own), true).await;
        let before = envoy.counter("cluster.tollgate.ssl.handshake").await;
        while envoy.counter("cluster.tollgate.ssl.handshake").await < before + 3 {
            traffic.wait_for(20).await;
        }
        assert_admitted(&traffic.end().await);
        assert_eq!(envoy.counter("cluster.tollgate.ssl.fail_verify_error").await, 0);
        envoy.assert_all_answered().await;
    });
}
