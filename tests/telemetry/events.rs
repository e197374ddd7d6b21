//! The `tracing` events that a subscriber receives.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tollgate::telemetry::{Denial, DenialLog, Level, Reloads};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// An event: level, target and fields.
type Seen = (tracing::Level, String, BTreeMap<String, String>);

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<Seen>>>);

struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields(BTreeMap::new());
        event.record(&mut fields);
        let metadata = event.metadata();
        let seen = (*metadata.level(), metadata.target().to_owned(), fields.0);
        self.0.lock().expect("no thread panics while it holds the lock").push(seen);
    }
}

fn events(run: impl FnOnce()) -> Vec<Seen> {
    let listener = Listener::default();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(listener.clone()), run);
    let mut seen = listener.0.lock().expect("no thread panics while it holds the lock");
    std::mem::take(&mut *seen)
}

fn fields<const N: usize>(fields: [(&str, &str); N]) -> BTreeMap<String, String> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

const DENIAL: Denial<'static> = Denial {
    domain: "api",
    rule: "per-ip",
    retry_after: Some(Duration::from_micros(1_500)),
    shadow: false,
    key: "203.0.113.7",
};

// G73
#[test]
fn denial_event_omits_key() {
    let seen = events(|| DenialLog::default().record(&DENIAL));
    let expected = fields([
        ("domain", "\"api\""),
        ("rule", "\"per-ip\""),
        ("retry_after_ms", "2"),
        ("shadow", "false"),
        ("message", "rate limited"),
    ]);
    assert_eq!(seen, [(tracing::Level::DEBUG, "tollgate".to_owned(), expected)]);
}

#[test]
fn denial_event_has_key_on_request() {
    let log = DenialLog::at(Level::Warn).with_keys(true);
    let seen = events(|| log.record(&Denial { retry_after: None, shadow: true, ..DENIAL }));
    let expected = fields([
        ("domain", "\"api\""),
        ("rule", "\"per-ip\""),
        ("shadow", "true"),
        ("key", "\"203.0.113.7\""),
        ("message", "rate limited"),
    ]);
    assert_eq!(seen, [(tracing::Level::WARN, "tollgate".to_owned(), expected)]);
}

#[test]
fn denial_event_has_configured_level() {
    let levels = [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace];
    let seen = events(|| levels.map(DenialLog::at).iter().for_each(|log| log.record(&DENIAL)));
    let seen: Vec<tracing::Level> = seen.into_iter().map(|(level, ..)| level).collect();
    use tracing::Level as L;
    assert_eq!(seen, [L::ERROR, L::WARN, L::INFO, L::DEBUG, L::TRACE]);
}

#[test]
fn rule_loads_are_events() {
    let seen = events(|| {
        let reloads = Reloads::new();
        reloads.loaded(7);
        reloads.failed(&"rules.yaml:3:5: no");
    });
    let [(good, _, loaded), (bad, target, failed)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((*good, loaded["rules"].as_str()), (tracing::Level::INFO, "7"));
    assert_eq!((*bad, target.as_str()), (tracing::Level::WARN, "tollgate"));
    assert_eq!(failed["error"], "rules.yaml:3:5: no");
}

/// A request to which no rule applies is logged once for each domain and load, with its keys and without its values.
// G64
#[cfg(feature = "rules")]
#[test]
fn first_request_without_a_rule_is_an_event() {
    use tollgate::rules::{Config, Descriptor, Rules, WithoutRule};
    let file = |key: &str, limit: u32| {
        let rule = format!("{{ key: {key}, rate_limit: {{ unit: day, requests_per_unit: {limit} }} }}");
        Config::from_yaml("limits.yaml", &format!("{{ domain: shop, descriptors: [ {rule} ] }}"))
            .expect("valid rules")
    };
    for (action, said) in [
        (WithoutRule::Admit, None),
        (WithoutRule::Log, Some("\"admitted\"")),
        (WithoutRule::Deny, Some("\"denied\"")),
    ] {
        let rules = Rules::builder().without_rule(action).load([file("user", 1)]).expect("the rules load");
        let entries = [("usr", "secret"), ("path", "/")];
        let ask = || {
            let (one, other) = (Descriptor::new(&entries), Descriptor::new(&entries[..1]));
            events(|| _ = (rules.check("shop", &[one, other]), rules.check("shop", &[other])))
        };
        let unknown = || events(|| _ = rules.check("shopp", &[Descriptor::new(&entries)]));
        let expected = |domain: &str, keys: &str| {
            let event = said.map(|action| {
                let message = "no rule applies to a request; further ones are not logged until the next load";
                let fields =
                    fields([("domain", domain), ("keys", keys), ("action", action), ("message", message)]);
                (tracing::Level::WARN, "tollgate".to_owned(), fields)
            });
            event.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(ask(), expected("\"shop\"", "\"usr.path, usr\""));
        assert_eq!(unknown(), expected("\"shopp\"", "\"\""));
        assert!(ask().is_empty() && unknown().is_empty(), "only the first one");
        let _ = rules.explain("shop", &[Descriptor::new(&entries)], 1);
        rules.replace([file("user", 2)]).expect("the rules load");
        assert_eq!(ask(), expected("\"shop\"", "\"usr.path, usr\""), "again after a load");
        // A load that leaves the requests of the domain without rules.
        let _ = rules.check("shop", &[Descriptor::new(&[("user", "alice")])]);
        let seen = events(|| _ = rules.replace([file("user_id", 2)]));
        let warned: Vec<_> = seen.iter().filter(|(level, ..)| *level == tracing::Level::WARN).collect();
        let [(_, _, lost)] = &warned[..] else { panic!("{seen:?}") };
        assert!(lost["domain"] == "\"shop\"" && lost["message"].contains("no rule is left"), "{lost:?}");
    }
}
