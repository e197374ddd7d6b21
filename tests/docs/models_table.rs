//! Checks that the table of models (`docs/models.md`) agrees with the sources. The table must name every file that
//! shares a word or a lock, and every model that it names must be a test.

use std::collections::BTreeSet;
use std::fs;

use super::{files, read, root};

/// The types of the shim that threads share, and its locks.
const SHARED: [&str; 9] =
    ["AtomicPtr", "AtomicU16", "AtomicU32", "AtomicU64", "AtomicUsize", "Mutex", "RwLock", "Condvar", "Swap"];

fn table() -> String {
    read("docs/models.md")
}

/// Returns the code without comments and without the tests at its foot.
fn code(text: &str) -> String {
    let end = ["#[cfg(test)]\nmod ", "#[cfg(all(test, not(tollgate_loom)))]\nmod tests {"]
        .iter()
        .filter_map(|tests| text.find(tests))
        .min()
        .unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

fn is_word(code: &str, word: &str) -> bool {
    let part = |char: char| char.is_alphanumeric() || char == '_';
    code.match_indices(word)
        .any(|(at, _)| !code[..at].ends_with(part) && !code[at + word.len()..].starts_with(part))
}

#[test]
fn sharing_files_are_in_models_table() {
    let packages = ["cli", "config", "http", "io", "protocol", "redis", "resp", "rules", "serve", "tower"];
    let folders = packages.iter().map(|package| format!("crates/{package}/src")).chain(["src".to_owned()]);
    let (table, mut sharing) = (table(), 0);
    for file in folders.flat_map(|folder| files(folder, "rs")) {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
        let name = name.strip_prefix("src/").unwrap_or(&name);
        // Skips the shim itself, models, and tests in files of their own.
        if ["sync.rs", "base/sync.rs"].contains(&name)
            || name.contains("models")
            || name.ends_with("/tests.rs")
        {
            continue;
        }
        let code = code(&read(&file));
        if SHARED.iter().any(|shared| is_word(&code, shared)) {
            sharing += 1;
            let named = [format!("`{name}`"), format!("`src/{name}`")];
            assert!(
                named.iter().any(|named| table.contains(named)),
                "docs/models.md does not name {name}: add it to the table"
            );
        }
    }
    assert!(sharing > 40, "the search found only {sharing} files");
}

/// Returns the texts between back-ticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn listed_models_are_tests() {
    let table = table();
    let mut models = 0;
    for name in quoted(&table) {
        let Some((module, test)) = name.rsplit_once("::").filter(|_| !name.contains(' ')) else {
            continue;
        };
        if test == "models" {
            continue;
        }
        // Without the name of a package, the path begins in the core.
        let (source, module) = match module.strip_prefix("tollgate_").and_then(|rest| rest.split_once("::")) {
            Some((package, module)) => (format!("crates/{package}/src"), module),
            None => ("src".to_owned(), module),
        };
        let base = root().join(source).join(module.replace("::", "/"));
        let text = fs::read_to_string(base.with_extension("rs"))
            .or_else(|_| fs::read_to_string(base.join("mod.rs")));
        let text = text.unwrap_or_else(|_| {
            panic!("docs/models.md names {name}, but there is no file {}", base.display())
        });
        let at = text
            .find(&format!("fn {test}("))
            .unwrap_or_else(|| panic!("docs/models.md names {name}, but the module has no such function"));
        // The attributes are the lines directly above the function that begin with `#[`.
        let attributes: Vec<_> = text[..at].lines().rev().take_while(|line| line.starts_with("#[")).collect();
        assert!(attributes.contains(&"#[test]"), "docs/models.md names {name}, which is not a test");
        let fails = attributes.iter().any(|line| line.starts_with("#[should_panic(expected"));
        assert!(
            fails || !test.contains("control_"),
            "{name} is a control, so it needs `#[should_panic(expected = …)]`"
        );
        models += 1;
    }
    assert!(models > 100, "the search found only {models} models");
}

#[test]
fn listed_files_exist() {
    let table = table();
    for name in quoted(&table).into_iter().filter(|name| name.ends_with(".rs") || name.ends_with(".sh")) {
        let there = [root().join(name), root().join("src").join(name)];
        assert!(
            there.iter().any(|path| path.is_file()),
            "docs/models.md names {name}, but there is no such file"
        );
    }
}

/// Checks that the table names every module of models.
#[test]
fn every_models_module_is_listed() {
    let table = table();
    for (source, package) in
        [("src", ""), ("crates/redis/src", "tollgate_redis::"), ("crates/rules/src", "tollgate_rules::")]
    {
        let modules = files(source, "rs").into_iter().filter(|file| {
            ["models.rs", "many.rs", "models/mod.rs"].iter().any(|name| file.ends_with(name))
                && read(file).contains("#[test]")
        });
        for file in modules {
            let name = file.strip_prefix(root().join(source)).unwrap().with_extension("");
            let name = name.to_str().unwrap().replace(['/', '\\'], "::");
            let name = name.strip_suffix("::mod").unwrap_or(&name);
            assert!(
                table.contains(&format!("`{package}{name}::")),
                "docs/models.md does not name {package}{name}: add it to the table"
            );
        }
    }
}
