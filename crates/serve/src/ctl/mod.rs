//! `tollgate ctl`: what an operator asks of a running service, and its answer.

mod connect;
pub mod flags;
mod output;

use serde_json::{Value, json};
use tokio::runtime::Builder;

use crate::ctl::flags::{ActionArgs, CtlCommand, KeyArgs};
use tollgate_report::error::Error;
use tollgate_report::output::{print, to_json};

/// Asks the service, and prints its answer.
///
/// # Errors
/// If the service cannot be reached, does not admit the operator, or if a rule refuses.
pub fn run(command: &CtlCommand) -> Result<(), Error> {
    let (verb, key, more) = match command {
        CtlCommand::Inspect(key) => ("inspect", key, json!({})),
        CtlCommand::Reset(ActionArgs { key, why }) => ("reset", key, json!({ "why": why })),
        CtlCommand::Unblock(ActionArgs { key, why }) => ("unblock", key, json!({ "why": why })),
        CtlCommand::Grant { units, action: ActionArgs { key, why } } => {
            ("grant", key, json!({ "why": why, "units": units }))
        }
        CtlCommand::Block { length, action: ActionArgs { key, why } } => {
            ("block", key, json!({ "why": why, "for": format!("{}ns", length.as_nanos()) }))
        }
    };
    let body = tollgate_report::output::merged([asked(key), more]);
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::run(format!("cannot start a runtime: {error}")))?;
    let (status, answer) = runtime.block_on(connect::ask(key, verb, body.to_string()))?;
    if status != 200 {
        let why = answer["error"].as_str().unwrap_or("no reason was given");
        return Err(Error::run(format!("the service answered {status}: {why}")));
    }
    let text = if key.json { to_json(&answer) } else { output::text(verb, &answer) };
    print(text.as_bytes())?;
    judged(&answer)
}

/// Returns the part of the body that each verb has.
fn asked(key: &KeyArgs) -> Value {
    let request = &key.request;
    json!({
        "domain": request.domain,
        "descriptors": request.descriptors(),
        "tier": request.tier,
        "rule": key.rule,
    })
}

/// Returns an error unless all rules did what was asked.
fn judged(answer: &Value) -> Result<(), Error> {
    let rules = answer["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let refused = rules.iter().filter(|rule| rule["done"] != true).count();
    match (rules.len(), refused) {
        (0, _) => Err(Error::run("no rule applies to this key; check the entries and their order")),
        (_, 0) => Ok(()),
        (all, refused) => Err(Error::run(format!("{refused} of {all} rules refused"))),
    }
}
