//! The layer answers each kind of limit as rules and the service decide it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use tollgate::rules::{Config, Descriptors, Rules};
use tollgate::{ManualClock, Timestamp};
use tollgate_tower::{Head, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::cases::{START, Seen, cases};

/// The header fields with these names are the entries of a request.
const KEYS: [&str; 4] = ["address", "account", "class", "user"];

fn describe(head: Head<'_>, descriptors: &mut Descriptors) -> Option<()> {
    let mut descriptor = descriptors.begin();
    for key in KEYS {
        if let Some(value) = head.headers().get(key).and_then(|value| value.to_str().ok()) {
            descriptor = descriptor.entry(key, value);
        }
    }
    Some(())
}

/// Returns the fewest units in the field `RateLimit`, such as `"a";r=1;t=60, "b";r=0;t=60`.
fn left(field: &str) -> u64 {
    let rest = field.split(";r=").skip(1).filter_map(|rest| rest.split(';').next()?.parse().ok());
    rest.min().expect("a rule has units")
}

#[test]
fn layer_answers_each_kind_alike() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for case in cases(true) {
        let clock = ManualClock::new(Timestamp::from_secs(START));
        let config = Config::from_yaml("alike.yaml", &case.text("")).unwrap();
        let rules = Arc::new(Rules::builder().clock(clock.clone()).load([config]).unwrap());
        let layer = RateLimitLayer::rules(rules, "alike", describe).unwrap().fields_on_allowed(true);
        let serve = async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()));
        let service = layer.layer(service_fn(serve));
        let mut last = START;
        case.play(|now, entries| {
            clock.advance(Duration::from_secs(now - last));
            last = now;
            let request =
                entries.iter().fold(Request::builder(), |request, (key, value)| request.header(*key, *value));
            let request = request.body(String::new()).unwrap();
            let response = runtime.block_on(service.clone().oneshot(request)).unwrap();
            let text = |name: &str| response.headers().get(name).and_then(|field| field.to_str().ok());
            Seen {
                is_allowed: response.status() == 200,
                left: left(text("ratelimit").unwrap()),
                wait: text("retry-after").map(|wait| wait.parse().unwrap()),
                is_block: None,
            }
        });
    }
}
