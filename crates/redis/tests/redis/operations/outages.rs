//! The events of an outage name the limiter, the server, the reason and what decides meanwhile, once for each change.
//!
//! The event used to come again with each failed probe, once a second, and to name neither the address nor what decides.
#![cfg(feature = "tracing")]

use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Breaker, Client, DecidedBy, Limit, OnFailure};
use tollgate_testing::redis::Server;

use crate::listener::events;
use crate::one_thread;

// G148
#[test]
fn outage_is_one_event_with_its_facts() {
    let Some(mut server) = Server::start() else { return };
    let client = Client::open(&server.url().replace("redis://", "redis://default:secret@")).unwrap();
    server.command::<()>(&["ACL", "SETUSER", "default", "on", ">secret", "nopass"]);
    let builder =
        client.limiter("api", Limit::gcra(Quota::per_second(1_000_000))).on_failure(OnFailure::Open);
    let builder = builder.timeout(Duration::from_secs(5)).breaker(Breaker::new(2, Duration::from_millis(1)));
    let limiter = builder.atomic().unwrap();
    // The runtime stays in this thread, where the subscriber is set.
    let runtime = one_thread();
    let check_until = |decided: DecidedBy, opened: u64| {
        runtime.block_on(async {
            while limiter.check("a").await.by() != decided || limiter.health().opened < opened {
                tokio::task::yield_now().await;
            }
        });
    };
    let mut events = events(|| {
        check_until(DecidedBy::Server, 0);
        server.kill();
        // The breaker opens, and three probes fail.
        check_until(DecidedBy::Open, 4);
        server.restart();
        check_until(DecidedBy::Server, 0);
    });
    events.retain(|(_, target, _)| target == "tollgate");
    let of = |level| events.iter().filter(|event| event.0 == level).map(|event| &event.2).collect::<Vec<_>>();
    let [fails] = of(tracing::Level::WARN)[..] else { panic!("{events:?}") };
    let [works] = of(tracing::Level::INFO)[..] else { panic!("{events:?}") };
    assert!(of(tracing::Level::DEBUG).len() >= 3, "probes: {events:?}");
    let address = format!("\"127.0.0.1:{}\"", server.port());
    let named = [&fails["limiter"], &fails["address"], &fails["on_failure"]];
    assert_eq!(named, ["\"api\"", &*address, "\"open\""]);
    assert!(fails["error"].contains("the server cannot be reached"), "{fails:?}");
    assert!(fails["message"].contains("on_failure decides until"), "{fails:?}");
    assert_eq!([&works["limiter"], &works["address"]], ["\"api\"", &*address]);
    let [failing, failed] = [&fails["failing_ms"], &works["failed_ms"]].map(|ms| ms.parse::<u64>().unwrap());
    assert!(failing <= failed, "{events:?}");
    assert!(!format!("{events:?}").contains("secret"), "{events:?}");
}
