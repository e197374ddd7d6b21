//! The layer answers each kind of limit as rules and the service decide it.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use tollgate_rules::Descriptors;
use tollgate_tower::{Head, RateLimitLayer};
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::alike::{ALL, Entries, Kind, Seen, Surface, cases, clock};
use crate::alike_rules::Process;

/// The header fields with these names are the entries of a request.
const KEYS: [&str; 4] = ["address", "class", "key", "user"];

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

struct Layered(Process, tokio::runtime::Runtime);

impl Surface for Layered {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        let layer = RateLimitLayer::rules(Arc::clone(self.0.at(now)), "alike", describe).unwrap();
        let layer = layer.fields_on_allowed(true).cost(move |_| units);
        let serve = async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new()));
        let request =
            entries.iter().fold(Request::builder(), |request, (key, value)| request.header(*key, *value));
        let request = request.body(String::new()).unwrap();
        let response = self.1.block_on(layer.layer(service_fn(serve)).oneshot(request)).unwrap();
        let text = |name: &str| response.headers().get(name).and_then(|field| field.to_str().ok());
        Seen {
            is_allowed: response.status() == 200,
            left: Some(left(text("ratelimit").unwrap())),
            wait: text("retry-after").map(|wait| wait.parse().unwrap()),
            is_block: None,
        }
    }

    fn process(&mut self) -> Option<&mut dyn Surface> {
        Some(&mut self.0)
    }
}

#[test]
fn layer_answers_each_kind_alike() {
    let held = [Kind::Holds, Kind::InProgress];
    for case in cases(true).filter(|case| !held.contains(&case.kind)) {
        for between in ALL {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            case.play(&mut Layered(Process::new(case, "", clock(), |builder| builder), runtime), between);
        }
    }
}
