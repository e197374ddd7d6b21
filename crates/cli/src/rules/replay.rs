//! `tollgate replay --rules`: the requests that rule files would deny, by rule and by key.
//!
//! ```text
//! fields of a record ──mapping──► descriptors ──rules, in log time──► answer ──tally──► tables, JSON, decisions, chart
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use tollgate::ManualClock;
use tollgate::telemetry::Reading;
use tollgate_rules::{Amount, Config, Domain, Problem, Rule, Rules};

use super::mapping::Mapping;
use super::output::{CountedRule, RulesReplay};
use super::sections;
use super::tally;
use crate::args::ReplayArgs;
use crate::args::rules::{MappingArgs, RulesArgs};
use crate::input::wanted::Fields;
use crate::input::{Selection, Trace, names, warning};
use crate::load;
use crate::output::{about, progress, writable};
use crate::replay::{FinishedReplay, write_results};
use tollgate_report::error::Error;
use tollgate_report::files::RuleFiles;
use tollgate_report::human;
use tollgate_report::output::say;

/// The rules and their data.
struct LoadedRules<'a> {
    rules: Rules<ManualClock>,
    domains: &'a [Domain],
    /// The file of each rule, by identity.
    files: HashMap<Box<str>, String>,
}

/// Runs the replay.
///
/// # Errors
/// Returns an error if the command line, the rules or the input are invalid, or if output fails.
pub fn run(args: &ReplayArgs) -> Result<(), Error> {
    let by = &args.by_rules;
    let files = RuleFiles::read(&by.rules, by.merge_domains);
    files.usable()?;
    let shared = files.domains.iter().flat_map(Domain::rules).filter(|rule| rule.is_shared()).count();
    if shared > 0 {
        let rules = human::counted(shared as u64, "rule");
        say(&format!("Note     {rules} with store: redis: replayed as on one machine, without a server\n"));
    }
    let loaded = loaded(by, &files)?;
    writable(args.outputs())?;
    let (replay, mut about) = replay(&loaded, by, &args.input, args.json.as_deref())?;
    for CountedRule { rule, pressed, .. } in &replay.rules {
        if let Some((_, denials @ 1..)) = pressed {
            about += &format!(
                "Note     rule {}: its store was full, and denied {} because of debts that may belong to other keys; give it \
                 more memory\n",
                rule.identity,
                human::counted(*denials, "new key")
            );
        }
    }
    let finished = FinishedReplay {
        trace: &replay.trace,
        limits: human::counted(replay.rules.len() as u64, "rule"),
        series: vec![(names(&by.rules), &replay.tally.decisions.bytes[..])],
        about,
    };
    let (json, tables) = (|| replay.json(args.top), || replay.tables(args.top));
    write_results(args, &finished, || sections::all(&replay, args.top), json, tables)
}

/// Returns the warnings about rules that apply to no request of a log, and an error if more than a tenth of the log was
/// skipped. Prints what was read, and the descriptors.
///
/// # Errors
/// Returns an error if the command line or the input is invalid.
pub fn unmatched(
    by: &RulesArgs,
    input: &Selection,
    files: &RuleFiles,
) -> Result<(Vec<Problem>, Result<(), Error>), Error> {
    let loaded = loaded(by, files)?;
    let (replay, about) = replay(&loaded, by, input, None)?;
    say(&about);
    let requests = human::counted(replay.trace.records.len() as u64, "request");
    let problem = |(_, rule): (Box<str>, Rule)| {
        let file = loaded.files.get(&rule.identity).map_or("", String::as_str);
        let message = format!("the rule {:?} applies to none of the {requests} of the log", rule.identity);
        let remedy = "correct its keys and values, or describe the requests with --descriptor";
        Problem::of_line(file, rule.line, &message, remedy)
    };
    let used = replay.trace.mostly_used(input.allow_skipped);
    Ok((loaded.rules.unmatched().into_iter().map(problem).collect(), used))
}

/// Reads a log and decides each of its requests by the rules. Also prints what was read, and the descriptors.
fn replay(
    loaded: &LoadedRules<'_>,
    by: &RulesArgs,
    input: &Selection,
    json: Option<&Path>,
) -> Result<(RulesReplay, String), Error> {
    let asked = &by.mapping;
    let domain = domain(asked, loaded.domains)?;
    let mut mapping = Mapping::new(&asked.descriptor, asked.tier.as_deref(), asked.domain_field.as_deref())?;
    if asked.descriptor.is_empty() {
        let domains = loaded.domains.iter();
        let domains = domains.filter(|each| asked.domain_field.is_some() || each.name() == domain);
        mapping.derive(domains.flat_map(|domain| domain.rules()));
    }
    let input = &Selection { clients: input.clients.whole_by_default(), ..input.clone() };
    let mut trace = load::requests(input, json, Some(mapping.fields()))?;
    if let (Some(clients), Some(fields)) = (trace.clients, &mut trace.fields) {
        fields.cut(clients);
    }
    let found = warnings(&trace, &mapping);
    trace.warnings.extend(found);
    trace.warnings.extend(with_queries(&trace, &mapping, loaded.domains));
    let about = about_rules(&trace, &mapping, loaded, by, input)?;

    let progress = progress::bar(trace.records.len() as u64, "replaying");
    let sizes: Vec<usize> = loaded.domains.iter().map(|domain| domain.rules().len()).collect();
    let tally = tally::replay(&trace, &loaded.rules, &sizes, &domain, &mapping, &progress);
    progress.finish_and_clear();
    say(&about::skipped_lines(&trace));
    Ok((RulesReplay { trace, mapping, rules: counted(loaded), tally }, about))
}

/// Builds the rules of the files for one machine, with the times of a trace.
fn loaded<'a>(args: &RulesArgs, files: &'a RuleFiles) -> Result<LoadedRules<'a>, Error> {
    let of_file = |config: &Config| {
        let file = config.file().to_owned();
        config.rules().iter().map(move |rule| (rule.identity.clone(), file.clone())).collect::<Vec<_>>()
    };
    let mut builder =
        Rules::builder().clock(ManualClock::default()).alone(true).merge_domains(args.merge_domains);
    if let Some(charging) = args.charging {
        builder = builder.charging(charging.into());
    }
    Ok(LoadedRules {
        rules: builder.load(files.configs.clone()).map_err(|error| Error::run(error.to_string()))?,
        domains: &files.domains,
        files: files.configs.iter().flat_map(of_file).collect(),
    })
}

/// Returns the counts of each rule.
fn counted(LoadedRules { rules, files, .. }: &LoadedRules<'_>) -> Vec<CountedRule> {
    let mut all = Vec::new();
    rules.for_each(|domain, rule, counts| {
        let file = files.get(&rule.identity).cloned().unwrap_or_default();
        all.push(CountedRule { domain: domain.to_owned(), rule: rule.clone(), file, counts, pressed: None });
    });
    // The rules that have a store, in the same order.
    let mut stored = all.iter_mut().filter(|counted| matches!(counted.rule.limit, Amount::Limited { .. }));
    rules.readings(|_, _, readings| {
        let counter = |wanted: &str| {
            readings.iter().find_map(|reading| match reading {
                Reading::Counter(name, value) if *name == wanted => Some(*value),
                _ => None,
            })
        };
        if let Some(counted) = stored.next() {
            counted.pressed = counter("tollgate_evictions").zip(counter("tollgate_debt_denials"));
        }
    });
    all
}

/// Returns the domain of all requests; empty if each request has its own.
fn domain(args: &MappingArgs, domains: &[Domain]) -> Result<String, Error> {
    let known = || domains.iter().map(|domain| format!("{:?}", domain.name())).collect::<Vec<_>>().join(", ");
    match (&args.domain, domains) {
        _ if args.domain_field.is_some() => Ok(String::new()),
        (Some(name), _) if domains.iter().any(|domain| domain.name() == name) => Ok(name.clone()),
        (Some(name), _) => Err(Error::usage(format!(
            "--domain {name:?}: no file has rules for this domain; use one of {}",
            known()
        ))),
        (None, [domain]) => Ok(domain.name().to_owned()),
        (None, _) => Err(Error::usage(format!(
            "which domain do the requests belong to? The files have {}; choose one with --domain, or name its field \
             with --domain-field",
            known()
        ))),
    }
}

/// Returns the likely problem with the clients' addresses.
fn warnings(trace: &Trace, mapping: &Mapping) -> Vec<String> {
    let Some(fields) = trace.fields.as_ref().filter(|_| trace.clients.is_some()) else { return Vec::new() };
    let about = |field: usize| {
        let mut counts = vec![0; fields.texts()];
        for text in trace.records.iter().filter_map(|record| fields.counted(record.key, field)) {
            counts[text as usize] += 1;
        }
        warning(&counts, |text| fields.text(text).to_owned(), "--descriptor")
    };
    mapping.clients().filter_map(about).collect()
}

/// Returns the warnings about rules for a path that requests have with a query, which is another value.
fn with_queries(trace: &Trace, mapping: &Mapping, domains: &[Domain]) -> Vec<String> {
    let Some(fields) = &trace.fields else { return Vec::new() };
    // The paths that rules name, with the rule. A pattern beside the path may match the query too.
    let mut rules: BTreeMap<(String, String), &str> = BTreeMap::new();
    for rule in domains.iter().flat_map(Domain::rules) {
        for (key, value) in rule.path() {
            if let Some(path) = value.filter(|value| value.starts_with('/')) {
                rules.entry((key, path)).or_insert(&rule.identity);
            }
        }
    }
    let keys: BTreeSet<(&str, usize)> =
        mapping.fields_of_keys().filter(|(key, _)| rules.keys().any(|(known, _)| known == key)).collect();
    let mut with_query: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (key, field) in keys {
        for text in trace.records.iter().filter_map(|record| fields.value(record.key, field)) {
            if let Some((path, _)) = fields.text(text).split_once('?') {
                *with_query.entry((key, path)).or_default() += 1;
            }
        }
    }
    let about = |((key, path), rule): (&(String, String), &&str)| {
        let requests = *with_query.get(&(&**key, &**path))?;
        let has_pattern = [format!("{path}*"), format!("{path}?*")]
            .into_iter()
            .any(|value| rules.contains_key(&(key.clone(), value)));
        (!has_pattern).then(|| {
            format!(
                "{} had the path {path:?} with a query, which is another value, so the rule {rule} does not apply, as at a \
                 gateway. To limit both, write value: {:?} and share_threshold: true (docs/paths.md)",
                human::counted(requests, "request"),
                format!("{path}*"),
            )
        })
    };
    rules.iter().filter_map(about).collect()
}

/// Returns the lines about what was read, the rules, and the descriptors of requests.
fn about_rules(
    trace: &Trace,
    mapping: &Mapping,
    loaded: &LoadedRules<'_>,
    by: &RulesArgs,
    input: &Selection,
) -> Result<String, Error> {
    let mut about = about::input_lines(trace, input.no_sort);
    for domain in loaded.domains {
        let dry = if domain.is_shadow() { ", in shadow mode (denies nothing)" } else { "" };
        let charging = by.charging.map_or(domain.charging(), Into::into);
        about += &format!(
            "Rules    {} of domain {:?}, charged {charging}{dry} ({})\n",
            human::count(domain.rules().len() as u64),
            domain.name(),
            names(&by.rules),
        );
    }
    let Some(fields) = &trace.fields else { return Ok(about) };
    about += &about_requests(mapping, fields)?;
    if input.files.is_empty() {
        about += "Note     the generated day has clients and no other fields; name a log to replay\n";
    }
    Ok(about)
}

/// Whether a field is known to have paths without their queries.
fn is_without_query(field: &str) -> bool {
    ["bare_path", "cs-uri-stem"].iter().any(|name| field.eq_ignore_ascii_case(name))
}

/// Returns the lines about the descriptors of requests, and about the keys that no field matches.
fn about_requests(mapping: &Mapping, fields: &Fields) -> Result<String, Error> {
    let mut about = String::new();
    let (mut described, mut lacking) = (Vec::new(), Vec::new());
    for at in 0..mapping.descriptors.len() {
        let (shown, without) = mapping.shown(at, fields);
        if without.is_empty() {
            described.push(shown.to_string());
        }
        lacking.extend(without);
    }
    lacking.sort();
    lacking.dedup();
    if described.is_empty() {
        let keys = if lacking.is_empty() { "none".to_owned() } else { lacking.join(", ") };
        return Err(Error::run(format!(
            "no field of the input matches a key of the rules ({keys}); name the fields with --descriptor KEY=FIELD"
        )));
    }
    for (at, shown) in described.iter().enumerate() {
        let derived =
            if mapping.derived && at == 0 { " (derived from the rules; see --descriptor)" } else { "" };
        about += &format!("Request  {shown}{derived}\n");
    }
    if mapping.derived && mapping.constants() > 1 {
        about += &format!(
            "Note     the rules have {} constants, and every request gets descriptors with each of them; to use only some, name them with --descriptor\n",
            mapping.constants()
        );
    }
    let of_paths = mapping.fields_of_keys().find(|(key, _)| matches!(*key, "path" | ":path"));
    if let Some(found) =
        of_paths.and_then(|(_, field)| fields.found(field)).filter(|name| is_without_query(name))
    {
        about += &format!("Note     {found} is the path without its query, and Envoy's :path has it\n");
    }
    if !lacking.is_empty() {
        about += &format!(
            "Note     no field matches {}, so rules for it apply to no request; name the field with --descriptor\n",
            lacking.join(", ")
        );
    }
    for rule in &mapping.left_out {
        about += &format!(
            "Note     rule {rule}: no field can be derived from its keys; name one with --descriptor\n"
        );
    }
    Ok(about)
}
