//! `tollgate replay --rules`: who would be denied by files of rules, by rule and by key.
//!
//! ```text
//! fields of a record ──mapping──► descriptors ──rules, in log time──► answer ──tally──► tables, JSON, decisions, chart
//! ```

pub mod args;
pub mod mapping;
pub mod shown;
pub mod tally;

use std::collections::HashMap;

use self::args::RulesArgs;
use self::mapping::Mapping;
use self::shown::{Counted, Told};
use super::args::ReplayArgs;
use super::chart::{self, Series};
use super::error::Error;
use super::human;
use super::input::{self, Trace};
use super::{report, rules, say, synthetic};
use crate::ManualClock;
use crate::rules::{Config, Domain, Limit, Rules};
use crate::telemetry::Reading;

/// The rules, and what is to be known of them.
struct Loaded {
    rules: Rules<ManualClock>,
    domains: Vec<Domain>,
    /// The file of each rule, by identity.
    files: HashMap<Box<str>, String>,
}

/// Runs the replay.
///
/// # Errors
/// If the command line, the rules or the input are wrong, or output fails.
pub fn run(args: &ReplayArgs) -> Result<(), Error> {
    let by = &args.by_rules;
    let loaded = load(by)?;
    let domain = domain(by, &loaded.domains)?;
    let mut mapping = Mapping::new(&by.descriptor, by.tier.as_deref(), by.domain_field.as_deref())?;
    if by.descriptor.is_empty() {
        let asked = loaded.domains.iter().filter(|each| by.domain_field.is_some() || each.name() == domain);
        mapping.derive(asked.flat_map(|domain| domain.rules()));
    }
    let trace = read(args, &mapping)?;
    let mut about = about(&trace, &mapping, &loaded, args)?;

    let progress = super::bar(trace.records.len() as u64, "replaying");
    let sizes: Vec<usize> = loaded.domains.iter().map(|domain| domain.rules().len()).collect();
    let tally = tally::replay(&trace, &loaded.rules, &sizes, &domain, &mapping, &progress);
    progress.finish_and_clear();
    say(&report::skipped_lines(&trace));

    let counted = counted(&loaded);
    for Counted { rule, pressed, .. } in &counted {
        if let Some((_, denials @ 1..)) = pressed {
            about += &format!(
                "Note     rule {}: its store was short of room, and denied {} for debts that may not have been theirs; give it \
                 more memory\n",
                rule.identity,
                human::counted(*denials, "new key")
            );
        }
    }
    // Files first: if standard output is closed early, they are complete.
    if let Some(path) = &args.decisions {
        report::write_to(path, &tally.decisions)?;
    }
    if let Some(path) = &args.chart {
        let title = input::names(&by.rules);
        let series = [Series { title: &title, decisions: &tally.decisions }];
        let limits = human::counted(counted.len() as u64, "rule");
        chart::draw_series(path, &trace, &limits, &series)?;
    }
    let told = Told { trace: &trace, mapping: &mapping, rules: &counted, tally: &tally, top: args.top };
    let json = match &args.json {
        Some(path) => Some((path, told.json()?)),
        None => None,
    };
    super::finish(json, &about, || told.tables())
}

fn load(args: &RulesArgs) -> Result<Loaded, Error> {
    let (configs, warnings, errors) = rules::read(&args.rules);
    let of_file = |config: &Config| {
        let file = config.file().to_owned();
        config.rules().iter().map(move |rule| (rule.identity.clone(), file.clone())).collect::<Vec<_>>()
    };
    let files = configs.iter().flat_map(of_file).collect();
    let rules::Checked { domains, warnings, errors } =
        rules::merge(configs.clone(), args.merge_domains, warnings, errors);
    rules::say_problems(&warnings, &errors, say);
    if !errors.is_empty() {
        return Err(rules::too_wrong(errors.len(), args.rules.len()));
    }
    let shared = domains.iter().flat_map(Domain::rules).filter(|rule| rule.is_shared()).count();
    if shared > 0 {
        let rules = human::counted(shared as u64, "rule");
        say(&format!(
            "Note     {rules} with store: redis: counted as of one machine alone, without a server\n"
        ));
    }
    // A trace is of one machine, and is decided at its own times.
    let builder = Rules::builder().clock(ManualClock::default()).alone(true);
    let mut builder = builder.merge_domains(args.merge_domains);
    if let Some(charging) = args.charging {
        builder = builder.charging(charging.into());
    }
    Ok(Loaded {
        rules: builder.load(configs).map_err(|error| Error::run(error.to_string()))?,
        domains,
        files,
    })
}

/// What each rule counted.
fn counted(Loaded { rules, files, .. }: &Loaded) -> Vec<Counted> {
    let mut all = Vec::new();
    rules.for_each(|domain, rule, counts| {
        let file = files.get(&rule.identity).cloned().unwrap_or_default();
        all.push(Counted { domain: domain.to_owned(), rule: rule.clone(), file, counts, pressed: None });
    });
    // In the same order, of those rules that have a store.
    let mut stored = all.iter_mut().filter(|counted| matches!(counted.rule.limit, Limit::Quota { .. }));
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

/// The domain of all requests; empty if each says its own.
fn domain(args: &RulesArgs, domains: &[Domain]) -> Result<String, Error> {
    let known = || domains.iter().map(|domain| format!("{:?}", domain.name())).collect::<Vec<_>>().join(", ");
    match (&args.domain, domains) {
        _ if args.domain_field.is_some() => Ok(String::new()),
        (Some(name), _) if domains.iter().any(|domain| domain.name() == name) => Ok(name.clone()),
        (Some(name), _) => Err(Error::usage(format!(
            "--domain {name:?}: there are no rules for it; the files have {}",
            known()
        ))),
        (None, [domain]) => Ok(domain.name().to_owned()),
        (None, _) => Err(Error::usage(format!(
            "which domain do the requests belong to? The files have {}; choose one with --domain, or let a field say it \
             with --domain-field",
            known()
        ))),
    }
}

/// The requests with their fields; those of the made-up day have a client and nothing else.
fn read(args: &ReplayArgs, mapping: &Mapping) -> Result<Trace, Error> {
    let mut fields = mapping.fields();
    if args.input.files.is_empty() {
        let mut trace = synthetic::day();
        let keys = (0_u32..).take(trace.keys.len()).map(|id| trace.keys.name(id));
        let combinations = fields.of_keys("client", "the made-up day", keys)?;
        for record in &mut trace.records {
            record.key = combinations[record.key as usize];
        }
        trace.fields = Some(fields);
        return Ok(trace);
    }
    super::with_bar(&args.input, args.json.as_deref(), |selection, progress| {
        input::load_fields(selection, fields, progress)
    })
}

/// What was read, which rules, and as what requests are described.
fn about(trace: &Trace, mapping: &Mapping, loaded: &Loaded, args: &ReplayArgs) -> Result<String, Error> {
    let mut about = report::input_lines(trace, args.input.no_sort);
    for domain in &loaded.domains {
        let dry = if domain.is_shadow() { ", a dry run" } else { "" };
        let charging = args.by_rules.charging.map_or(domain.charging(), Into::into);
        about += &format!(
            "Rules    {} of domain {:?}, charged {charging}{dry} ({})\n",
            human::count(domain.rules().len() as u64),
            domain.name(),
            input::names(&args.by_rules.rules),
        );
    }
    let Some(fields) = &trace.fields else { return Ok(about) };
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
            "no field of the input is known to be a key of the rules ({keys}); say which with --descriptor KEY=FIELD"
        )));
    }
    for (at, shown) in described.iter().enumerate() {
        let derived =
            if mapping.derived && at == 0 { " (worked out from the rules; see --descriptor)" } else { "" };
        about += &format!("Asked as {shown}{derived}\n");
    }
    if mapping.derived && mapping.constants() > 1 {
        about += &format!(
            "Note     the rules have {} constants, and every request is asked as with each of them; say which with --descriptor\n",
            mapping.constants()
        );
    }
    if !lacking.is_empty() {
        about += &format!(
            "Note     no field is known to be {}, so rules for it are not asked; say which with --descriptor\n",
            lacking.join(", ")
        );
    }
    for rule in &mapping.left_out {
        about +=
            &format!("Note     rule {rule}: its key has no field of its own; say which with --descriptor\n");
    }
    if args.input.files.is_empty() {
        about += "Note     the made-up day has clients and no other field; name a log to replay\n";
    }
    Ok(about)
}
