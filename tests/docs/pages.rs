//! Checks all Markdown pages: their links lead to files and headings, their code has a language, and lists name all guides.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::{files, read, root};

/// The address of a file of the published package. Documentation in the code links the guides so.
const PACKAGE: &str = "https://docs.rs/crate/tollgate/latest/source/";

/// Returns the paths and the texts of all files with this ending.
fn texts(ending: &str) -> BTreeMap<PathBuf, String> {
    files("", ending).into_iter().map(|path| (path.clone(), read(path))).collect()
}

/// Returns a page without its blocks of code, and what is wrong with these blocks. In spans of code, no bracket begins or
/// ends a link, so other signs replace the brackets.
fn split(page: &str) -> (String, Vec<String>) {
    let (mut text, mut wrong, mut code) = (String::new(), Vec::new(), None);
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            code = if code.is_none() { Some(language) } else { None };
            wrong.extend((code == Some("")).then(|| "a block of code has no language".to_owned()));
        } else if let Some(language) = code {
            let is_hidden = language.starts_with("rust") && line.trim_start().starts_with("# ");
            wrong.extend(is_hidden.then(|| format!("rustdoc hides `{line}`, and sites show it")));
        } else {
            text += line;
            text.push('\n');
        }
    }
    let masked = |span: &str| span.replace('[', "⟨").replace(']', "⟩").replace('(', "‹").replace(')', "›");
    let spans = text.split('`').enumerate();
    let spans = spans.map(|(at, span)| if at % 2 == 1 { masked(span) } else { span.to_owned() });
    (spans.collect::<Vec<_>>().join("`"), wrong)
}

/// Returns what is between each `from` and the next `to`.
fn between<'a>(text: &'a str, from: &'a str, to: char) -> impl Iterator<Item = &'a str> {
    text.split(from).skip(1).filter_map(move |rest| Some(rest.split_once(to)?.0))
}

/// Returns the label and the target of a line that defines a link.
fn definition(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix('[')?.split_once("]: ").filter(|(_, target)| !target.contains(' '))
}

/// Returns the labels of the links that need a definition: `[text][label]` and `` [`label`] ``.
fn labels(text: &str) -> BTreeSet<String> {
    let short = text.split("[`").skip(1).filter_map(|rest| rest.split_once("`]"));
    let short = short.filter(|(name, after)| !name.contains(['`', ']']) && !after.starts_with(['(', '[']));
    between(text, "][", ']').map(str::to_owned).chain(short.map(|(name, _)| format!("`{name}`"))).collect()
}

/// Returns the anchors of a page's headings, as sites show them: lower case, hyphens for spaces, no punctuation.
fn anchors(page: &str) -> BTreeSet<String> {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let headings =
        page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_matches(['#', ' ']));
    headings.map(|it| it.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
}

/// Returns whether a link leads to a file, and to a heading if it names one.
fn leads(from: &Path, link: &str, pages: &BTreeMap<PathBuf, String>) -> bool {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { from.to_owned() } else { from.parent().unwrap().join(path) };
    let Ok(path) = path.canonicalize() else { return false };
    heading.is_none_or(|heading| pages.get(&path).is_some_and(|page| anchors(page).contains(heading)))
}

#[test]
fn links_lead_to_files_and_headings() {
    let (pages, mut links, mut bad) = (texts("md"), 0, Vec::new());
    for (path, page) in &pages {
        let (page_text, wrong) = split(page);
        let definitions: BTreeMap<_, _> = page_text.lines().filter_map(definition).collect();
        let text: String = page_text
            .lines()
            .filter(|line| definition(line).is_none())
            .map(|line| format!("{line}\n"))
            .collect();
        let mut complain = |what: String| bad.push(format!("{}: {what}", path.display()));
        wrong.into_iter().for_each(&mut complain);
        for label in labels(&text).iter().filter(|label| !definitions.contains_key(label.as_str())) {
            complain(format!("no definition of [{label}]"));
        }
        for label in definitions.keys().filter(|label| !text.contains(&format!("[{label}]"))) {
            complain(format!("no link uses the definition of [{label}]"));
        }
        for link in between(&text, "](", ')').chain(definitions.into_values()) {
            links += 1;
            if !link.contains("://") && !leads(path, link, &pages) {
                complain(format!("the link to {link} leads nowhere"));
            }
        }
    }
    for (path, code) in texts("rs").iter().filter(|(path, _)| !path.ends_with(file!())) {
        for link in code.split(PACKAGE).skip(1).filter_map(|rest| rest.split([')', '\n']).next()) {
            links += 1;
            if !leads(&root().join("Cargo.toml"), link, &pages) {
                bad.push(format!("{}: the link to {link} leads nowhere", path.display()));
            }
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    assert!(links > 500, "the search found only {links} links");
}

/// Checks that the index and the crate page name each guide, and that the examples of each guide are tests.
#[test]
fn guides_are_listed_and_tested() {
    let (index, library) = (read("docs/README.md"), read("src/lib.rs"));
    let tested = library.clone()
        + &read("crates/io/src/lib.rs")
        + &read("crates/redis/src/lib.rs")
        + &read("crates/rules/src/lib.rs")
        + &read("crates/tower/src/lib.rs")
        + &read("benches/guides/lib.rs");
    for (path, page) in texts("md").iter().filter(|(path, _)| path.parent() == Some(&root().join("docs"))) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "docs/README.md does not link {name}"
        );
        assert!(library.contains(&format!("{PACKAGE}docs/{name}")), "src/lib.rs does not link {name}");
        let is_tested = tested.contains(&format!("../docs/{name}\""));
        assert!(is_tested || !page.contains("```rust"), "no list of pages tests {name}");
    }
}
