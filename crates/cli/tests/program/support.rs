//! A temporary directory for each test, and runs of the program in it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use tollgate_testing::skipped::skip;

/// The result of one run of the program.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// Asserts that the run failed with `code`, that its messages contain each of `parts`, and that standard output
    /// is empty.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stdout, "");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        let run = self.ok();
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {}", run.stdout))
    }
}

/// Returns the path of the program under test: cargo's build, or the file that `TOLLGATE_PROGRAM` names (for example an
/// optimised build).
pub(crate) fn program() -> PathBuf {
    std::env::var_os("TOLLGATE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_tollgate").into()).into()
}

/// A directory for one test, and the program that the test runs.
pub(crate) struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), program: program() }
    }

    /// Uses cargo's build, which has the same features as the test.
    #[cfg(feature = "redis")]
    pub(crate) fn with_test_features() -> Self {
        Self { program: env!("CARGO_BIN_EXE_tollgate").into(), ..Self::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), bytes).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    /// Runs the program in this directory. `args` is split at spaces.
    pub(crate) fn run(&self, args: &str) -> Run {
        self.run_with(args, b"")
    }

    pub(crate) fn run_with(&self, args: &str, stdin: &[u8]) -> Run {
        self.run_in(&[], args, stdin)
    }

    /// Runs the program with these variables, such as `COLUMNS` for a terminal of that width.
    pub(crate) fn run_in(&self, variables: &[(&str, &str)], args: &str, stdin: &[u8]) -> Run {
        let mut child = Command::new(&self.program)
            .args(args.split(' ').filter(|arg| !arg.is_empty()))
            .current_dir(self.folder.path())
            .env_remove("COLUMNS")
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that stops early closes its input. The test ignores that error.
        let _ = child.stdin.take().unwrap().write_all(stdin);
        let output = child.wait_with_output().unwrap();
        Run {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Replays through one algorithm. Returns one character per request: `1` if admitted, `0` if denied.
    #[track_caller]
    pub(crate) fn decisions(&self, args: &str) -> String {
        self.run(&format!("replay --decisions decisions.bin {args}")).ok();
        String::from_utf8(self.read("decisions.bin")).unwrap()
    }
}

/// Returns the results in a replay's JSON, one for each algorithm.
pub(crate) fn results(json: &Value) -> &[Value] {
    json["results"].as_array().unwrap()
}

/// Returns the names of the algorithms in a replay's JSON.
pub(crate) fn names(json: &Value) -> Vec<&str> {
    results(json).iter().map(|result| result["algorithm"].as_str().unwrap()).collect()
}

pub(crate) fn gzip(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes.as_ref()).unwrap();
    encoder.finish().unwrap()
}

/// Returns the path of a shared trace. If the trace is missing, reports the test as skipped and returns `None`.
#[track_caller]
pub(crate) fn trace(name: &str) -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = std::env::var_os("TOLLGATE_TRACES").map_or_else(beside, PathBuf::from).join(name);
    if path.exists() {
        // The program runs in another directory, so it needs an absolute path.
        return Some(path.canonicalize().unwrap());
    }
    skip(&format!("no {}; set TOLLGATE_TRACES to the folder of traces", path.display()));
    None
}
