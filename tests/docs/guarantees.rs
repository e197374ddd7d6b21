//! Checks that each promise of GUARANTEES.md has evidence, and that each tag of evidence names a promise.
//!
//! A tag is a comment above a test, a model, its control or a fuzz target: the ids of the rows that it is evidence for,
//! such as `G12`, with commas between them.

use std::collections::BTreeMap;

use super::{files, read};

/// Rows with models that need no control. `docs/models.md` gives the reasons.
const WITHOUT_CONTROL: [&str; 2] = ["G46", "G57"];

fn is_id(word: &str) -> bool {
    word.strip_prefix('G')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit()))
}

/// Returns the ids of the page's rows, or what is wrong with them.
fn rows(page: &str) -> Result<Vec<String>, String> {
    let mut ids = Vec::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if !cells.get(1).is_some_and(|id| is_id(id)) {
            continue;
        }
        let id = format!("G{}", ids.len() + 1);
        let &[_, found, promise, weaker, _] = cells.as_slice() else {
            return Err(format!("{} has not three cells", cells[1]));
        };
        if found != id || promise.is_empty() || !(weaker.is_empty() || weaker.ends_with('.')) {
            return Err(format!(
                "the row after G{} must be: | {id} | a promise | nothing, or sentences |",
                ids.len()
            ));
        }
        ids.push(id);
    }
    let words = page.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| is_id(word));
    let missing: Vec<_> = words.filter(|word| !ids.iter().any(|id| id == word)).collect();
    if missing.is_empty() { Ok(ids) } else { Err(format!("there are no rows {missing:?}")) }
}

/// For each row, the numbers of its tests, models and controls.
type Evidence = BTreeMap<String, [usize; 3]>;

/// Adds the tags of a file, or returns what is wrong with one.
fn add_tags(path: &str, text: &str, rows: &mut Evidence) -> Result<(), String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(ids) = line.strip_prefix("// ").filter(|ids| is_id(ids.split([',', ' ']).next().unwrap()))
        else {
            continue;
        };
        let below = &lines[at + 1..];
        let end =
            below.iter().position(|line| line.contains("fn ") || line.is_empty()).unwrap_or(below.len());
        let is_test = below[..end].iter().any(|line| *line == "#[test]" || line.starts_with("#[tokio::test"));
        if !is_test && !below.first().is_some_and(|line| line.starts_with("fuzz_target!")) {
            return Err(format!("{path}:{}: no test and no fuzz target follows the tag", at + 1));
        }
        let is_control = below[..end].iter().any(|line| line.starts_with("#[should_panic"));
        for id in ids.split(", ") {
            let Some(row) = rows.get_mut(id) else {
                return Err(format!("{path}:{}: GUARANTEES.md has no row {id}", at + 1));
            };
            let is_model = path.contains("/models");
            row[if is_model { 1 + usize::from(is_control) } else { 0 }] += 1;
        }
    }
    Ok(())
}

#[test]
fn each_promise_has_evidence() {
    let ids = rows(&read("GUARANTEES.md")).unwrap_or_else(|wrong| panic!("GUARANTEES.md: {wrong}"));
    let mut rows: Evidence = ids.into_iter().map(|id| (id, [0; 3])).collect();
    for file in ["src", "crates", "tests", "fuzz"].iter().flat_map(|folder| files(folder, "rs")) {
        add_tags(file.to_str().unwrap(), &read(&file), &mut rows).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    for (id, [tests, models, controls]) in rows {
        assert!(tests + models > 0, "no test has the tag {id}");
        let needs_control = models > 0 && !WITHOUT_CONTROL.contains(&id.as_str());
        assert!(controls > 0 || !needs_control, "{id} has a model, but no model that must fail");
    }
}

#[test]
fn wrong_pages_and_tags_are_found() {
    let good = "| G1 | a promise | |\n| G2 | another | Rarely. |\nsee G2\n";
    assert_eq!(rows(good).unwrap(), ["G1", "G2"]);
    for (from, to) in
        [("G2 | a", "G3 | a"), ("a promise", ""), ("y.", "y"), ("another |", ""), ("see G2", "see G9")]
    {
        rows(&good.replacen(from, to, 1)).unwrap_err();
    }
    let tags = |text: &str| add_tags("a.rs", text, &mut Evidence::from([("G1".to_owned(), [0; 3])]));
    tags("// G1\n#[test]\n#[ignore]\nfn works() {").unwrap();
    tags("// G1\nfuzz_target!(|it: u8| {});").unwrap();
    for wrong in [
        "// G2\n#[test]\nfn x() {",
        "// G1 and more\n#[test]\nfn x() {",
        "// G1\nfn x() {",
        "// G1\n\n#[test]\nfn x() {",
    ] {
        tags(wrong).unwrap_err();
    }
}
