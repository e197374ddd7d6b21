//! From a request to its answer: does the act, logs it and counts it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tollgate::Clock;
use tollgate::rules::{KeyReport, Rules};

use super::read::{Act, VERBS};
use super::who::{Operators, Who};
use super::write;
use crate::input::row::printable;
use crate::serve::http::{not_allowed, typed};
use crate::serve::log::{self, Level, Seldom};
use crate::serve::stats::{Count, Sample, Stats};

/// The longest body, in bytes.
const LONGEST: usize = 64 << 10;

/// How long the body of a request may take.
const BODY: Duration = Duration::from_secs(10);

/// The longest part of a text in the log, in characters.
const SHOWN: usize = 200;

/// Lines about requests that were not admitted: at most one in ten seconds.
static SELDOM: std::sync::LazyLock<Seldom> = std::sync::LazyLock::new(Seldom::default);

/// What operators did.
#[derive(Debug, Default)]
pub struct OperatorCounts {
    acts: [Count; VERBS.len()],
    refused: Count,
}

impl OperatorCounts {
    /// Returns all counts. Those with the same name follow each other.
    pub fn samples(&self) -> impl Iterator<Item = Sample> {
        let acts = VERBS.iter().zip(&self.acts).map(|(verb, count)| {
            let help = "Requests of operators that were admitted, by verb";
            Sample::counter("tollgate_service_operator_acts_total", help, count.get()).with("verb", verb)
        });
        let help = "Requests of operators that were not admitted: no token, a wrong one, or another user";
        let refused = Sample::counter("tollgate_service_operator_refused_total", help, self.refused.get());
        acts.chain([refused])
    }
}

type Answered = (StatusCode, Value);

fn problem(status: StatusCode, message: impl AsRef<str>) -> Answered {
    (status, write::problem(message.as_ref()))
}

/// Answers a request.
pub async fn answer(
    rules: &Arc<Rules>,
    stats: &Arc<Stats>,
    operators: &Arc<Operators>,
    who: Who,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().strip_prefix("/v1/");
    let Some(verb) = path.and_then(|path| VERBS.iter().position(|verb| *verb == path)) else {
        let message = format!("the verbs are /v1/ and one of {}", VERBS.join(", "));
        return written(problem(StatusCode::NOT_FOUND, message));
    };
    if request.method() != Method::POST {
        return not_allowed("POST");
    }
    let (head, body) = request.into_parts();
    // A file is read, and no thread of the other faces may wait for a disk.
    let (asked, allowed) = (who.to_string(), Arc::clone(operators));
    let headers = head.headers.clone();
    let admitted = spawn_blocking(move || allowed.admit(who, &headers)).await;
    let who = match admitted.unwrap_or_else(|_| Err("the tokens could not be read".to_owned())) {
        Ok(who) => who.to_string(),
        Err(why) => {
            stats.operators.refused.add();
            SELDOM.write(Level::Warn, format_args!("an operator's request from {asked} was refused: {why}"));
            let message = "not admitted; the log of the service says why";
            return written(problem(StatusCode::UNAUTHORIZED, message));
        }
    };
    // A page in a browser cannot send this type to another site without asking first.
    let is_json = head.headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json {
        let message = "expected content-type: application/json";
        return written(problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let body = match timeout(BODY, Limited::new(body, LONGEST).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Err(_) => return written(problem(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return written(problem(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 64 KiB"));
        }
        Ok(Err(_)) => return written(problem(StatusCode::BAD_REQUEST, "the body is incomplete")),
    };
    stats.operators.acts[verb].add();
    let rules = Arc::clone(rules);
    // In a task of its own: a client that goes away must not hide from the log what it did.
    let act = tokio::spawn(async move { act(&*rules, VERBS[verb], &who, &body).await });
    let failed = |_| problem(StatusCode::INTERNAL_SERVER_ERROR, "the request failed");
    written(act.await.unwrap_or_else(failed))
}

fn written((status, body): Answered) -> Response<Full<Bytes>> {
    typed(status, "application/json", body.to_string())
}

/// Does what a body wants, and logs it.
pub async fn act<C: Clock>(rules: &Rules<C>, verb: &str, who: &str, body: &[u8]) -> Answered {
    let act = match Act::read(verb, body) {
        Ok(act) => act,
        Err(why) => return problem(StatusCode::BAD_REQUEST, why),
    };
    let entries = act.entries();
    let descriptors = act.descriptors(&entries);
    let reports = rules.operate_async(&act.domain, &descriptors, act.rule.as_deref(), act.verb).await;
    let keys: Vec<String> = entries
        .iter()
        .map(|entries| {
            entries.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
        })
        .collect();
    let line = format!(
        "operator {}: {} {} {}{}: {}; why: {}",
        printable(who.as_bytes(), SHOWN),
        what(&act),
        printable(act.domain.as_bytes(), SHOWN),
        printable(keys.join(" ").as_bytes(), SHOWN),
        act.rule
            .as_ref()
            .map_or(String::new(), |rule| { format!(" (only {})", printable(rule.as_bytes(), SHOWN)) }),
        reports.as_deref().map_or_else(|| "no such domain".to_owned(), results),
        act.why.as_deref().map_or("-".to_owned(), |why| printable(why.as_bytes(), 1_000)),
    );
    if act.verb.changes() {
        log::always(line);
    } else {
        log::info(line);
    }
    match reports {
        Some(reports) => (StatusCode::OK, write::reports(verb, &act.domain, who, &reports)),
        None => problem(StatusCode::NOT_FOUND, format!("no rules have the domain {:?}", act.domain)),
    }
}

/// Names an act for the log.
fn what(act: &Act) -> String {
    use tollgate::rules::Verb;
    match act.verb {
        Verb::Inspect => "inspect".to_owned(),
        Verb::Reset => "reset".to_owned(),
        Verb::Grant(units) => format!("grant {units}"),
        Verb::Block(length) => format!("block {length:?}"),
        Verb::Unblock => "unblock".to_owned(),
        _ => "?".to_owned(),
    }
}

/// Says for the log what each rule did.
fn results(reports: &[KeyReport]) -> String {
    let one = |report: &KeyReport| {
        let did = match &report.result {
            Ok(units) => format!("done, {units} units back"),
            Err(refusal) => format!("refused, {}", refusal.name()),
        };
        format!("{} {did}", printable(report.identity.as_bytes(), SHOWN))
    };
    match reports {
        [] => "no rule applies".to_owned(),
        reports => reports.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}
