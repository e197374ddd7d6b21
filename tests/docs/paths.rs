//! Checks that the files and the functions that documents name exist.

use std::path::PathBuf;

use super::{below, read, root};

const DOCUMENTS: [&str; 6] =
    ["docs/design.md", "tests/README.md", "ci/README.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"];

/// Returns the paths of all files and folders, relative to the root.
fn all_paths() -> Vec<String> {
    let relative = |path: PathBuf| path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
    below("").into_iter().map(relative).collect()
}

/// Returns the texts between back-ticks on one line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_path(text: &str) -> bool {
    let parts = text.bytes().all(|byte| byte.is_ascii_lowercase() || b"0123456789_./-".contains(&byte));
    let file = [".rs", ".sh", ".py", ".md", ".toml", ".tsv"].iter().any(|ending| text.ends_with(ending));
    parts
        && (file || text.trim_end_matches('/').contains('/'))
        && text.starts_with(|first: char| first.is_ascii_lowercase() || first == '.')
}

/// Returns the paths that `text` may mean: itself, or without the beginning of its path; `.rs` may be missing.
fn resolve<'a>(paths: &'a [String], text: &str) -> Vec<&'a String> {
    let text = text.trim_end_matches('/');
    let with_ending = format!("{text}.rs");
    let is = |path: &str, name: &str| path == name || path.ends_with(&format!("/{name}"));
    let exact = ["", "src/"].map(|under| format!("{under}{text}"));
    if let Some(path) = paths.iter().find(|path| exact.contains(path)) {
        return vec![path];
    }
    let (in_src, others): (Vec<_>, Vec<_>) = paths
        .iter()
        .filter(|path| is(path, text) || is(path, &with_ending))
        .partition(|path| path.starts_with("src/"));
    if in_src.is_empty() { others } else { in_src }
}

#[test]
fn named_paths_exist() {
    let (paths, mut named, mut bad) = (all_paths(), 0, Vec::new());
    for document in DOCUMENTS {
        let text = read(document);
        // `x` stands for any name.
        for path in text.lines().flat_map(quoted).filter(|text| is_path(text) && !text.starts_with("x/")) {
            named += 1;
            let meant = resolve(&paths, path);
            if meant.len() != 1 && (meant.is_empty() || path.contains('/')) {
                bad.push(format!("{document} names {path}, which is {meant:?}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(named > 100, "the search found only {named} paths");
}

/// The lists under "The path of a check" name the file of each function, or have named it before.
#[test]
fn paths_of_checks_name_functions_and_their_files() {
    let (paths, design) = (all_paths(), read("docs/design.md"));
    let (_, section) = design.split_once("\n## The path of a check\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let (mut files, mut functions, mut bad) = (Vec::<PathBuf>::new(), 0, Vec::new());
    for line in section.lines() {
        if line.starts_with("1. ") {
            files.clear();
        }
        if !line.starts_with(|first: char| first.is_ascii_digit()) {
            continue;
        }
        files.extend(
            quoted(line)
                .filter(|text| is_path(text))
                .map(|path| root().join(resolve(&paths, path).pop().unwrap_or_else(|| panic!("{path}")))),
        );
        let texts: Vec<String> = files.iter().map(read).collect();
        for name in quoted(line).filter(|text| !is_path(text) && !text.starts_with("Operation::")) {
            let (owner, function) = name.rsplit_once("::").unwrap_or(("", name));
            let owner = owner.rsplit("::").next().unwrap();
            let is_defined = texts.iter().any(|text| {
                text.contains(owner)
                    && ["(", "<"].iter().any(|after| text.contains(&format!("fn {function}{after}")))
            });
            functions += 1;
            if !is_defined {
                bad.push(format!("no file that the list names up to here defines {name}: {line}"));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(functions > 30, "the search found only {functions} functions");
}
