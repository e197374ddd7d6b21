//! Tests of answers. Each table has the rows of one part of the protocol.

mod alike;
mod bounds;
mod extras;
mod holds;
mod kuadrant;
mod request;
mod resp;
mod shared;
mod statuses;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tollgate::{ManualClock, Timestamp};
use tollgate_rules::{Charging, Config, Rules, RulesBuilder};
use tollgate_serve::answer::{Answerer, Entry, LimitHeaders, Meters, Names, Settings};
use tollgate_serve::proto::{
    Code, Entry as Pair, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, Unit,
};
use tonic::Status;

/// 2026-09-21 14:13:02 UTC: 58 seconds before the end of a minute.
const NOW: Timestamp = Timestamp::from_secs(1_789_999_982);

/// An answerer, and its clock.
struct Service {
    answerer: Answerer<ManualClock>,
    clock: ManualClock,
    /// The same rules, which Redis clients ask the same.
    twin: Option<resp::Twin>,
}

/// Starts a service with rules of the domain `rl`. `rules` is the list of descriptors in YAML.
fn service(rules: &str) -> Service {
    service_with(rules, Settings::default(), |builder| builder)
}

/// Starts a service that charges denied requests to no rule.
fn all_or_nothing(rules: &str) -> Service {
    service_with(rules, Settings::default(), |builder| builder.default_charging(Charging::AllOrNothing))
}

fn service_with(rules: &str, settings: Settings, build: impl Fn(RulesBuilder) -> RulesBuilder) -> Service {
    let clock = ManualClock::new(NOW);
    let config = Config::from_yaml("rules", &format!("domain: rl\n{rules}")).unwrap();
    // The default of the service.
    let builder = || build(Rules::builder().default_charging(Charging::CountDenials)).clock(clock.clone());
    let rules = builder().load([config.clone()]).unwrap();
    let twin = Some(resp::Twin::new(builder().load([config]).unwrap(), clock.clone(), settings.clone()));
    Service { answerer: Answerer::new(Arc::new(rules), settings), clock, twin }
}

impl Service {
    fn call(&self, request: RateLimitRequest, entry: Entry<'_>) -> Result<RateLimitResponse, Status> {
        run(async {
            let answer = self.answerer.answer(request.clone(), entry, deadline()).await;
            if let Some(twin) = &self.twin {
                twin.asked(request, entry, &answer).await;
            }
            answer
        })
    }

    fn ask(&self, descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitResponse {
        self.call(request(descriptors), Entry::ShouldRateLimit).unwrap()
    }

    /// Asks, and returns the short forms of the overall code and of the statuses.
    fn told(&self, descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> String {
        shown(&self.ask(descriptors))
    }
}

/// Runs a call to its end.
pub(crate) fn run<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(call)
}

#[expect(clippy::disallowed_methods, reason = "the answer takes no time")]
pub(crate) fn deadline() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub(crate) fn request(descriptors: impl IntoIterator<Item = RateLimitDescriptor>) -> RateLimitRequest {
    let domain = Bytes::from_static(b"rl");
    RateLimitRequest { domain, descriptors: descriptors.into_iter().collect(), hits_addend: 0 }
}

pub(crate) fn of<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> RateLimitDescriptor {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let entries = entries.into_iter().map(|(key, value)| Pair { key: bytes(key), value: bytes(value) });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn with_hits(descriptor: RateLimitDescriptor, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor }
}

pub(crate) fn with_limit(
    descriptor: RateLimitDescriptor,
    requests_per_unit: u32,
    unit: i32,
) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..descriptor }
}

/// Returns an answer in short: `OK: OK 10/MINUTE "name" 9 58s, OK 0`.
pub(crate) fn shown(response: &RateLimitResponse) -> String {
    let code = |code: i32| Code::try_from(code).unwrap().as_str_name();
    let statuses = response.statuses.iter().map(|status| {
        let mut text = code(status.code).to_owned();
        if let Some(RateLimit { requests_per_unit, unit, name }) = &status.current_limit {
            let unit = Unit::try_from(*unit).unwrap().as_str_name();
            text += &format!(" {requests_per_unit}/{unit}");
            if !name.is_empty() {
                text += &format!(" {name:?}");
            }
        }
        text += &format!(" {}", status.limit_remaining);
        if let Some(left) = status.duration_until_reset {
            assert_eq!(left.nanos, 0);
            text += &format!(" {}s", left.seconds);
        }
        assert_eq!(status.current_limit.is_some(), status.duration_until_reset.is_some());
        text
    });
    format!("{}: {}", code(response.overall_code), statuses.collect::<Vec<_>>().join(", "))
}
