//! `tollgate rules explain`: which rules apply to a request, and why.

use serde_json::{Value, json};
use tollgate::ManualClock;
use tollgate_report::descriptor::{Entries, described};
use tollgate_report::error::Error;
use tollgate_report::explanation::{COLUMNS, explanation_json, outcome, row};
use tollgate_report::files::RuleFiles;
use tollgate_report::human;
use tollgate_report::output::wrap::for_stdout;
use tollgate_report::output::{merged, print, table, to_json};
use tollgate_report::text::printable;
use tollgate_rules::{Domain, Explanation, Rules};

use crate::args::rules::ExplainArgs;

/// Explains what the rules of a file do with a request.
///
/// # Errors
/// Returns an error if the file cannot be used, or has no rules for the domain.
pub fn run(args: &ExplainArgs) -> Result<(), Error> {
    let files = RuleFiles::read(std::slice::from_ref(&args.file), args.merge_domains);
    files.usable()?;
    let Some(domain) = files.domains.iter().find(|domain| domain.name() == args.request.domain) else {
        let known: Vec<String> = files.domains.iter().map(|domain| format!("{:?}", domain.name())).collect();
        return Err(Error::usage(format!(
            "{:?}: the file has no rules for this domain; use {}",
            args.request.domain,
            known.join(" or ")
        )));
    };
    let entries = args.request.descriptors();
    let descriptors = described(&entries, args.request.tier.as_deref());
    // At time 0, all windows begin, so each reset is a whole window.
    let builder =
        Rules::builder().clock(ManualClock::default()).alone(true).merge_domains(args.merge_domains);
    let rules = builder.load(files.configs.clone()).map_err(|error| Error::run(error.to_string()))?;
    let explanation = rules.explain(domain.name(), &descriptors, args.cost);
    if args.json {
        return print(to_json(&whole_json(args, domain, &entries, &explanation)).as_bytes());
    }
    print(text(args, domain, &entries, &explanation).as_bytes())
}

/// Writes entries as on the command line.
fn shown(entries: &[(&str, &str)]) -> String {
    let pairs = entries.iter().map(|(key, value)| format!("{key}={value}"));
    printable(pairs.collect::<Vec<_>>().join(",").as_bytes(), 200)
}

fn text(args: &ExplainArgs, domain: &Domain, entries: &[Entries<'_>], explanation: &Explanation) -> String {
    let name = printable(domain.name().as_bytes(), 60);
    let units = human::counted(args.cost, "unit");
    let mut head = format!("Domain   {name}, charged {}\n", domain.charging());
    for (place, entries) in (1..).zip(entries) {
        head += &format!("Request  descriptor {place}: {}\n", shown(entries));
    }
    head += &format!("Answer   a new client's request of {units} is {}\n", outcome(explanation.answer()));
    let rows: Vec<Vec<String>> = explanation.rules().map(|one| row(&one, entries)).collect();
    let applying = explanation.rules().filter(|one| one.reason().applies()).count();
    head += &match applying {
        0 => "Note     no rule applies, so nothing is limited\n".to_owned(),
        _ => String::new(),
    };
    let mut text = for_stdout(&head);
    if !rows.is_empty() {
        text += &format!("\n{}\n", table::table(COLUMNS, 7..9, rows, &[9, 0, 8, 10, 5]));
    }
    match explanation.others() as u64 {
        0 => text,
        others => {
            text + &for_stdout(&format!(
                "\nNot shown: {} that do not match.\n",
                human::counted(others, "other rule")
            ))
        }
    }
}

fn whole_json(
    args: &ExplainArgs,
    domain: &Domain,
    entries: &[Entries<'_>],
    explanation: &Explanation,
) -> Value {
    let pairs =
        |entries: &Entries<'_>| entries.iter().map(|(key, value)| json!([key, value])).collect::<Vec<_>>();
    let head = json!({
        "domain": domain.name(),
        "charging": domain.charging().to_string(),
        "shadow": domain.is_shadow(),
        "tier": args.request.tier,
        "cost": args.cost,
        "descriptors": entries.iter().map(pairs).collect::<Vec<_>>(),
    });
    merged([head, explanation_json(explanation)])
}
