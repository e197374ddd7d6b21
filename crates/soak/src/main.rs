//! A soak test: rounds of random scenes, for minutes or days. It compares each decision and each interval with the
//! documented guarantees.
//!
//! `cargo run --release -p tollgate-soak -- --help` lists the options.

use serde_json::json;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tollgate_soak::memory::resident;
use tollgate_soak::run::{Plan, Report, Tally, run};
use tollgate_soak::{Fault, SCENES};

const HELP: &str = "\
Soaks the limiters with random algorithms, stores, quotas, clocks, floods, reloads and races, and compares them with oracles.

Usage: cargo run --release -p tollgate-soak -- [MINUTES] [OPTIONS]

  MINUTES             the length in minutes; fractions such as 0.1 are allowed. Default: 1
  --seed N            repeats the random draws of the run with this seed. Default: a new seed, which is printed
  --from N            starts with this round of the seed, for example the round of a breach
  --only SCENE        runs only this scene
  --threads N         the number of threads, from 2 to 64. Default: twice the processors, plus one
  --sabotage FAULT    falsifies answers of the limiters, to test the soak itself: `admits` (some denied requests are admitted) or `denies`
  --json              prints the report as one line of JSON, without progress
  --help              prints this text

Scenes:
";

const AFTER: &str = "
A round runs one scene with one or more limiters, for 60 to 240 ms. Its random draws depend only on the seed and on the round's
number. So a breach that one thread found occurs again with `--seed` and `--from`. The order in which threads meet is not
repeated, so a race may need several runs.

A check is a decision that was compared with an oracle or a bound. An interval counts if its admissions were added up and
compared with the algorithm's bound. The resident memory must not grow: the second half may exceed the maximum of the first half
only by a fixed slack of 24 MiB.

Exit code: 0 if all guarantees held, 1 with a description of the first breach, 2 for wrong arguments.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{}", help());
        return ExitCode::SUCCESS;
    }
    let called = match Called::read(&args) {
        Ok(called) => called,
        Err(error) => {
            eprintln!("error: {error}\nRun with `--help` to see the options.");
            return ExitCode::from(2);
        }
    };
    let Called { plan, is_json } = called;
    if !is_json {
        let Plan { seed, length, threads, .. } = &plan;
        println!(
            "seed {seed}, {:.0} s, {threads} threads on {} processors",
            length.as_secs_f64(),
            processors()
        );
    }
    let mut told = Duration::ZERO;
    let report = run(&plan, |report| {
        if !is_json && report.took >= told + EACH {
            told = report.took;
            println!("{}", progress(report));
        }
    });
    if is_json {
        println!("{}", as_json(&plan, &report));
    } else {
        print!("{}", table(&report));
    }
    let Some(breach) = &report.breach else { return not_found(&plan) };
    eprintln!(
        "\nBREACH in round {} of seed {}, scene {}\n{}",
        breach.round, plan.seed, breach.scene, breach.story
    );
    let only = if plan.only.is_some() { format!(" --only {}", breach.scene) } else { String::new() };
    eprintln!(
        "\nAgain: -- 0.1 --seed {} --from {} --threads {}{only}",
        plan.seed, breach.round, plan.threads
    );
    ExitCode::FAILURE
}

/// The exit code if no breach was found: success, unless the run had to find one.
fn not_found(plan: &Plan) -> ExitCode {
    let Some(fault) = plan.fault else { return ExitCode::SUCCESS };
    let must = |place: usize| SCENES[place].finds.contains(&fault);
    if (0..SCENES.len()).filter(|place| plan.only.is_none_or(|only| only == *place)).any(must) {
        eprintln!("No scene detected the fault {fault:?}.");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// The time between two progress lines.
const EACH: Duration = Duration::from_secs(5);

fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn help() -> String {
    let scenes = SCENES.iter().map(|scene| format!("  {:<9} {}\n", scene.name, scene.about));
    std::iter::once(HELP.to_owned()).chain(scenes).chain([AFTER.to_owned()]).collect()
}

/// The parsed arguments.
struct Called {
    plan: Plan,
    is_json: bool,
}

impl Called {
    fn read(args: &[String]) -> Result<Self, String> {
        let mut plan = Plan {
            seed: tollgate::Clock::now(&tollgate::StdClock::new()).as_nanos() % 1_000_000_007,
            from: 0,
            length: Duration::from_secs(60),
            threads: (2 * processors() + 1).min(64),
            only: None,
            fault: None,
        };
        let (mut is_json, mut minutes) = (false, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let (name, within) =
                arg.split_once('=').map_or((&**arg, None), |(name, value)| (name, Some(value)));
            let mut value = || {
                within
                    .or_else(|| args.next().map(|value| &**value))
                    .ok_or_else(|| format!("`{name}` needs a value"))
            };
            match name {
                "--seed" => plan.seed = number(name, value()?)?,
                "--from" => plan.from = number(name, value()?)?,
                "--threads" => {
                    let threads = number(name, value()?)?;
                    let threads = usize::try_from(threads).ok().filter(|threads| (2..=64).contains(threads));
                    plan.threads = threads.ok_or("`--threads` must be from 2 to 64")?;
                }
                "--only" => plan.only = Some(scene(value()?)?),
                "--sabotage" => plan.fault = Some(fault(value()?)?),
                "--json" if within.is_none() => is_json = true,
                _ if name.starts_with('-') || within.is_some() => {
                    return Err(format!("there is no option `{arg}`"));
                }
                _ if minutes.is_some() => {
                    return Err(format!("pass only one number of minutes; remove `{arg}`"));
                }
                _ => {
                    let given: f64 =
                        name.parse().map_err(|_| format!("`{name}` is not a number of minutes"))?;
                    if !(given > 0.0 && given <= 1e6) {
                        return Err(format!(
                            "the number of minutes must be above 0 and at most a million, not {name}"
                        ));
                    }
                    minutes = Some(given);
                    plan.length = Duration::from_secs_f64(given * 60.0);
                }
            }
        }
        Ok(Self { plan, is_json })
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("`{name}` needs a whole number, and `{value}` is not one"))
}

fn scene(name: &str) -> Result<usize, String> {
    let known = || SCENES.iter().map(|scene| scene.name).collect::<Vec<_>>().join(", ");
    let found = SCENES.iter().position(|scene| scene.name == name);
    found.ok_or_else(|| format!("there is no scene `{name}`; use one of {}", known()))
}

fn fault(name: &str) -> Result<Fault, String> {
    match name {
        "admits" => Ok(Fault::Admits),
        "denies" => Ok(Fault::Denies),
        _ => Err(format!("there is no fault `{name}`; use admits or denies")),
    }
}

fn mib(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1_024.0
}

#[expect(clippy::cast_precision_loss, reason = "shown to three digits")]
fn rate(tally: &Tally) -> f64 {
    tally.checks as f64 / tally.took.as_secs_f64().max(1e-9) / 1e6
}

fn progress(report: &Report) -> String {
    let sum = report.sum();
    format!(
        "{:5.0} s {:6} rounds {:12} checks {:12} intervals  RSS {:6.1} MiB",
        report.took.as_secs_f64(),
        sum.rounds,
        sum.checks,
        sum.intervals,
        mib(report.memory.last)
    )
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "\n{:<9} {:>8} {:>13} {:>13} {:>11} {:>9}\n",
        "scene", "rounds", "checks", "intervals", "M checks/s", "breaches"
    );
    let sum = report.sum();
    let rows = SCENES.iter().map(|scene| scene.name).zip(&report.tallies).chain([("all", &sum)]);
    for (name, tally) in rows {
        let Tally { rounds, checks, intervals, breaches, .. } = tally;
        let _ = writeln!(
            text,
            "{name:<9} {rounds:>8} {checks:>13} {intervals:>13} {:>11.2} {breaches:>9}",
            rate(tally)
        );
    }
    let memory = &report.memory;
    let _ = match memory.start {
        None => writeln!(text, "\nRSS: not reported by this system"),
        Some(start) => writeln!(
            text,
            "\nRSS in MiB: {:.1} at the start, at most {:.1} in the first half and {:.1} in the second, {:.1} at the end",
            mib(start),
            mib(memory.warm),
            mib(memory.later),
            mib(resident().unwrap_or(memory.last))
        ),
    };
    text
}

fn as_json(plan: &Plan, report: &Report) -> serde_json::Value {
    let of = |tally: &Tally| {
        json!({
            "rounds": tally.rounds, "checks": tally.checks, "intervals": tally.intervals, "breaches": tally.breaches,
            "seconds": tally.took.as_secs_f64(), "million_checks_per_second": rate(tally),
        })
    };
    let scenes: serde_json::Map<_, _> =
        SCENES.iter().zip(&report.tallies).map(|(scene, tally)| (scene.name.to_owned(), of(tally))).collect();
    let memory = &report.memory;
    let bytes = |bytes: u64| memory.start.map(|_| bytes);
    json!({
        "seed": plan.seed, "threads": plan.threads, "seconds": report.took.as_secs_f64(),
        "all": of(&report.sum()), "scenes": scenes,
        "rss_bytes": {
            "start": memory.start, "first_half": bytes(memory.warm), "second_half": bytes(memory.later),
            "most": bytes(memory.most()), "end": bytes(memory.last),
        },
        "breach": report.breach.as_ref().map(|breach| {
            json!({ "scene": breach.scene, "round": breach.round, "story": breach.story })
        }),
    })
}
