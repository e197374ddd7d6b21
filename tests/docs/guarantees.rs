//! GUARANTEES.md and the evidence in `tests/evidence.tsv` agree with the code as far as names go: each row of the page has evidence; each
//! test, model, control, fuzz target and statistic that is named exists and is of its kind; and the commands that `ci/guarantees.sh`
//! derives run all that a row names, and nothing else. Ids count from 1.
//!
//! The commands themselves say whether the rows are green: `ci/guarantees.sh`.

use crate::skipped::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> Arc<str> {
    read(&root().join("GUARANTEES.md"))
}

/// A line of it is an id, a kind and a name, with tabs between.
fn evidence() -> Arc<str> {
    read(&root().join("tests/evidence.tsv"))
}

/// What `ci/guarantees.sh` would run for each row: an id and a command a line.
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
    /// A test or a statistic that runs only if ignored tests are asked for.
    Long,
    /// A test that runs under ThreadSanitizer.
    Sanitized,
    Model,
    /// A model that needs no control: `guide::models` says why.
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

/// A row of the page, with its evidence.
struct Row {
    line: usize,
    id: String,
    promise: String,
    weaker: String,
    items: Vec<(usize, Kind, String)>,
    commands: Vec<String>,
}

/// The problems, each with its file and line.
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
            wrong.page(line, format!("a row has three cells, and this one {}", cells.len()));
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
            wrong.evidence(line, format!("a line has three fields, and this one {}", fields.len()));
            continue;
        };
        let Some(at) = rows.iter().position(|row| row.id == id) else {
            wrong.evidence(line, format!("GUARANTEES.md has no {id}"));
            continue;
        };
        if at < last {
            wrong.evidence(line, format!("{id} stands behind a later row's evidence"));
        }
        last = at;
        match Kind::of(word) {
            Some(kind) => rows[at].items.push((line, kind, name.to_owned())),
            None => wrong.evidence(line, format!("`{word}` before `{name}` is no kind of evidence")),
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
    /// Test programs; `lib` for the library's own, `bin` for the program's.
    programs: BTreeSet<String>,
    /// Tests that are ignored, too, or those alone.
    ignored: bool,
    others: bool,
    /// The only functions that it runs; all if there are none.
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
            if !root.join(format!("tests/{program}/main.rs")).is_file() {
                return Err(format!("there is no tests/{program}/main.rs"));
            }
            let entry = format!("[[test]]\nname = \"{program}\"\n");
            if manifest.contains(&entry) && !arguments.contains("--all-features") {
                return Err(format!("the program {program} needs features, and the command asks for none"));
            }
        }
        if arguments.split_whitespace().any(|word| word == "--lib") {
            runs.programs.insert("lib".to_owned());
        }
        if arguments.contains("--bin tollgate") {
            runs.programs.insert("bin".to_owned());
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
        _ => return Err(format!("{script} runs no tests")),
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

/// The file of a module: `src/room/module`, or `program::module` in `tests`, where the file above declares each module.
fn file_of(module: &str, root: &Path) -> Result<PathBuf, String> {
    let found = |base: &str| {
        let paths = [format!("{base}.rs"), format!("{base}/mod.rs"), format!("{base}/main.rs")];
        let path = paths.into_iter().map(|path| root.join(path)).find(|path| path.is_file());
        path.ok_or_else(|| format!("there is no {base}.rs"))
    };
    if module.starts_with("src/") {
        return found(module);
    }
    let mut parts = module.split("::");
    let mut base = format!("tests/{}", parts.next().unwrap_or_default());
    let mut path = found(&base)?;
    for part in parts {
        let declared = read(&path).lines().any(|line| line.trim_start().ends_with(&format!("mod {part};")));
        base = format!("{base}/{part}");
        path = found(&base)?;
        if !declared {
            return Err(format!("{base} is in no program"));
        }
    }
    Ok(path)
}

/// The program that runs the tests of a module; `lib` for the library's own, `bin` for the program's.
fn program_of(module: &str) -> &str {
    match module.strip_prefix("src/") {
        Some(inner) if inner.starts_with("bin/") => "bin",
        Some(_) => "lib",
        None => module.split("::").next().unwrap_or(module),
    }
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
    let (file, function) = name.rsplit_once("::").ok_or("a name is `module::function`")?;
    if matches!(kind, Kind::Model | Kind::LoneModel | Kind::Control) {
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
    if kind != Kind::Sanitized && found.ignored != (kind == Kind::Long) {
        return Err(format!(
            "it is {}ignored, and `long` is the kind of those",
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
    let what = if found.ignored { "runs it, which is an ignored one" } else { "runs it" };
    Err(format!("no command of {} {what}", row.id))
}

/// A command that runs nothing that its row names is there by mistake.
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

/// Everything that is wrong with a page and its evidence.
fn check(page: &str, evidence: &str, commands: &str, root: &Path) -> Vec<String> {
    let mut wrong = Complaints::default();
    let rows = rows(page, evidence, commands, &mut wrong);
    for (row, number) in rows.iter().zip(1..) {
        let line = row.line;
        if row.id != format!("G{number}") {
            wrong.page(line, format!("{} stands where G{number} should", row.id));
        }
        if row.promise.is_empty() {
            wrong.page(line, format!("{} promises nothing", row.id));
        }
        if !row.weaker.is_empty() && !row.weaker.ends_with('.') {
            wrong.page(line, format!("`{}` is no sentence about where {} is weaker", row.weaker, row.id));
        }
        let is = |kind: Kind| row.items.iter().any(|(_, other, _)| *other == kind);
        let kinds = [Kind::Test, Kind::Statistic, Kind::Long, Kind::Sanitized, Kind::Model, Kind::LoneModel];
        if !kinds.into_iter().any(is) {
            wrong.page(line, format!("nothing backs {}: no test, no model, no statistic", row.id));
        }
        if is(Kind::Model) && !is(Kind::Control) {
            let what =
                format!("{} has a model and no control; if it needs none, its kind is lone-model", row.id);
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
        // The sanitizer's script always runs the same.
        for (run, command) in
            runs.iter().zip(&row.commands).filter(|(_, command)| !command.starts_with("ci/tsan.sh"))
        {
            if let Some(what) = unused(row, run) {
                wrong.page(line, format!("`{command}`: nothing of {} is in {what}", row.id));
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
                wrong.page(number + 1, format!("there is no {word}"));
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
fn every_item_exists_and_is_run() {
    if is_package() {
        return;
    }
    let wrong = check(&page(), &evidence(), &commands(), &root());
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn page_is_published() {
    assert!(read(&root().join("src/lib.rs")).contains("include_str!(\"../GUARANTEES.md\")"));
    let manifest = read(&root().join("Cargo.toml"));
    // Cargo leaves no such list in the manifest of a package.
    let include = manifest.lines().find(|line| line.starts_with("include = [\""));
    assert!(include.is_none_or(|line| line.contains("GUARANTEES.md")), "{include:?}");
}

/// A text with the first `from` in it made `to`.
#[track_caller]
fn with(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from} is not there: this test wants another example");
    text.replacen(from, to, 1)
}

/// The problems of a page with another text in the place of `from`.
#[track_caller]
fn broken_page(from: &str, to: &str) -> Vec<String> {
    check(&with(&page(), from, to), &evidence(), &commands(), &root())
}

/// The problems of evidence with another text in the place of `from`.
#[track_caller]
fn broken_evidence(from: &str, to: &str) -> Vec<String> {
    check(&page(), &with(&evidence(), from, to), &commands(), &root())
}

/// The problems if a row had another command.
#[track_caller]
fn broken_command(from: &str, to: &str) -> Vec<String> {
    check(&page(), &evidence(), &with(&commands(), from, to), &root())
}

#[track_caller]
fn assert_found(wrong: &[String], what: &str) {
    assert!(wrong.iter().any(|it| it.contains(what)), "{what}: {wrong:?}");
}

/// The first line of evidence of a kind: its number and its name.
fn example(word: &str) -> (usize, String) {
    let evidence = evidence();
    let fields = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
    let lines = evidence.lines().map(fields).zip(1..);
    let found = lines.into_iter().find(|(fields, _)| fields[1] == word);
    let (fields, number) = found.unwrap_or_else(|| panic!("there is no {word}"));
    (number, fields[2].clone())
}

#[test]
fn wrong_name_is_found_with_its_line() {
    if is_package() {
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
    // A file that is not there, and a function that is no test.
    let (_, name) = example("test");
    let (module, function) = name.rsplit_once("::").expect("a module");
    assert_found(&broken_evidence(&name, &format!("{module}_x::{function}")), "there is no tests/");
    let helper = broken_evidence(&name, &format!("{module}::{}", &function[..function.len() - 3]));
    assert!(helper.iter().any(|it| it.contains("no such function") || it.contains("no test")), "{helper:?}");
}

#[test]
fn model_is_no_control_and_control_no_model() {
    if is_package() {
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
    assert_found(&broken_evidence("\tlone-model\t", "\tmodel\t"), "has a model and no control");
}

#[test]
fn wrong_command_is_found() {
    if is_package() {
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
    assert_found(&broken_command(&filter, "\n"), "an ignored one");
    assert_found(&broken_command(&filter, " -- --ignored another\n"), "an ignored one");
    assert_found(&broken_command(&flag, &format!("{flag} --test process")), "is in process");
    assert_found(
        &broken_command("cargo test --all-features --test telemetry", "cargo test --test telemetry"),
        "needs features",
    );
    assert_found(&broken_evidence("\tlong\t", "\ttest\t"), "it is ignored");
    assert_found(&broken_evidence("\ttest\t", "\tlong\t"), "it is not ignored");
}

#[test]
fn ids_count_and_promises_have_evidence() {
    if is_package() {
        return;
    }
    assert_found(&broken_page("\n| G2 | ", "\n| G1 | "), "G1 stands where G2 should");
    assert_found(&broken_page("\n| G2 | ", "\n| G4 | "), "G4 stands where G2 should");
    assert_found(&broken_page("\n| G2 | ", "\n| G2 | a cell | "), "a row has three cells");
    assert_found(&broken_page("0: G2", "0: G9999"), "there is no G9999");
    assert_found(&broken_evidence("\ttest\t", "\thope\t"), "`hope` before");
    assert_found(&broken_evidence("G2\t", "G9999\t"), "GUARANTEES.md has no G9999");
    assert_found(&broken_evidence("G3\t", "G1\t"), "stands behind a later row's evidence");
    let page = page();
    let (first, second) =
        (page.find("\n| G1 | ").expect("a first row"), page.find("\n| G2 | ").expect("a second"));
    let row = page[first..second].trim_end();
    let promise = row.split(" | ").nth(1).expect("a promise");
    assert_found(&broken_page(promise, ""), "G1 promises nothing");
    assert_found(&broken_page(row, &format!("\n| G1 | {promise} | somewhat |")), "`somewhat` is no sentence");
    let bare: String =
        evidence().lines().filter(|line| !line.starts_with("G1\t")).map(|line| format!("{line}\n")).collect();
    let wrong = check(&page, &bare, &commands(), &root());
    assert_found(&wrong, "nothing backs G1");
    assert_found(&check("# Nothing\n", "", "", &root()), "no row was found");
}
