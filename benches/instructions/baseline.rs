//! Compares the counts with those in the repository, and reports the paths that differ.

use std::process::{Command, ExitCode};

use serde_json::{Map, Value, json};

use crate::callgrind::Counts;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.json");
const TOLERANCE_PERCENT: f64 = 3.0;

/// Returns the compiler's version and its target.
fn compiler() -> String {
    let program = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(program).arg("-vV").output();
    let text = output.map_or_else(|_| String::new(), |out| String::from_utf8_lossy(&out.stdout).into_owned());
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap_or("unknown");
    format!("{} for {host}", text.lines().next().unwrap_or("unknown"))
}

pub(crate) fn renew(counts: &Counts) -> ExitCode {
    let rounded: Map<String, Value> =
        counts.iter().map(|(path, count)| (path.clone(), json!((count * 10.0).round() / 10.0))).collect();
    let file = json!({
        "compiler": compiler(),
        "instructions_a_check": rounded,
    });
    std::fs::write(FILE, format!("{file:#}\n")).unwrap_or_else(|error| panic!("writing {FILE}: {error}"));
    println!("{FILE}: {} paths", counts.len());
    ExitCode::SUCCESS
}

pub(crate) fn compare(counts: &Counts) -> ExitCode {
    let text = std::fs::read_to_string(FILE).unwrap_or_else(|error| panic!("reading {FILE}: {error}"));
    let file: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{FILE}: {error}"));
    let kept = file["instructions_a_check"].as_object().expect("instructions_a_check is a JSON object");
    let mut faults = Vec::new();
    println!("{:<28} {:>8} {:>8} {:>9}   instructions per check", "", "now", "kept", "");
    for (path, &count) in counts {
        let Some(base) = kept.get(path).and_then(Value::as_f64) else {
            faults.push(format!("{path}: {count:.1} instructions per check, but the file has no count; run ci/instructions.sh --renew"));
            continue;
        };
        let percent = (count / base - 1.0) * 100.0;
        println!("{path:<28} {count:>8.1} {base:>8.1} {percent:>+7.1} %");
        if percent.abs() > TOLERANCE_PERCENT {
            let what = if percent > 0.0 {
                "more"
            } else {
                "fewer; run ci/instructions.sh --renew to keep the improvement"
            };
            faults.push(format!(
                "{path}: {count:.1} instructions per check, the file has {base:.1}: {:.1} % {what}",
                percent.abs()
            ));
        }
    }
    for path in kept.keys().filter(|path| !counts.contains_key(*path)) {
        faults.push(format!(
            "{path}: the file has a count, but no path has this name; run ci/instructions.sh --renew"
        ));
    }
    if faults.is_empty() {
        println!("all within {TOLERANCE_PERCENT} %");
        return ExitCode::SUCCESS;
    }
    eprintln!("\nMore than {TOLERANCE_PERCENT} % away from benches/instructions.json:");
    faults.iter().for_each(|fault| eprintln!("  {fault}"));
    let (now, then) = (compiler(), file["compiler"].as_str().unwrap_or("unknown"));
    if now != then {
        eprintln!(
            "The compiler of the file was {then}, and this compiler is {now}. That may explain the difference."
        );
    }
    eprintln!("If the change is intended, run ci/instructions.sh --renew and give the reason in the commit.");
    ExitCode::FAILURE
}
