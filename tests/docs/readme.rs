//! Checks the pages that a newcomer reads first: the README, CONTRIBUTING.md and SECURITY.md.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

const PAGES: [&str; 3] = ["README.md", "CONTRIBUTING.md", "SECURITY.md"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap()
}

/// Returns the anchors of a page's headings, as sites show them: lower case, hyphens for spaces, no punctuation.
fn anchors(page: &str) -> BTreeSet<String> {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let anchor =
        |heading: &str| heading.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
    let text = read(page);
    text.lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#').trim()))
        .collect()
}

#[test]
fn readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "README.md has {lines} lines, but may have 200: move details to a guide");
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut bad = Vec::new();
    for page in PAGES {
        let text = read(page);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("://")) {
            let (path, heading) =
                link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
            let path = if path.is_empty() { page } else { path };
            let leads =
                root().join(path).exists() && heading.is_none_or(|heading| anchors(path).contains(heading));
            if !leads {
                bad.push(format!("{page} links to {link}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The numbers that the README compares with those of governor and tower_governor.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn readme_counts_dependencies() {
    let text = read("README.md");
    for (features, words) in [("std", "Tollgate"), ("std,tower", "Tollgate with `tower`")] {
        let arguments =
            "tree --offline --package tollgate --edges normal --prefix none --format {p} --features";
        let output =
            Command::new(env!("CARGO")).current_dir(root()).args(arguments.split(' ')).arg(features).output();
        let output = output.expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let tree = String::from_utf8(output.stdout).expect("UTF-8");
        let crates: BTreeSet<&str> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        let counted = format!("{words} {})", crates.len() - 1);
        assert!(text.contains(&counted), "README.md does not say {counted:?}: {crates:?}");
    }
}
