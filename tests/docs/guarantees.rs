//! Checks that the names in GUARANTEES.md and in `tests/evidence.tsv` agree with the code.
//!
//! 1. The ids of the page's rows count from 1, and each row has evidence.
//! 2. Each test, model, control, fuzz target and statistic in the evidence exists and has the stated kind.
//! 3. The commands that `ci/guarantees.sh` derives run everything that a row names, and nothing else.
//!
//! Whether the tests pass is not checked here: `ci/guarantees.sh` runs the commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use tollgate_testing::skipped::skip;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> Arc<str> {
    read(&root().join("GUARANTEES.md"))
}

/// Returns the evidence. Each line has an id, a kind and a name, separated by tabs.
fn evidence() -> Arc<str> {
    read(&root().join("tests/evidence.tsv"))
}

/// Returns the commands that `ci/guarantees.sh` would run: an id and a command on each line.
fn commands() -> Arc<str> {
    static LISTED: Mutex<Option<Arc<str>>> = Mutex::new(None);
    let mut listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    let list = listed.get_or_insert_with(|| {
        let output = Command::new("bash").args(["ci/guarantees.sh", "--list"]).current_dir(root()).output();
        let output = output.expect("bash runs ci/guarantees.sh");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("the list is UTF-8").into()
    });
    Arc::clone(list)
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Test,
    /// A measurement with fixed seeds.
    Statistic,
    /// A test or a statistic that is ignored by default.
    Long,
    /// A test that runs under ThreadSanitizer.
    Sanitized,
    Model,
    /// A model that needs no control; `docs/models.md` gives the reason.
    LoneModel,
    Control,
    Fuzz,
}

impl Kind {
    fn of(word: &str) -> Option<Self> {
        match word {
            "test" => Some(Self::Test),
            "statistic" => Some(Self::Statistic),
            "long" => Some(Self::Long),
            "sanitized" => Some(Self::Sanitized),
            "model" => Some(Self::Model),
            "lone-model" => Some(Self::LoneModel),
            "control" => Some(Self::Control),
            "fuzz" => Some(Self::Fuzz),
            _ => None,
        }
    }
}

/// A row of the page and its evidence.
struct Row {
    line: usize,
    id: String,
    promise: String,
    weaker: String,
    items: Vec<(usize, Kind, String)>,
    commands: Vec<String>,
}

/// The problems found, each with its file and line.
#[derive(Default)]
struct Complaints(Vec<String>);

impl Complaints {
    fn page(&mut self, line: usize, what: impl AsRef<str>) {
        self.0.push(format!("GUARANTEES.md:{line}: {}", what.as_ref()));
    }

    fn evidence(&mut self, line: usize, what: impl AsRef<str>) {
        self.0.push(format!("tests/evidence.tsv:{line}: {}", what.as_ref()));
    }
}

fn rows(page: &str, evidence: &str, commands: &str, wrong: &mut Complaints) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (number, text) in page.lines().enumerate() {
        let line = number + 1;
        if !text.strip_prefix("| G").is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit())) {
            continue;
        }
        let inner = text.strip_prefix('|').and_then(|text| text.strip_suffix('|')).unwrap_or(text);
        let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
        let &[id, promise, weaker] = cells.as_slice() else {
            wrong.page(line, format!("a row needs three cells, but this row has {}", cells.len()));
            continue;
        };
        let (id, promise, weaker) = (id.to_owned(), promise.to_owned(), weaker.to_owned());
        rows.push(Row { line, id, promise, weaker, items: Vec::new(), commands: Vec::new() });
    }
    let mut last = 0;
    for (number, text) in evidence.lines().enumerate() {
        let line = number + 1;
        let fields: Vec<&str> = text.split('\t').collect();
        let &[id, word, name] = fields.as_slice() else {
            wrong.evidence(
                line,
                format!("a line needs three fields (id, kind, name), but this line has {}", fields.len()),
            );
            continue;
        };
        let Some(at) = rows.iter().position(|row| row.id == id) else {
            wrong.evidence(line, format!("GUARANTEES.md has no row {id}"));
            continue;
        };
        if at < last {
            wrong.evidence(line, format!("the evidence of {id} comes after a later row's; sort by row"));
        }
        last = at;
        match Kind::of(word) {
            Some(kind) => rows[at].items.push((line, kind, name.to_owned())),
            None => {
                wrong.evidence(line, format!("`{word}`, the kind of `{name}`, is unknown; see `Kind::of`"));
            }
        }
    }
    for text in commands.lines() {
        let (id, command) = text.split_once('\t').unwrap_or((text, ""));
        if let Some(row) = rows.iter_mut().find(|row| row.id == id) {
            row.commands.push(command.to_owned());
        }
    }
    rows
}

/// The attributes of a test function that matter here.
struct Found {
    ignored: bool,
    panics: bool,
}

/// Finds the test of this name in a file's text.
fn test_in(source: &str, name: &str) -> Result<Found, &'static str> {
    let Some(at) = source.find(&format!("fn {name}(")) else { return Err("there is no such function") };
    // Attributes and comments are directly above the function.
    let ends = |line: &&str| line.is_empty() || line.ends_with(['}', ';', '{']);
    let begin = source[..at].rfind('\n').map_or(0, |end| end + 1);
    let lines = source[..begin].lines().rev().map(str::trim);
    let above: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
    let attribute = |word: &str| above.iter().any(|line| !line.starts_with("//") && line.contains(word));
    if !attribute("#[test]") && !attribute("#[tokio::test") {
        return Err("the function has no test attribute");
    }
    Ok(Found { ignored: attribute("ignore"), panics: attribute("should_panic") })
}

/// What a command runs.
#[derive(Default)]
struct Runs {
    /// Test programs; `lib` for the tests of the libraries.
    programs: BTreeSet<String>,
    /// Whether the command runs ignored tests (`ignored`) and other tests (`others`).
    ignored: bool,
    others: bool,
    /// The functions that the command runs; empty for all functions.
    functions: BTreeSet<String>,
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
        let (arguments, functions) = arguments.split_once(" -- --ignored").unwrap_or((arguments, ""));
        runs.functions = functions.split_whitespace().map(str::to_owned).collect();
        runs.programs = words_after(arguments, "--test").map(str::to_owned).collect();
        let manifest = read(&root.join("Cargo.toml"));
        for program in &runs.programs {
            program_folder(program, root)?;
            let entry = format!("[[test]]\nname = \"{program}\"\n");
            if manifest.contains(&entry) && !arguments.contains("--all-features") {
                return Err(format!(
                    "the program {program} needs features; add --all-features to the command"
                ));
            }
        }
        if arguments.split_whitespace().any(|word| word == "--lib") {
            runs.programs.insert("lib".to_owned());
        }
        return if runs.programs.is_empty() {
            Err("the command names no test program".to_owned())
        } else {
            Ok(runs)
        };
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
        _ => return Err(format!("{script} runs no tests")),
    }
    Ok(runs)
}

/// Returns a file's text, which is read only once. Returns an empty text if there is no such file.
fn read(path: &Path) -> Arc<str> {
    static FILES: Mutex<BTreeMap<PathBuf, Arc<str>>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let text =
        files.entry(path.to_owned()).or_insert_with(|| fs::read_to_string(path).unwrap_or_default().into());
    Arc::clone(text)
}

/// Returns the folder of a test program, in the root package or in one of `crates`.
fn program_folder(program: &str, root: &Path) -> Result<String, String> {
    let folders =
        ["tests", "crates/cli/tests", "crates/report/tests", "crates/serve/tests", "crates/soak/tests"]
            .map(|tests| format!("{tests}/{program}"));
    let folder = folders.into_iter().find(|folder| root.join(folder).join("main.rs").is_file());
    folder.ok_or_else(|| format!("there is no tests/{program}/main.rs"))
}

/// Returns the file of a module: `src/room/module`, or `program::module` in `tests`. In `tests`, the parent file must
/// declare each module.
fn file_of(module: &str, root: &Path) -> Result<PathBuf, String> {
    let found = |base: &str| {
        let paths = [format!("{base}.rs"), format!("{base}/mod.rs"), format!("{base}/main.rs")];
        let path = paths.into_iter().map(|path| root.join(path)).find(|path| path.is_file());
        path.ok_or_else(|| format!("there is no {base}.rs"))
    };
    if program_of(module) == "lib" {
        return found(module);
    }
    let mut parts = module.split("::");
    let mut base = program_folder(parts.next().unwrap_or_default(), root)?;
    let mut path = found(&base)?;
    for part in parts {
        let declared = read(&path).lines().any(|line| line.trim_start().ends_with(&format!("mod {part};")));
        base = format!("{base}/{part}");
        path = found(&base)?;
        if !declared {
            return Err(format!("no test program declares {base}"));
        }
    }
    Ok(path)
}

/// Returns the program that runs the tests of a module: `lib` for a library.
fn program_of(module: &str) -> &str {
    if module.starts_with("src/") || module.starts_with("crates/") {
        return "lib";
    }
    module.split("::").next().unwrap_or(module)
}

/// Checks that an item exists and that a command of its row runs it.
fn check_item(row: &Row, kind: Kind, name: &str, runs: &[Runs], root: &Path) -> Result<(), String> {
    if kind == Kind::Fuzz {
        let manifest = read(&root.join("fuzz/Cargo.toml"));
        let known = manifest.contains(&format!("\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\n"));
        if !known || !root.join(format!("fuzz/fuzz_targets/{name}.rs")).exists() {
            return Err("fuzz/ has no such target".to_owned());
        }
        let run = runs.iter().any(|runs| runs.fuzz.contains(name));
        return if run { Ok(()) } else { Err("no command of its row runs it".to_owned()) };
    }
    let (file, function) = name.rsplit_once("::").ok_or("a name has the form `module::function`")?;
    if matches!(kind, Kind::Model | Kind::LoneModel | Kind::Control) {
        let folder = root.join("src").join(file).join("models");
        let more = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let files = [root.join("src").join(file).join("models.rs")].into_iter().chain(more);
        let mut problem = format!("there is no src/{file}/models.rs");
        for path in files.filter(|path| path.exists()) {
            match test_in(&read(&path), function) {
                Ok(found) if found.panics != (kind == Kind::Control) => {
                    let not = if found.panics {
                        "the test has `should_panic`, so it is a control: make its kind `control`"
                    } else {
                        "a control must fail: it needs `should_panic`"
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
    if kind != Kind::Sanitized && found.ignored != (kind == Kind::Long) {
        return Err(format!(
            "it is {}ignored; use the kind `long` for ignored tests and only for them",
            if found.ignored { "" } else { "not " }
        ));
    }
    let fits = |runs: &&Runs| {
        let includes = if found.ignored { runs.ignored } else { runs.others };
        let filtered = runs.functions.is_empty() || runs.functions.contains(function);
        includes && filtered && runs.programs.contains(program_of(file))
    };
    if runs.iter().any(|runs| fits(&runs)) {
        return Ok(());
    }
    let what = if found.ignored {
        "runs it; it is an ignored test, so the command needs -- --ignored"
    } else {
        "runs it"
    };
    Err(format!("no command of {} {what}", row.id))
}

/// Returns a program, script or target that a command runs although its row names nothing in it.
fn unused<'a>(row: &Row, runs: &'a Runs) -> Option<&'a str> {
    let named = |kinds: &[Kind]| -> Vec<&str> {
        let of_kind = row.items.iter().filter(|(_, kind, _)| kinds.contains(kind));
        of_kind.map(|(_, _, name)| name.rsplit_once("::").map_or(name.as_str(), |(file, _)| file)).collect()
    };
    if runs.models && named(&[Kind::Model, Kind::LoneModel, Kind::Control]).is_empty() {
        return Some("ci/loom.sh");
    }
    let fuzzed = named(&[Kind::Fuzz]);
    if let Some(target) = runs.fuzz.iter().find(|target| !fuzzed.contains(&target.as_str())) {
        return Some(target);
    }
    let tested = named(&[Kind::Test, Kind::Statistic, Kind::Long]);
    let used = |program: &&String| tested.iter().any(|module| program_of(module) == *program);
    runs.programs.iter().find(|program| !used(program)).map(String::as_str)
}

/// Returns all problems of a page and its evidence.
fn check(page: &str, evidence: &str, commands: &str, root: &Path) -> Vec<String> {
    let mut wrong = Complaints::default();
    let rows = rows(page, evidence, commands, &mut wrong);
    for (row, number) in rows.iter().zip(1..) {
        let line = row.line;
        if row.id != format!("G{number}") {
            wrong.page(line, format!("the id is {}, but it must be G{number}", row.id));
        }
        if row.promise.is_empty() {
            wrong.page(line, format!("{} has no promise", row.id));
        }
        if !row.weaker.is_empty() && !row.weaker.ends_with('.') {
            wrong.page(
                line,
                format!("`{}`, where {} is weaker, must end with a full stop", row.weaker, row.id),
            );
        }
        let is = |kind: Kind| row.items.iter().any(|(_, other, _)| *other == kind);
        let kinds = [Kind::Test, Kind::Statistic, Kind::Long, Kind::Sanitized, Kind::Model, Kind::LoneModel];
        if !kinds.into_iter().any(is) {
            wrong.page(line, format!("{} has no evidence: add a test, a model or a statistic", row.id));
        }
        if is(Kind::Model) && !is(Kind::Control) {
            let what =
                format!("{} has a model but no control; if it needs none, use the kind lone-model", row.id);
            wrong.page(line, what);
        }
        if row.commands.is_empty() {
            wrong.page(line, format!("no command checks {}", row.id));
        }
        let mut runs = Vec::new();
        for command in &row.commands {
            match parse_command(command, root) {
                Ok(run) => runs.push(run),
                Err(reason) => wrong.page(line, format!("`{command}`: {reason}")),
            }
        }
        if runs.len() < row.commands.len() {
            continue;
        }
        for (at, kind, name) in &row.items {
            if let Err(reason) = check_item(row, *kind, name, &runs, root) {
                wrong.evidence(*at, format!("{kind:?} `{name}`: {reason}"));
            }
        }
        // The sanitizer's script always runs the same programs.
        for (run, command) in
            runs.iter().zip(&row.commands).filter(|(_, command)| !command.starts_with("ci/tsan.sh"))
        {
            if let Some(what) = unused(row, run) {
                wrong.page(line, format!("`{command}` runs {what}, but {} names nothing in it", row.id));
            }
        }
    }
    if rows.is_empty() {
        wrong.page(1, "no row was found");
    }
    for (number, text) in page.lines().enumerate() {
        for word in text.split(|it: char| !it.is_ascii_alphanumeric()) {
            let number_of = word.strip_prefix('G').and_then(|digits| digits.parse::<usize>().ok());
            if number_of.is_some_and(|it| it == 0 || it > rows.len()) {
                wrong.page(number + 1, format!("there is no row {word}"));
            }
        }
    }
    wrong.0
}

/// Returns whether this is the published package, which contains neither `ci` nor `fuzz`. If so, reports that the
/// test skips.
#[track_caller]
fn skip_in_package() -> bool {
    let packaged = !root().join("ci").exists();
    if packaged {
        skip("the published package has no `ci`; run this test in a checkout of the repository");
    }
    packaged
}

#[test]
fn evidence_items_exist_and_are_run() {
    if skip_in_package() {
        return;
    }
    let wrong = check(&page(), &evidence(), &commands(), &root());
    assert!(wrong.is_empty(), "{} problems:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn page_is_published() {
    let manifest = read(&root().join("Cargo.toml"));
    // Cargo removes this list from the manifest of a package.
    let include = manifest.lines().find(|line| line.starts_with("include = [\""));
    assert!(include.is_none_or(|line| line.contains("GUARANTEES.md")), "{include:?}");
}

/// Returns the text with its first `from` replaced by `to`.
#[track_caller]
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the text has no {from}: choose another example for this test");
    text.replacen(from, to, 1)
}

/// Returns the problems of a page in which `to` replaces `from`.
#[track_caller]
fn broken_page(from: &str, to: &str) -> Vec<String> {
    check(&with(&page(), from, to), &evidence(), &commands(), &root())
}

/// Returns the problems of evidence in which `to` replaces `from`.
#[track_caller]
fn broken_evidence(from: &str, to: &str) -> Vec<String> {
    check(&page(), &with(&evidence(), from, to), &commands(), &root())
}

/// Returns the problems if a command has `to` in place of `from`.
#[track_caller]
fn broken_command(from: &str, to: &str) -> Vec<String> {
    check(&page(), &evidence(), &with(&commands(), from, to), &root())
}

#[track_caller]
fn assert_found(wrong: &[String], what: &str) {
    assert!(wrong.iter().any(|it| it.contains(what)), "{what}: {wrong:?}");
}

/// Returns the first line of evidence of a kind: its number and its name.
fn example(word: &str) -> (usize, String) {
    let evidence = evidence();
    let fields = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let lines = evidence.lines().map(fields).zip(1..);
    let found = lines.into_iter().find(|(fields, _)| fields[1] == word);
    let (fields, number) = found.unwrap_or_else(|| panic!("there is no {word}"));
    (number, fields[2].clone())
}

#[test]
fn wrong_name_is_reported_with_line() {
    if skip_in_package() {
        return;
    }
    for word in ["test", "model", "lone-model", "control", "fuzz", "statistic", "long", "sanitized"] {
        let (line, name) = example(word);
        let wrong = broken_evidence(&format!("\t{word}\t{name}\n"), &format!("\t{word}\t{name}_x\n"));
        let place = format!("tests/evidence.tsv:{line}: ");
        assert!(
            wrong.iter().any(|it| it.starts_with(&place) && it.contains(&format!("`{name}_x`"))),
            "{word}: {wrong:?}"
        );
    }
    // A missing file, and a function that is not a test.
    let (_, name) = example("test");
    let (module, function) = name.rsplit_once("::").expect("a module");
    assert_found(&broken_evidence(&name, &format!("{module}_x::{function}")), "there is no tests/");
    let helper = broken_evidence(&name, &format!("{module}::{}", &function[..function.len() - 3]));
    assert!(
        helper.iter().any(|it| it.contains("no such function") || it.contains("no test attribute")),
        "{helper:?}"
    );
}

#[test]
fn models_and_controls_are_not_confused() {
    if skip_in_package() {
        return;
    }
    let (_, model) = example("model");
    let (_, control) = example("control");
    assert_found(
        &broken_evidence(&format!("\tcontrol\t{control}\n"), &format!("\tcontrol\t{model}\n")),
        "a control must fail",
    );
    assert_found(
        &broken_evidence(&format!("\tmodel\t{model}\n"), &format!("\tmodel\t{control}\n")),
        "it is a control",
    );
    assert_found(&broken_evidence("\tlone-model\t", "\tmodel\t"), "has a model but no control");
}

#[test]
fn wrong_command_is_reported() {
    if skip_in_package() {
        return;
    }
    let listed = commands();
    let (_, lone) = listed
        .lines()
        .find_map(|line| line.split_once("\tcargo test --all-features --test "))
        .expect("a command");
    let program = lone.split(' ').next().expect("a program");
    let flag = format!("--test {program}");
    assert_found(&broken_command(&flag, "--test nothing"), "there is no tests/nothing/main.rs");
    assert_found(&broken_command(&flag, "--test process"), "no command of");
    assert_found(&broken_command("\tci/loom.sh\n", "\tci/models.sh\n"), "there is no ci/models.sh");
    assert_found(
        &broken_command("\tci/fuzz.sh algorithm\n", "\tci/fuzz.sh keyed\n"),
        "no command of its row runs it",
    );
    let long = listed.lines().find_map(|line| line.split_once(" -- --ignored")).expect("a long test").1;
    let filter = format!(" -- --ignored{long}\n");
    assert_found(&broken_command(&filter, "\n"), "an ignored test");
    assert_found(&broken_command(&filter, " -- --ignored another\n"), "an ignored test");
    assert_found(&broken_command(&flag, &format!("{flag} --test process")), "runs process, but");
    assert_found(
        &broken_command("cargo test --all-features --test redis", "cargo test --test redis"),
        "needs features",
    );
    assert_found(&broken_evidence("\tlong\t", "\ttest\t"), "it is ignored");
    assert_found(&broken_evidence("\ttest\t", "\tlong\t"), "it is not ignored");
}

#[test]
fn row_ids_are_consecutive_with_evidence() {
    if skip_in_package() {
        return;
    }
    assert_found(&broken_page("\n| G2 | ", "\n| G1 | "), "the id is G1, but it must be G2");
    assert_found(&broken_page("\n| G2 | ", "\n| G4 | "), "the id is G4, but it must be G2");
    assert_found(&broken_page("\n| G2 | ", "\n| G2 | a cell | "), "a row needs three cells");
    assert_found(&broken_page("0: G2", "0: G9999"), "there is no row G9999");
    assert_found(&broken_evidence("\ttest\t", "\thope\t"), "`hope`, the kind of");
    assert_found(&broken_evidence("G2\t", "G9999\t"), "GUARANTEES.md has no row G9999");
    assert_found(&broken_evidence("G3\t", "G1\t"), "comes after a later row's");
    let page = page();
    let (first, second) =
        (page.find("\n| G1 | ").expect("a first row"), page.find("\n| G2 | ").expect("a second"));
    let row = page[first..second].trim_end();
    let promise = row.split(" | ").nth(1).expect("a promise");
    assert_found(&broken_page(promise, ""), "G1 has no promise");
    assert_found(&broken_page(row, &format!("\n| G1 | {promise} | somewhat |")), "`somewhat`, where");
    let bare: String =
        evidence().lines().filter(|line| !line.starts_with("G1\t")).map(|line| format!("{line}\n")).collect();
    let wrong = check(&page, &bare, &commands(), &root());
    assert_found(&wrong, "G1 has no evidence");
    assert_found(&check("# Nothing\n", "", "", &root()), "no row was found");
}
