//! Checks the pages that a newcomer reads first: the README, CONTRIBUTING.md and SECURITY.md.

use std::collections::BTreeSet;
use std::process::Command;

use super::read;

#[test]
fn readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "README.md has {lines} lines, but may have 200: move details to a guide");
}

/// Returns the types of the algorithms that a limit can have, from the documentation of `LimitKind`.
fn algorithms() -> BTreeSet<String> {
    let text = read("src/algorithm/limit/kind.rs");
    let kinds = text.split("pub enum LimitKind {").nth(1).unwrap().split("\n}").next().unwrap();
    let variants = kinds.lines().filter(|line| line.starts_with("    /// `"));
    let links = variants.filter_map(|line| line.split("[`").nth(1));
    links.map(|link| link.split([':', '`']).next().unwrap().to_owned()).collect()
}

/// The pages said nine, ten and eleven.
#[test]
fn pages_count_and_list_all_algorithms() {
    let all = algorithms();
    assert_eq!(all.len(), 10, "the pages below write the number as a word: {all:?}");
    for (page, words) in [
        ("README.md", "Ten algorithms."),
        ("CHANGELOG.md", "Ten algorithms:"),
        ("GUARANTEES.md", "of each of the ten algorithms"),
        ("docs/design.md", "| ten algorithms, one in each file"),
    ] {
        assert!(read(page).contains(words), "{page} does not say {words:?}");
    }
    for page in ["README.md", "GUARANTEES.md", "src/lib.rs"] {
        let text = read(page);
        let rows: Vec<_> = text.lines().filter(|line| line.contains("| ")).collect();
        // `Gcra`, [`Gcra`] or `SubWindow::strict`
        let is_listed = |name: &String| {
            rows.iter().any(|row| ["`", "::"].iter().any(|end| row.contains(&format!("`{name}{end}"))))
        };
        let missing: Vec<_> = all.iter().filter(|name| !is_listed(name)).collect();
        assert!(missing.is_empty(), "{page} lists no {missing:?}");
    }
}

/// A guide said 20 to 60 ns for any number of rules.
#[test]
fn guide_states_the_measured_cost_of_rules() {
    let (guide, results) = (read("docs/rules.md"), read("benches/results/cost.json"));
    for (rules, words) in [(10, "10 rules"), (1_000, "1,000 rules"), (10_000, "10,000 rules")] {
        let row = format!("\"chart\": \"rules\", \"subject\": \"tollgate rules\", \"x\": {rules}, \"ns\": ");
        let ns = results.split(&row).nth(1).unwrap().split(',').next().unwrap().parse::<f64>().unwrap();
        let digits = format!("{ns:.0}");
        let ns = match digits.split_at(digits.len().saturating_sub(3)) {
            ("", _) => digits,
            (thousands, rest) => format!("{thousands},{rest}"),
        };
        assert!(guide.contains(&format!("{ns} ns with {words}")), "{ns} ns with {words}");
    }
}

/// The numbers that the README compares with those of governor and tower_governor.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn readme_counts_dependencies() {
    let text = read("README.md");
    for (package, words) in [("tollgate", "Tollgate"), ("tollgate-tower", "`tollgate-tower`")] {
        let arguments = "tree --offline --edges normal --prefix none --format {p} --package";
        let output = Command::new(env!("CARGO"))
            .current_dir(super::root())
            .args(arguments.split(' '))
            .arg(package)
            .output();
        let output = output.expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).expect("UTF-8");
        let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        let counted = format!("{words} {})", crates.len() - 1);
        assert!(text.contains(&counted), "README.md does not say {counted:?}: {crates:?}");
    }
}
