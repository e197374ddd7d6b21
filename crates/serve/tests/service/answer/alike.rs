//! The service answers each kind of limit, in messages and as JSON, as rules decide it.

use super::*;
use crate::alike::{self, ALL, Entries, Kind, Seen, Surface, cases};
use crate::alike_rules::Process;
use tollgate_serve::http::json;
use tollgate_serve::proto::{CommitRequest, ReserveRequest};

fn descriptors(entries: Entries) -> Vec<RateLimitDescriptor> {
    vec![of(entries.iter().copied())]
}

/// The service in front of the rules of a process.
struct Answers {
    process: Process,
    is_json: bool,
    ids: Vec<String>,
}

impl Answers {
    fn at(&self, now: u64) -> Answerer<ManualClock> {
        Answerer::new(Arc::clone(self.process.at(now)), Settings::default())
    }

    fn message(&self, now: u64, entries: Entries, units: u64) -> Seen {
        let request = RateLimitRequest {
            domain: "alike".into(),
            descriptors: descriptors(entries),
            hits_addend: u32::try_from(units).unwrap(),
        };
        let answer = run(self.at(now).answer(request, Entry::ShouldRateLimit, deadline())).unwrap();
        let [status] = &answer.statuses[..] else { panic!("one descriptor has one status: {answer:?}") };
        let is_allowed = answer.overall_code == Code::Ok as i32;
        assert_eq!(status.code == Code::Ok as i32, is_allowed);
        let until = status.duration_until_reset.map(|left| u64::try_from(left.seconds).unwrap());
        // A request that is never admitted has no wait, but its status tells the time until the reset.
        let limit = status.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
        Seen {
            is_allowed,
            left: Some(status.limit_remaining.into()),
            wait: until.filter(|_| !is_allowed && units <= limit.into()),
            is_block: None,
        }
    }

    fn json(&self, now: u64, entries: Entries, units: u64) -> Seen {
        let entries = entries.iter().map(|(key, value)| serde_json::json!({ "key": key, "value": value }));
        let entries: Vec<_> = entries.collect();
        let body = serde_json::json!({
            "domain": "alike", "descriptors": [{ "entries": entries }], "hitsAddend": units,
        });
        let answerer = self.at(now);
        let response = run(json(&answerer, Entry::Json, body.to_string().as_bytes(), deadline()));
        let answer: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let (status, is_allowed) = (&answer["statuses"][0], response.status() == 200);
        assert_eq!(answer["overallCode"], if is_allowed { "OK" } else { "OVER_LIMIT" });
        let until =
            status["durationUntilReset"].as_str().and_then(|text| text.strip_suffix('s')?.parse().ok());
        let limit = status["currentLimit"]["requestsPerUnit"].as_u64().unwrap_or_default();
        Seen {
            is_allowed,
            left: Some(status["limitRemaining"].as_u64().unwrap_or_default()),
            wait: until.filter(|_| !is_allowed && units <= limit),
            is_block: None,
        }
    }
}

impl Surface for Answers {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        if self.is_json { self.json(now, entries, units) } else { self.message(now, entries, units) }
    }

    fn process(&mut self) -> Option<&mut dyn Surface> {
        Some(&mut self.process)
    }

    fn hold(&mut self, now: u64, entries: Entries, amount: u64, life: u64) -> Seen {
        let ttl = Some(prost_types::Duration { seconds: i64::try_from(life).unwrap(), nanos: 0 });
        let request =
            ReserveRequest { domain: "alike".into(), descriptors: descriptors(entries), amount, ttl };
        let answer = run(self.at(now).reserve(request, deadline())).unwrap();
        let is_allowed = answer.code == Code::Ok as i32;
        self.ids.extend(is_allowed.then_some(answer.reservation_id));
        Seen { is_allowed, left: None, wait: None, is_block: None }
    }

    fn commit(&mut self, now: u64, entries: Entries, hold: usize, actual_amount: u64) -> Option<bool> {
        let (domain, reservation_id) = ("alike".into(), Bytes::copy_from_slice(self.ids[hold].as_bytes()));
        let request =
            CommitRequest { domain, descriptors: descriptors(entries), reservation_id, actual_amount };
        Some(run(self.at(now).commit(request, deadline())).unwrap().reservation_released)
    }
}

fn play_all(is_json: bool) {
    for case in cases(true) {
        if is_json && matches!(case.kind, Kind::Holds | Kind::InProgress) {
            continue;
        }
        for between in ALL {
            let process = Process::new(case, "", alike::clock(), |builder| builder);
            case.play(&mut Answers { process, is_json, ids: Vec::new() }, between);
        }
    }
}

// G135
#[test]
fn messages_answer_each_kind_alike() {
    play_all(false);
}

#[test]
fn json_answers_each_kind_alike() {
    play_all(true);
}
