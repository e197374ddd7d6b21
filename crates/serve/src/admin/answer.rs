//! From a request to its answer: carries out the operation, logs it and counts it.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tollgate::Clock;
use tollgate_rules::{KeyReport, OperatorAction, Rules};

use super::read::{ActionRequest, LONGEST_WHY};
use super::who::{Operators, Who};
use super::write;
use crate::endpoint::Backend;
use crate::http::{not_allowed, read_body, typed};
use crate::log::{self, Level, Seldom};
use crate::stats::OPERATOR_ACTIONS;
use tollgate_report::descriptor::{Entries, described};
use tollgate_report::text::printable;

/// The longest body, in bytes.
const LONGEST: usize = 64 << 10;

/// The longest part of a text in the log, in characters.
const SHOWN: usize = 200;

/// Lines about requests that were not admitted: at most one in ten seconds.
static SELDOM: std::sync::LazyLock<Seldom> = std::sync::LazyLock::new(Seldom::default);

type Answered = (StatusCode, Value);

fn problem(status: StatusCode, message: impl AsRef<str>) -> Answered {
    (status, write::problem(message.as_ref()))
}

/// Answers a request.
pub async fn answer(
    backend: &Backend,
    operators: &Arc<Operators>,
    who: Who,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let path = request.uri().path().strip_prefix("/v1/");
    let Some(name) = path.and_then(|path| OPERATOR_ACTIONS.iter().position(|name| *name == path)) else {
        let message = format!("the paths are /v1/ and one of {}", OPERATOR_ACTIONS.join(", "));
        return written(problem(StatusCode::NOT_FOUND, message));
    };
    if request.method() != Method::POST {
        return not_allowed("POST");
    }
    let (head, body) = request.into_parts();
    // A file is read, and no thread of the other endpoints may wait for a disk.
    let (asked, allowed) = (who.to_string(), Arc::clone(operators));
    let headers = head.headers.clone();
    let admitted = spawn_blocking(move || allowed.admit(who, &headers)).await;
    let who = match admitted.unwrap_or_else(|_| Err("the tokens could not be read".to_owned())) {
        Ok(who) => who.to_string(),
        Err(why) => {
            backend.stats.operators.refused.add();
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
    let body = match read_body(body, LONGEST, "the body is longer than 64 KiB").await {
        Ok(body) => body,
        Err((status, why)) => return written(problem(status, why)),
    };
    backend.stats.operators.actions[name].add();
    let rules = Arc::clone(&backend.rules);
    // In a task of its own: a client that goes away must not hide from the log what it did.
    let task = tokio::spawn(async move {
        let result = perform(&*rules, OPERATOR_ACTIONS[name], &who, &body).await;
        match result.line {
            Some(line) if result.changes => log::always(line),
            Some(line) => log::info(line),
            None => {}
        }
        result.answer
    });
    let failed = |_| problem(StatusCode::INTERNAL_SERVER_ERROR, "the request failed");
    written(task.await.unwrap_or_else(failed))
}

fn written((status, body): Answered) -> Response<Full<Bytes>> {
    typed(status, "application/json", body.to_string())
}

/// What became of a body.
#[derive(Debug)]
pub struct ActionResult {
    /// The status and the body of the answer.
    pub answer: Answered,
    /// The line for the log: who, what, why and the results. `None` for a body that is no request.
    pub line: Option<String>,
    /// Whether the operation changes anything.
    pub changes: bool,
}

/// Does what a body wants.
pub async fn perform<C: Clock>(rules: &Rules<C>, name: &str, who: &str, body: &[u8]) -> ActionResult {
    let asked = match ActionRequest::read(name, body) {
        Ok(asked) => asked,
        Err(why) => {
            return ActionResult {
                answer: problem(StatusCode::BAD_REQUEST, why),
                line: None,
                changes: false,
            };
        }
    };
    let ActionRequest { domain, tier, rule, why, action, .. } = &asked;
    let entries = asked.entries();
    let descriptors = described(&entries, tier.as_deref());
    let reports = rules.operate_async(domain, &descriptors, rule.as_deref(), *action).await;
    let shown = |text: &str| printable(text.as_bytes(), SHOWN);
    let pairs = |entries: &Entries<'_>| {
        entries.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    };
    let keys: Vec<String> = entries.iter().map(pairs).collect();
    let line = format!(
        "operator {}: {} {} {}{}: {}; why: {}",
        shown(who),
        what(*action),
        shown(domain),
        // In full: no key may hide behind a long one.
        printable(keys.join(" ").as_bytes(), usize::MAX),
        rule.as_ref().map_or(String::new(), |rule| format!(" (only {})", shown(rule))),
        reports.as_deref().map_or_else(|| "no such domain".to_owned(), |reports| results(*action, reports)),
        why.as_deref().map_or("-".to_owned(), |why| printable(why.as_bytes(), LONGEST_WHY)),
    );
    let answer = match reports {
        Some(reports) => (StatusCode::OK, write::reports(name, domain, who, &reports)),
        None => problem(StatusCode::NOT_FOUND, format!("no rules have the domain {domain:?}")),
    };
    ActionResult { answer, line: Some(line), changes: *action != OperatorAction::Inspect }
}

/// Names an operation for the log.
fn what(action: OperatorAction) -> String {
    match action {
        OperatorAction::Inspect => "inspect".to_owned(),
        OperatorAction::Reset => "reset".to_owned(),
        OperatorAction::Grant(units) => format!("grant {units}"),
        OperatorAction::Block(length) => format!("block {length:?}"),
        OperatorAction::Unblock => "unblock".to_owned(),
        _ => "?".to_owned(),
    }
}

/// Says for the log what each rule did.
fn results(action: OperatorAction, reports: &[KeyReport]) -> String {
    let gives_back = matches!(action, OperatorAction::Reset | OperatorAction::Grant(_));
    let one = |report: &KeyReport| {
        let did = match &report.result {
            Ok(units) if gives_back => format!("done, {units} units back"),
            Ok(_) => "done".to_owned(),
            Err(refusal) => format!("refused, {}", refusal.name()),
        };
        let [name, identity] = [&report.name, &report.identity].map(|text| printable(text.as_bytes(), SHOWN));
        format!("{name} ({identity}) {did}")
    };
    match reports {
        [] => "no rule applies".to_owned(),
        reports => reports.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}
