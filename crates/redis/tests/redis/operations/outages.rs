//! The events of an outage name the limiter, the server, the reason and what decides meanwhile, once for each change.
//!
//! The event used to come again with each failed probe, once a second, and to name neither the address nor what decides.
#![cfg(feature = "tracing")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::Quota;
use tollgate_redis::{Breaker, Client, DecidedBy, Limit, OnFailure};
use tollgate_testing::redis::Server;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::SubscriberExt as _;

/// An event: its level, and its fields with the message.
type Event = (tracing::Level, BTreeMap<&'static str, String>);

#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<Event>>>);

struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        if event.metadata().target() == "tollgate" {
            self.0.lock().unwrap().push((*event.metadata().level(), fields.0));
        }
    }
}

// G148
#[test]
fn outage_is_one_event_with_its_facts() {
    let Some(mut server) = Server::start() else { return };
    let events = Events::default();
    let client = Client::open(&server.url().replace("redis://", "redis://default:secret@")).unwrap();
    server.command::<()>(&["ACL", "SETUSER", "default", "on", ">secret", "nopass"]);
    let limiter = client
        .limiter("api", Limit::gcra(Quota::per_second(1_000_000)))
        .on_failure(OnFailure::Open)
        .timeout(Duration::from_secs(5))
        .breaker(Breaker::new(2, Duration::from_millis(1)))
        .atomic()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(events.clone());
    // The runtime stays in this thread, where the subscriber is set.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let check_until = |decided: DecidedBy, opened: u64| {
        runtime.block_on(async {
            while limiter.check("a").await.by() != decided || limiter.health().opened < opened {
                tokio::task::yield_now().await;
            }
        });
    };
    tracing::subscriber::with_default(subscriber, || {
        check_until(DecidedBy::Server, 0);
        server.kill();
        // The breaker opens, and three probes fail.
        check_until(DecidedBy::Open, 4);
        server.restart();
        check_until(DecidedBy::Server, 0);
    });
    let events = std::mem::take(&mut *events.0.lock().unwrap());
    let of = |level| events.iter().filter(|event| event.0 == level).map(|event| &event.1).collect::<Vec<_>>();
    let [fails] = of(tracing::Level::WARN)[..] else { panic!("{events:?}") };
    let [works] = of(tracing::Level::INFO)[..] else { panic!("{events:?}") };
    assert!(of(tracing::Level::DEBUG).len() >= 3, "probes: {events:?}");
    let address = format!("127.0.0.1:{}", server.port());
    assert_eq!((&*fails["limiter"], &*fails["address"], &*fails["on_failure"]), ("api", &*address, "open"));
    assert!(fails["error"].contains("the server cannot be reached"), "{fails:?}");
    assert!(fails["message"].contains("on_failure decides until"), "{fails:?}");
    assert_eq!((&*works["limiter"], &*works["address"]), ("api", &*address));
    let [failing, failed] = [&fails["failing_ms"], &works["failed_ms"]].map(|ms| ms.parse::<u64>().unwrap());
    assert!(failing <= failed, "{events:?}");
    assert!(!format!("{events:?}").contains("secret"), "{events:?}");
}
