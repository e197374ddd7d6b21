//! A running service. The end of a test stops it.

use std::io::{BufRead as _, BufReader};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Grpc, LIMIT, PATIENCE, asking, block_on};

/// Rules for one domain, by which the tests count. Windows begin by the clock, so those of the tests are long: no test may
/// depend on the time of the day.
pub const RULES: &str = "
domain: rl
tollgate: {}
descriptors:
  - key: generic_key
    value: v
    rate_limit: { unit: year, every: 70, requests_per_unit: 1000000 }
  - key: once
    rate_limit: { unit: year, every: 70, requests_per_unit: 1 }
";

/// Returns rules with these settings and one limit, whose window lasts 70 years.
pub fn limit(settings: &str, key: &str, units: u64) -> String {
    let limit = format!("{{ unit: year, every: 70, requests_per_unit: {units} }}");
    format!("domain: rl\ntollgate: {{ {settings} }}\ndescriptors: [{{ key: {key}, rate_limit: {limit} }}]\n")
}

/// The settings of rules whose denials show that a decision is not that of the Redis server.
pub const SHARED: &str = "store: redis, mode: atomic, on_failure: closed, timeout: 60s";

/// A program that has the command `serve`.
pub trait Program {
    /// Where the program is.
    const PATH: &'static str;
}

/// Ten requests of each user, for years.
pub const TEN: &str = "
domain: rl
tollgate: {}
descriptors:
  - key: user
    rate_limit: { unit: year, every: 70, requests_per_unit: 10 }
";

/// Sends requests of a user, and returns how many were admitted.
pub fn admitted<P: Program>(server: &Server<P>, user: &str, requests: usize) -> usize {
    const OK: &[u8] = &[8, 1];
    const OVER: &[u8] = &[8, 2];
    block_on(async {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let mut admitted = 0;
        for _ in 0..requests {
            let answer = grpc.ok(LIMIT, &asking(&[("user", user)])).await;
            assert!(answer.starts_with(OK) || answer.starts_with(OVER));
            admitted += usize::from(answer.starts_with(OK));
        }
        admitted
    })
}

/// A process that serves.
pub struct Server<P: Program> {
    program: PhantomData<P>,
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    start: String,
    /// Whether a test has the exit code.
    code_is_taken: bool,
}

/// The result of a process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Returns a command without this process's variables, in the folder of the repository, which pages name.
pub fn command<P: Program>() -> Command {
    let mut command = Command::new(P::PATH);
    command.arg("serve").env_clear().current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
}

/// Runs the program to its end. `args` is split at spaces.
pub fn run<P: Program>(args: &str, variables: &[(&str, &str)]) -> Ended {
    let output = command::<P>()
        .args(args.split(' ').filter(|arg| !arg.is_empty()))
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    Ended::of(output)
}

impl Ended {
    pub fn of(output: Output) -> Self {
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert!(!stderr.contains("panicked"), "{stderr}");
        Self { code: output.status.code().unwrap_or(-1), stdout, stderr }
    }

    /// Asserts that the run failed with `code`, and that its messages contain each of `parts`.
    #[track_caller]
    pub fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {}", self.stderr);
        }
    }
}

/// The ports of all endpoints are free ones, and the end does not wait.
pub const FREE: &str = "--grpc 127.0.0.1:0 --http 127.0.0.1:0 --debug 127.0.0.1:0 --drain 0s";

impl<P: Program> Server<P> {
    /// Starts the program with free ports and these arguments, and waits until it serves.
    pub fn start(paths: &[&Path], args: &str) -> Self {
        // The last of two equal flags would be an error, so an argument replaces its default.
        let free = if args.contains("--drain ") { FREE.replace("--drain 0s", "") } else { FREE.to_owned() };
        Self::start_with(paths, &format!("{free} {args}"), &[])
    }

    /// Starts the program with these arguments and variables, and waits until it serves.
    pub fn start_with(paths: &[&Path], args: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = command::<P>();
        command.args(paths).args(args.split(' ').filter(|arg| !arg.is_empty()));
        Self::spawn(command, variables)
    }

    /// Starts a command, and waits until it serves.
    pub fn spawn(command: Command, variables: &[(&str, &str)]) -> Self {
        Self::spawn_until(" serves ", command, variables)
    }

    /// Starts a command, and waits for a line with this text, which names the endpoints.
    pub fn spawn_until(part: &str, mut command: Command, variables: &[(&str, &str)]) -> Self {
        let mut child = command
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&lines));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().unwrap().push(line);
            }
        });
        let mut server =
            Self { program: PhantomData, child, lines, start: String::new(), code_is_taken: false };
        server.start = server.wait_for_line(part);
        server
    }

    /// Returns the line at the start.
    pub fn start_line(&self) -> &str {
        &self.start
    }

    /// Returns all lines so far.
    pub fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    /// Waits for a line with this text, and returns it.
    #[track_caller]
    pub fn wait_for_line(&mut self, part: &str) -> String {
        let mut found = None;
        let ended = eventually(|| {
            let ended = self.child.try_wait().unwrap().is_some();
            found = self.lines.lock().unwrap().iter().find(|line| line.contains(part)).cloned();
            found.is_some() || ended
        });
        found.unwrap_or_else(|| panic!("no line with {part:?}, ended {ended}: {}", self.log()))
    }

    /// Returns the address of an endpoint, such as `grpc`.
    #[track_caller]
    pub fn address(&self, endpoint: &str) -> String {
        let (_, rest) = self.start.split_once(&format!("{endpoint} on ")).expect(&self.start);
        rest.split([',', ';', ' ']).next().unwrap().trim_end_matches("\"}").to_owned()
    }

    /// Returns the memory that the process uses, without the text of the program: a debug build has 30 MB of it, and more with
    /// each feature.
    pub fn resident_bytes(&self) -> u64 {
        let page = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = page.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Returns the number of open files.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn tasks(&self) -> impl Iterator<Item = PathBuf> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        tasks.map(|task| task.unwrap().path())
    }

    /// Returns the names of the threads.
    pub fn threads(&self) -> Vec<String> {
        // A thread can end meanwhile.
        self.tasks().filter_map(|task| std::fs::read_to_string(task.join("comm")).ok()).collect()
    }

    /// Returns the processor time of the threads with this name.
    pub fn processor_time(&self, name: &str) -> Duration {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let named = self.tasks().filter(|task| read(task.join("comm")).trim() == name);
        let ns =
            named.map(|task| read(task.join("schedstat")).split(' ').next().unwrap().parse::<u64>().unwrap());
        Duration::from_nanos(ns.sum())
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Returns the exit code if the server has ended, and -1 after a signal. The test then decides whether that is a good end.
    pub fn try_wait(&mut self) -> Option<i32> {
        let code = self.ended()?;
        self.code_is_taken = true;
        Some(code)
    }

    fn ended(&mut self) -> Option<i32> {
        Some(self.child.try_wait().unwrap()?.code().unwrap_or(-1))
    }

    /// Waits for the end, and returns the exit code.
    #[track_caller]
    pub fn wait(&mut self) -> i32 {
        let mut code = None;
        eventually(|| {
            code = self.try_wait();
            code.is_some()
        });
        code.unwrap_or_else(|| panic!("the server does not end: {}", self.log()))
    }

    /// Lets a test use the server, and then stops it.
    #[track_caller]
    pub fn during(mut self, test: impl AsyncFnOnce(&mut Self)) {
        block_on(test(&mut self));
    }

    /// Lets a test use the server until it ends by itself, and asserts that it ended well.
    #[track_caller]
    pub fn until_its_end(mut self, test: impl AsyncFnOnce(&mut Self)) {
        block_on(test(&mut self));
        assert_eq!(self.wait(), 0, "{}", self.log());
    }

    /// Ends the server before the test ends.
    #[track_caller]
    pub fn stop(self) {}
}

impl<P: Program> Drop for Server<P> {
    /// Ends the server as an operator does, and asserts that it ended well, unless the test has the exit code.
    fn drop(&mut self) {
        let mut code = Some(0);
        if !thread::panicking() && !self.code_is_taken {
            if self.ended().is_none() {
                self.signal("TERM");
            }
            eventually(|| {
                code = self.ended();
                code.is_some()
            });
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert_eq!(code, Some(0), "{}", self.log());
    }
}

/// Waits until a condition holds. Returns whether it does.
#[expect(clippy::disallowed_methods, reason = "another process needs real time")]
pub fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// A folder for one test, with the file `limits.yaml`.
pub struct Place<P: Program>(tempfile::TempDir, PhantomData<P>);

impl<P: Program> Place<P> {
    pub fn new() -> Self {
        Self::with(RULES)
    }

    /// Makes a folder with these rules.
    pub fn with(rules: impl AsRef<[u8]>) -> Self {
        let place = Self(tempfile::tempdir().unwrap(), PhantomData);
        place.write("limits.yaml", rules);
        place
    }

    /// Starts the program with free ports, the rules and these arguments, lets a test use it, and then stops it.
    #[track_caller]
    pub fn serve(&self, args: &str, test: impl AsyncFnOnce(&mut Server<P>)) {
        self.start(args).during(test);
    }

    /// Starts the program with free ports, the rules and these arguments. In them, `$` stands for this folder.
    #[track_caller]
    pub fn start(&self, args: &str) -> Server<P> {
        Server::start(&[&self.rules()], &self.fill(args))
    }

    /// Runs the program to its end, with the rules and these arguments. In them, `$` stands for this folder.
    pub fn run(&self, args: &str) -> Ended {
        run::<P>(&format!("{} {}", self.rules().display(), self.fill(args)), &[])
    }

    pub fn fill(&self, args: &str) -> String {
        args.replace('$', &self.0.path().display().to_string())
    }

    /// Returns the path of a file as a text.
    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in one step: it never exists with a part of its text.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let (path, first) = (self.path(name), self.path(".first"));
        std::fs::write(&first, text).unwrap();
        std::fs::rename(first, path).unwrap();
    }

    /// Returns the path of the rules.
    pub fn rules(&self) -> PathBuf {
        self.path("limits.yaml")
    }
}
