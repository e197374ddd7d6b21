//! The service answers each kind of limit, in messages and as JSON, as rules decide it.

use std::time::{Duration, Instant};

use super::*;
use crate::alike::{Case, START, Seen, cases};
use tollgate_serve::http::json;

fn answerer(case: &Case) -> Service {
    let clock = ManualClock::new(Timestamp::from_secs(START));
    let config = Config::from_yaml("alike.yaml", &case.text("")).unwrap();
    let rules = Rules::builder().clock(clock.clone()).load([config]).unwrap();
    Service { answerer: Answerer::new(Arc::new(rules), Settings::default()), clock, twin: None }
}

/// Plays a case, and moves the service's clock to the time of each request.
fn play(case: &Case, mut ask: impl FnMut(&Service, &[(&str, &str)]) -> Seen) {
    let (service, mut last) = (answerer(case), START);
    case.play(|now, entries| {
        service.clock.advance(Duration::from_secs(now - last));
        last = now;
        ask(&service, entries)
    });
}

#[test]
fn messages_answer_each_kind_alike() {
    for case in cases(true) {
        play(case, |service, entries| {
            let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
            let entries = entries.iter().map(|(key, value)| Pair { key: bytes(key), value: bytes(value) });
            let descriptor =
                RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() };
            let request = RateLimitRequest { domain: bytes("alike"), ..request([descriptor]) };
            let answer = service.call(request, Entry::ShouldRateLimit).unwrap();
            let [status] = &answer.statuses[..] else { panic!("one descriptor has one status: {answer:?}") };
            let is_allowed = answer.overall_code == Code::Ok as i32;
            assert_eq!(status.code == Code::Ok as i32, is_allowed);
            let until = status.duration_until_reset.map(|left| u64::try_from(left.seconds).unwrap());
            Seen {
                is_allowed,
                left: status.limit_remaining.into(),
                wait: until.filter(|_| !is_allowed),
                is_block: None,
            }
        });
    }
}

#[test]
fn json_answers_each_kind_alike() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for case in cases(true) {
        play(case, |service, entries| {
            let entries: Vec<_> = entries
                .iter()
                .map(|(key, value)| serde_json::json!({ "key": key, "value": value }))
                .collect();
            let body =
                serde_json::json!({ "domain": "alike", "descriptors": [{ "entries": entries }] }).to_string();
            #[expect(clippy::disallowed_methods, reason = "the answer takes no time")]
            let deadline = Instant::now() + Duration::from_secs(60);
            let response = runtime.block_on(json(&service.answerer, Entry::Json, body.as_bytes(), deadline));
            let answer: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
            let (status, is_allowed) = (&answer["statuses"][0], response.status() == 200);
            assert_eq!(answer["overallCode"], if is_allowed { "OK" } else { "OVER_LIMIT" });
            let until =
                status["durationUntilReset"].as_str().and_then(|text| text.strip_suffix('s')?.parse().ok());
            Seen {
                is_allowed,
                left: status["limitRemaining"].as_u64().unwrap_or_default(),
                wait: until.filter(|_| !is_allowed),
                is_block: None,
            }
        });
    }
}
