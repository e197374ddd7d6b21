//! GUARANTEES.md is true of the code as far as names go: each test, model, control, fuzz target and statistic that it names exists and is
//! what it is called, each command runs all that its row names, ids count from 1, and no promise stands there with nothing behind it.
//!
//! Whether the rows are green is for the commands themselves: `ci/guarantees.sh`.

use crate::skipped::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

const PAGE: &str = include_str!("../../GUARANTEES.md");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Test,
    Statistic,
    Model,
    Control,
    Fuzz,
}

impl Kind {
    /// The word before a name, of one or of several.
    fn of(word: &str) -> Option<Self> {
        match word {
            "test" | "tests" => Some(Self::Test),
            "statistic" | "statistics" => Some(Self::Statistic),
            "model" | "models" => Some(Self::Model),
            "control" | "controls" => Some(Self::Control),
            "fuzz" => Some(Self::Fuzz),
            _ => None,
        }
    }
}

struct Row {
    line: usize,
    id: String,
    promise: String,
    holds: String,
    items: Vec<(Kind, String)>,
    /// That its models have no control.
    uncontrolled: bool,
    commands: Vec<String>,
}

/// What is wrong, by line.
#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn add(&mut self, line: usize, what: impl AsRef<str>) {
        self.0.push(format!("GUARANTEES.md:{line}: {}", what.as_ref()));
    }
}

/// The texts between backticks, each with the text before it; and the text after the last.
fn quoted(cell: &str) -> (Vec<(&str, &str)>, &str) {
    let parts: Vec<&str> = cell.split('`').collect();
    let names = parts.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    (names, if parts.len() % 2 == 1 { parts[parts.len() - 1] } else { "`" })
}

fn rows(page: &str, wrong: &mut Complaints) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, text) in page.lines().enumerate() {
        let line = number + 1;
        if !text.strip_prefix("| G").is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit())) {
            continue;
        }
        let cells: Vec<&str> = text.trim_matches('|').split(" | ").map(str::trim).collect();
        let &[id, promise, holds, backed, checked] = cells.as_slice() else {
            wrong.add(line, format!("a row has five cells, and this one {}", cells.len()));
            continue;
        };
        let mut row = Row {
            line,
            id: id.to_owned(),
            promise: promise.to_owned(),
            holds: holds.to_owned(),
            items: Vec::new(),
            uncontrolled: false,
            commands: quoted(checked).0.into_iter().map(|(_, command)| command.to_owned()).collect(),
        };
        let (names, rest) = quoted(backed);
        let mut kind = None;
        for before in names.iter().map(|(before, _)| *before).chain([rest]) {
            row.uncontrolled |= before.contains("(no control)");
        }
        for (before, name) in names {
            let before = before.replace("(no control)", "");
            for word in before.split([' ', ',', ';']).filter(|word| !word.is_empty()) {
                match Kind::of(word) {
                    Some(next) => kind = Some(next),
                    None => wrong.add(line, format!("`{word}` before `{name}` is no kind of backing")),
                }
            }
            match kind {
                Some(kind) => row.items.push((kind, name.to_owned())),
                None => wrong.add(line, format!("`{name}` is not said to be a test, a model or what else")),
            }
        }
        if !rest.replace("(no control)", "").trim().is_empty() {
            wrong.add(line, format!("`{rest}` at the end of what backs it"));
        }
        rows.push(row);
    }
    rows
}

/// A function with a test's attribute.
struct Found {
    ignored: bool,
    panics: bool,
}

/// The test of this name in a file's text.
fn test_in(source: &str, name: &str) -> Result<Found, &'static str> {
    let Some(at) = source.find(&format!("fn {name}(")) else { return Err("there is no such function") };
    // Attributes and comments stand right above it.
    let ends = |line: &&str| line.is_empty() || line.ends_with(['}', ';', '{']);
    let begin = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let lines = source[..begin].lines().rev().map(str::trim);
    let above: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
    let attribute = |word: &str| above.iter().any(|line| !line.starts_with("//") && line.contains(word));
    if !attribute("#[test]") && !attribute("#[tokio::test") {
        return Err("this function is no test");
    }
    Ok(Found { ignored: attribute("ignore"), panics: attribute("should_panic") })
}

/// What a command runs.
#[derive(Default)]
struct Runs {
    /// Test programs; `lib` for the library's own.
    programs: BTreeSet<String>,
    /// Tests that are ignored, too, or those alone.
    ignored: bool,
    others: bool,
    models: bool,
    fuzz: BTreeSet<String>,
}

fn words_after<'a>(text: &'a str, flag: &'a str) -> impl Iterator<Item = &'a str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let found: Vec<&str> = words.windows(2).filter(|pair| pair[0] == flag).map(|pair| pair[1]).collect();
    found.into_iter()
}

fn parse_command(command: &str, root: &Path) -> Result<Runs, String> {
    let mut runs = Runs { others: !command.contains(" --ignored"), ..Runs::default() };
    runs.ignored = command.contains("-ignored");
    if let Some(arguments) = command.strip_prefix("cargo test ") {
        runs.programs = words_after(arguments, "--test").map(str::to_owned).collect();
        let manifest = read(&root.join("Cargo.toml"));
        for program in &runs.programs {
            if !root.join(format!("tests/{program}/main.rs")).exists() {
                return Err(format!("there is no tests/{program}/main.rs"));
            }
            let entry = format!("[[test]]\nname = \"{program}\"\n");
            if manifest.contains(&entry) && !arguments.contains("--all-features") {
                return Err(format!("tests/{program} needs features, which it does not ask for"));
            }
        }
        if arguments.split_whitespace().any(|word| word == "--lib") {
            runs.programs.insert("lib".to_owned());
        }
        return if runs.programs.is_empty() { Err("it names no program".to_owned()) } else { Ok(runs) };
    }
    let (script, arguments) = command.split_once(' ').unwrap_or((command, ""));
    if !script.starts_with("ci/") || !root.join(script).exists() {
        return Err(format!("there is no {script}"));
    }
    match script {
        "ci/loom.sh" => runs.models = true,
        "ci/tsan.sh" => {
            runs.programs = words_after(&read(&root.join(script)), "--test").map(str::to_owned).collect();
        }
        "ci/fuzz.sh" => runs.fuzz = arguments.split_whitespace().map(str::to_owned).collect(),
        _ => return Err(format!("{script} is none that runs tests")),
    }
    Ok(runs)
}

/// A file's text, read once; nothing if there is none.
fn read(path: &Path) -> Arc<str> {
    static FILES: Mutex<BTreeMap<PathBuf, Arc<str>>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let text =
        files.entry(path.to_owned()).or_insert_with(|| fs::read_to_string(path).unwrap_or_default().into());
    Arc::clone(text)
}

/// The file of a place: `src/a/b`, or `program::module` in `tests`. Each of its modules is declared in the file above it.
fn file_of(place: &str, root: &Path) -> Result<PathBuf, String> {
    let found = |paths: [String; 2]| paths.into_iter().find(|path| root.join(path).exists());
    if place.starts_with("src/") {
        let path = found([format!("{place}.rs"), format!("{place}/mod.rs")]);
        return path.map(|path| root.join(path)).ok_or_else(|| format!("there is no {place}.rs"));
    }
    let (program, modules) = place.split_once("::").unwrap_or((place, ""));
    let mut folder = format!("tests/{program}");
    let mut path = format!("{folder}/main.rs");
    for module in modules.split("::").filter(|module| !module.is_empty()) {
        let declared = read(&root.join(&path)).lines().any(|line| line.ends_with(&format!("mod {module};")));
        folder = format!("{folder}/{module}");
        path = found([format!("{folder}.rs"), format!("{folder}/mod.rs")])
            .ok_or_else(|| format!("there is no {folder}.rs"))?;
        if !declared {
            return Err(format!("{path} is in no program"));
        }
    }
    if root.join(&path).exists() { Ok(root.join(path)) } else { Err(format!("there is no {path}")) }
}

/// The program that runs the tests of a place; `lib` for the library's own.
fn program_of(place: &str) -> &str {
    if place.starts_with("src/") { "lib" } else { place.split("::").next().unwrap_or(place) }
}

/// Whether an item exists, and which of the row's commands runs it.
fn check_item(row: &Row, kind: Kind, name: &str, runs: &[Runs], root: &Path) -> Result<(), String> {
    if kind == Kind::Fuzz {
        let manifest = read(&root.join("fuzz/Cargo.toml"));
        let known = manifest.contains(&format!("\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n"));
        if !known || !root.join(format!("fuzz/fuzz_targets/{name}.rs")).exists() {
            return Err("there is no such target in fuzz/".to_owned());
        }
        let run = runs.iter().any(|runs| runs.fuzz.contains(name));
        return if run { Ok(()) } else { Err("no command of its row runs it".to_owned()) };
    }
    let (file, function) = name.rsplit_once("::").ok_or("a name is `place::function`")?;
    if matches!(kind, Kind::Model | Kind::Control) {
        let folder = root.join("src").join(file).join("models");
        let more = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = [root.join("src").join(file).join("models.rs")].into_iter().chain(more);
        let mut problem = format!("there is no src/{file}/models.rs");
        for path in files.filter(|path| path.exists()) {
            match test_in(&read(&path), function) {
                Ok(found) if found.panics != (kind == Kind::Control) => {
                    let not = if found.panics {
                        "this one must fail: it is a control"
                    } else {
                        "a control must fail: `should_panic`"
                    };
                    return Err(not.to_owned());
                }
                Ok(_) => {
                    let run = runs.iter().any(|runs| runs.models);
                    return if run { Ok(()) } else { Err("no command of its row runs models".to_owned()) };
                }
                Err(reason) => problem = reason.to_owned(),
            }
        }
        return Err(problem);
    }
    let found = test_in(&read(&file_of(file, root)?), function)?;
    let fits = |runs: &&Runs| {
        let includes = if found.ignored { runs.ignored } else { runs.others };
        includes && runs.programs.contains(program_of(file))
    };
    if runs.iter().any(|runs| fits(&runs)) {
        return Ok(());
    }
    let what = if found.ignored { "runs it, which is an ignored one" } else { "runs it" };
    Err(format!("no command of {} {what}", row.id))
}

/// A command that runs nothing that its row names is there by mistake.
fn unused<'a>(row: &Row, runs: &'a Runs) -> Option<&'a str> {
    let named = |kinds: &[Kind]| -> Vec<&str> {
        let of_kind = row.items.iter().filter(|(kind, _)| kinds.contains(kind));
        of_kind.map(|(_, name)| name.rsplit_once("::").map_or(name.as_str(), |(file, _)| file)).collect()
    };
    if runs.models && named(&[Kind::Model, Kind::Control]).is_empty() {
        return Some("ci/loom.sh");
    }
    let fuzzed = named(&[Kind::Fuzz]);
    if let Some(target) = runs.fuzz.iter().find(|target| !fuzzed.contains(&target.as_str())) {
        return Some(target);
    }
    let tested = named(&[Kind::Test, Kind::Statistic]);
    let used = |program: &&String| tested.iter().any(|place| program_of(place) == program.as_str());
    runs.programs.iter().find(|program| !used(program)).map(String::as_str)
}

/// Everything that is wrong with a page.
fn check(page: &str, root: &Path) -> Vec<String> {
    let mut wrong = Complaints::default();
    let rows = rows(page, &mut wrong);
    for (row, number) in rows.iter().zip(1..) {
        let line = row.line;
        if row.id != format!("G{number}") {
            wrong.add(line, format!("{} stands where G{number} should", row.id));
        }
        if row.promise.is_empty() {
            wrong.add(line, format!("{} promises nothing", row.id));
        }
        if !["yes", "**weaker**", "**missed**"].contains(&row.holds.as_str()) {
            wrong.add(line, format!("`{}` is none of yes, **weaker**, **missed**", row.holds));
        }
        let is = |kind: Kind| row.items.iter().any(|(other, _)| *other == kind);
        if !is(Kind::Test) && !is(Kind::Model) && !is(Kind::Statistic) {
            wrong.add(line, format!("nothing backs {}: no test, no model, no statistic", row.id));
        }
        if is(Kind::Model) && !is(Kind::Control) && !row.uncontrolled {
            wrong.add(
                line,
                format!("{} has a model and no control; if there is none, say (no control)", row.id),
            );
        }
        if row.commands.is_empty() {
            wrong.add(line, format!("no command checks {}", row.id));
        }
        let mut runs = Vec::new();
        for command in &row.commands {
            match parse_command(command, root) {
                Ok(run) => runs.push(run),
                Err(reason) => wrong.add(line, format!("`{command}`: {reason}")),
            }
        }
        if runs.len() < row.commands.len() {
            continue;
        }
        for (kind, name) in &row.items {
            if let Err(reason) = check_item(row, *kind, name, &runs, root) {
                wrong.add(line, format!("{kind:?} `{name}`: {reason}"));
            }
        }
        // The sanitizer's script runs what it always does.
        for (run, command) in
            runs.iter().zip(&row.commands).filter(|(_, command)| !command.starts_with("ci/tsan.sh"))
        {
            if let Some(what) = unused(row, run) {
                wrong.add(line, format!("`{command}`: nothing of {} is in {what}", row.id));
            }
        }
    }
    if rows.is_empty() {
        wrong.add(1, "no row was found");
    }
    for (number, text) in page.lines().enumerate() {
        for word in text.split(|it: char| !it.is_ascii_alphanumeric()) {
            let number_of = word.strip_prefix('G').and_then(|digits| digits.parse::<usize>().ok());
            if number_of.is_some_and(|it| it == 0 || it > rows.len()) {
                wrong.add(number + 1, format!("there is no {word}"));
            }
        }
    }
    wrong.0
}

/// Of the package alone: neither `ci` nor `fuzz` is in it.
#[track_caller]
fn is_package() -> bool {
    let packaged = !root().join("ci").exists();
    if packaged {
        skip("this is no checkout");
    }
    packaged
}

#[test]
fn whatever_is_named_exists_and_is_run() {
    if is_package() {
        return;
    }
    let wrong = check(PAGE, &root());
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn it_is_published() {
    assert!(read(&root().join("src/lib.rs")).contains("include_str!(\"../GUARANTEES.md\")"));
    let manifest = read(&root().join("Cargo.toml"));
    // Cargo leaves no such list in the manifest of a package.
    let include = manifest.lines().find(|line| line.starts_with("include = [\""));
    assert!(include.is_none_or(|line| line.contains("GUARANTEES.md")), "{include:?}");
}

/// The page with the first `from` in it made `to`, and what is then wrong.
fn broken(from: &str, to: &str) -> Vec<String> {
    assert!(PAGE.contains(from), "{from} is not on the page: this test wants another example");
    check(&PAGE.replacen(from, to, 1), &root())
}

/// The first row that names something of a kind, by the word before it, and the name.
fn example(word: &str) -> (usize, String) {
    let rows = rows(PAGE, &mut Complaints::default());
    let kind = Kind::of(word).expect("a kind");
    let found =
        rows.iter().find_map(|row| Some((row.line, row.items.iter().find(|item| item.0 == kind)?.1.clone())));
    found.expect("the page has every kind")
}

#[test]
fn a_wrong_name_is_found_with_its_line() {
    if is_package() {
        return;
    }
    for word in ["test", "model", "control", "fuzz", "statistic"] {
        let (line, name) = example(word);
        let wrong = broken(&format!("`{name}`"), &format!("`{name}_x`"));
        let place = format!("GUARANTEES.md:{line}: ");
        assert!(
            wrong.iter().any(|it| it.starts_with(&place) && it.contains(&format!("`{name}_x`"))),
            "{word}: {wrong:?}"
        );
    }
    // A file that is not there, and a function that is no test.
    assert!(
        broken("`core::oracles::", "`core::oracle::")
            .iter()
            .any(|it| it.contains("there is no tests/core/oracle.rs"))
    );
    let helper =
        broken("`stress::one_stream_is_admitted_exactly_what_one_thread_would_be`", "`stress::one_stream`");
    assert!(helper.iter().any(|it| it.contains("no such function") || it.contains("no test")), "{helper:?}");
}

#[test]
fn a_model_is_no_control_and_a_control_no_model() {
    if is_package() {
        return;
    }
    let (_, model) = example("model");
    let (_, control) = example("control");
    let must_fail = broken(&format!("`{control}`"), &format!("`{model}`"));
    assert!(must_fail.iter().any(|it| it.contains("a control must fail")), "{must_fail:?}");
    let must_not = broken(&format!("`{model}`"), &format!("`{control}`"));
    assert!(must_not.iter().any(|it| it.contains("it is a control")), "{must_not:?}");
    let none = broken(" (no control)", "");
    assert!(none.iter().any(|it| it.contains("has a model and no control")), "{none:?}");
}

/// That the page with `to` in the place of `from` is complained of by these words.
fn found(from: &str, to: &str, what: &str) {
    let wrong = broken(from, to);
    assert!(wrong.iter().any(|it| it.contains(what)), "{from} as {to}: {wrong:?}");
}

#[test]
fn a_wrong_command_is_found() {
    if is_package() {
        return;
    }
    found("--test process`", "--test processes`", "there is no tests/processes/main.rs");
    found("--test process`", "--test alloc`", "no command of");
    found("`ci/loom.sh`", "`ci/models.sh`", "there is no ci/models.sh");
    found("`ci/fuzz.sh algorithm`", "`ci/fuzz.sh keyed`", "no command of its row runs it");
    found("--test accuracy -- --ignored`", "--test accuracy`", "an ignored one");
    found("--test rules --test stress`", "--test rules --test stress --test alloc`", "is in alloc");
    found("cargo test --all-features --test telemetry`", "cargo test --test telemetry`", "needs features");
}

#[test]
fn ids_count_and_promises_have_backing() {
    if is_package() {
        return;
    }
    found("\n| G2 | ", "\n| G1 | ", "G1 stands where G2 should");
    found("\n| G2 | ", "\n| G4 | ", "G4 stands where G2 should");
    found(" | yes | ", " | certainly | ", "`certainly` is none of");
    found("0: G2", "0: G9999", "there is no G9999");
    found("| tests `", "| hope `", "`hope` before");
    let bare = PAGE.lines().find(|line| line.starts_with("| G1 | ")).expect("a first row");
    let cells: Vec<&str> = bare.trim_matches('|').split(" | ").collect();
    let backing = format!(" | {} | ", cells[3]);
    found(&backing, " |  | ", "nothing backs G1");
    assert!(check("# Nothing\n", &root()).iter().any(|it| it.contains("no row was found")));
}

#[test]
fn attributes_are_read_from_above_a_function() {
    let source = "fn helper() {\n}\n/// Says so.\n#[test]\n#[ignore = \"long\"]\nfn one() {}\n\n#[tokio::test(\n    start_paused = true\n)]\nasync fn two() {}\n\n#[test]\n#[should_panic(expected = \"x\")]\nfn three(\n";
    assert_eq!(test_in(source, "helper").err(), Some("this function is no test"));
    assert_eq!(test_in(source, "on").err(), Some("there is no such function"));
    let one = test_in(source, "one").expect("a test");
    assert!(one.ignored && !one.panics);
    let two = test_in(source, "two").expect("a test");
    assert!(!two.ignored && !two.panics);
    assert!(test_in(source, "three").expect("a test").panics);
}
