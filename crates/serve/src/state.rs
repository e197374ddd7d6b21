//! `--state`: the file from which the next process takes the usage over.
//!
//! ```text
//! start   lock FILE.lock, read FILE ── it is damaged ──► FILE.unusable, and all limits start without usage
//! serve   every minute, on a thread that gives way:  FILE.new, synced ──► FILE
//! end     after the last answer, once more
//! ```
//! What an endpoint keeps has a file of its own next to it, such as FILE.resp with the limits that Redis clients send. It is read and
//! written in the same way.
//!
//! A crash leaves the file of the last write, because a new file replaces it in one step. If a file cannot be written, answers go on
//! as before: the log has the reason, and the next write tries again.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::iter;
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tollgate::Clock as _;
use tollgate_rules::{RestoreReport, Rules, RulesSnapshot};

use super::stats::{Count, StateCounts, Stats, now};
use super::{log, process};
use crate::flags::state::ServeState;
use tollgate_report::error::{Error, plain};
use tollgate_report::human;

/// The bytes that a write hands to the system at a time.
const BUFFER: usize = 1 << 16;

/// The most rules without usage that the log names, of those that should have some.
const NAMED: usize = 10;

/// How the names of files of rules end.
const RULES: [&str; 4] = ["yaml", "yml", "json", "toml"];

/// What an endpoint keeps for the next process, in a file of its own beside the one of the rules.
pub trait EndpointState: Send + Sync {
    /// Returns the end of the name of its file, such as `.resp`: a dot, and then letters. Each endpoint has another one, and `.lock`,
    /// `.new` and `.unusable` belong to the service.
    fn suffix(&self) -> &'static str;

    /// Writes all of it. A thread that gives way calls this each minute, and another one once more after the last answer. Then the
    /// process does not wait for code that has neither written nor returned for some seconds, and the file of the last write stays.
    ///
    /// # Errors
    /// If `to` returns an error. The file of the last write then stays.
    fn save(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// The file of `--state`, which this process alone uses, and those of endpoints next to it.
pub struct StateFile {
    path: PathBuf,
    every: Duration,
    /// Locked as long as the process lives. `None` if the folder cannot be written.
    _lock: Option<File>,
}

/// Writes the state until the end.
pub struct StateWriter {
    run: Arc<Run>,
    stop: mpsc::Sender<()>,
}

struct Run {
    file: StateFile,
    rules: Arc<Rules>,
    /// Held while the file of the rules is written.
    writing: Mutex<()>,
    endpoints: Vec<Kept>,
    counts: Arc<StateCounts>,
}

/// What an endpoint keeps.
struct Kept {
    state: Arc<dyn EndpointState>,
    /// Held while its file is written.
    writing: Mutex<()>,
    /// Odd while its code runs, until it writes or returns.
    steps: Count,
}

/// The file of an endpoint, which counts its steps.
struct Counted<'w> {
    to: &'w mut BufWriter<File>,
    steps: &'w Count,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.steps.add();
        let written = self.to.write(bytes);
        self.steps.add();
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.steps.add();
        let flushed = self.to.flush();
        self.steps.add();
        flushed
    }
}

impl Kept {
    fn save(&self, to: &mut BufWriter<File>) -> io::Result<()> {
        self.steps.add();
        // Code of a program may panic. The rules are saved again in any case.
        let save = AssertUnwindSafe(|| self.state.save(&mut Counted { to, steps: &self.steps }));
        let saved = catch_unwind(save).unwrap_or_else(|_| Err(io::Error::other("its endpoint panicked")));
        self.steps.add();
        saved
    }

    /// Returns after its code has run for so long without a step. A disk may take longer.
    async fn until_stuck(&self, most: Duration) {
        let mut before = 0;
        loop {
            let steps = self.steps.get();
            if steps % 2 == 1 && steps == before {
                return;
            }
            before = steps;
            sleep(most).await;
        }
    }
}

/// Checks the flag, and touches nothing.
///
/// # Errors
/// If the path is a folder, or something else that is not a file, or if it has the name of a file of rules.
pub fn check(args: &ServeState) -> Result<(), Error> {
    let Some(path) = &args.state else { return Ok(()) };
    // Its rules would be moved away, because they are no state.
    if path.extension().is_some_and(|end| RULES.iter().any(|rules| end.eq_ignore_ascii_case(rules))) {
        let path = path.display();
        return Err(Error::usage(format!(
            "--state: {path} has the name of a file of rules; choose another name, such as state"
        )));
    }
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(Error::usage(format!(
            "--state: {} is not a file; name a file in a folder that this process may write",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The ends of names that the service uses.
const OWN_SUFFIXES: [&str; 3] = [".lock", ".new", ".unusable"];

/// Checks the ends of the names of endpoints' files.
///
/// # Errors
/// If one of them is not a dot and letters, or if two files would have one name.
pub fn check_suffixes<'e>(
    endpoints: impl Iterator<Item = (&'static str, &'e Arc<dyn EndpointState>)>,
) -> Result<(), Error> {
    let mut seen: Vec<&str> = OWN_SUFFIXES.to_vec();
    for (endpoint, state) in endpoints {
        let suffix = state.suffix();
        let is_letters =
            |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let why = match suffix.strip_prefix('.').is_some_and(is_letters) {
            false => "it is not a dot and letters",
            true if seen.contains(&suffix) => "another file has it",
            true => {
                seen.push(suffix);
                continue;
            }
        };
        return Err(Error::run(format!(
            "the state of the endpoint {endpoint} cannot have the suffix {suffix:?}: {why}; return another one in EndpointState::suffix"
        )));
    }
    Ok(())
}

impl StateFile {
    /// Locks the file of the flag, if it is set.
    ///
    /// # Errors
    /// If another process uses it, or if it is not a file.
    pub fn open(args: &ServeState) -> Result<Option<Self>, Error> {
        check(args)?;
        let Some(path) = args.state.clone() else { return Ok(None) };
        let lock = beside(&path, ".lock");
        let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let locked = opened.and_then(|file| {
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            Ok(file)
        });
        let lock = match locked {
            Ok(file) => Some(file),
            Err(error) if error.raw_os_error() == Some(Errno::WOULDBLOCK.raw_os_error()) => {
                return Err(Error::run(format!(
                    "another process uses the state {} (it has locked {}); start this process after the end of that one, or \
                     give each process a --state of its own",
                    path.display(),
                    lock.display()
                )));
            }
            Err(error) => {
                log::warn(format_args!(
                    "cannot lock {}: {}; make sure that no other process uses this state",
                    lock.display(),
                    plain(&error)
                ));
                None
            }
        };
        Ok(Some(Self { path, every: args.state_every, _lock: lock }))
    }

    /// Reads the state. A file that cannot be used is kept under another name.
    ///
    /// # Errors
    /// If the file cannot be read, or cannot be kept, because this process must not write over it then.
    pub fn read(&self) -> Result<Option<RulesSnapshot>, Error> {
        let path = self.path.display();
        let bytes = match fs::read(&self.path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                log::info(format_args!("no state in {path} yet"));
                return Ok(None);
            }
            Err(error) => return Err(unreadable(&self.path, &error)),
        };
        match RulesSnapshot::read(bytes) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(why) => set_aside(&self.path, "limits", &why.to_string()).map(|()| None),
        }
    }

    /// Takes over what an endpoint has kept in the file with this suffix, and does nothing if there is none. `restore` reads the file, and
    /// returns a text for the log, such as `2 limits of Redis clients`. If it returns an error of the kind
    /// [`InvalidData`](io::ErrorKind::InvalidData), the file is kept under another name, and the log says that all of `what`, such as
    /// `limits of Redis clients`, start without usage.
    ///
    /// # Errors
    /// If the file cannot be read, or cannot be kept, because this process must not write over it then.
    pub fn restore(
        &self,
        suffix: &str,
        what: &str,
        restore: impl FnOnce(&mut dyn Read) -> io::Result<String>,
    ) -> Result<(), Error> {
        let path = beside(&self.path, suffix);
        let mut from = match File::open(&path) {
            Ok(file) => BufReader::with_capacity(BUFFER, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        let why = match restore(&mut from) {
            Ok(restored) => {
                log::info(format_args!("took over the usage of {restored} from {}", path.display()));
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => error.to_string(),
            Err(error) => return Err(unreadable(&path, &error)),
        };
        set_aside(&path, what, &why)
    }

    /// Starts the thread that writes the state of the rules, and that of endpoints.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn keep(
        self,
        rules: &Arc<Rules>,
        endpoints: Vec<Arc<dyn EndpointState>>,
        stats: &Stats,
    ) -> Result<StateWriter, Error> {
        let counts = Arc::new(StateCounts::default());
        counts.written_at.set(now());
        // Set only here.
        let _ = stats.state.set(Arc::clone(&counts));
        let every = if self.every.is_zero() { Duration::MAX } else { self.every };
        let kept = |state| Kept { state, writing: Mutex::default(), steps: Count::default() };
        let endpoints = endpoints.into_iter().map(kept).collect();
        let run = Arc::new(Run {
            file: self,
            rules: Arc::clone(rules),
            writing: Mutex::default(),
            endpoints,
            counts,
        });
        let (stop, stopped) = mpsc::channel();
        let writing = Arc::clone(&run);
        process::spawn("tollgate-state", move || {
            while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                writing.write();
            }
        })?;
        Ok(StateWriter { run, stop })
    }
}

/// Writes a file beside its path, and then renames it. Returns its length.
fn replace(path: &Path, put: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<u64> {
    let new = beside(path, ".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = write_to(&new, put).and_then(|length| {
        fs::rename(&new, path)?;
        // The new name is safe only after this.
        File::open(folder(path))?.sync_all()?;
        Ok(length)
    });
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn write_to(path: &Path, put: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<u64> {
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    let mut to = BufWriter::with_capacity(BUFFER, file);
    put(&mut to)?;
    to.flush()?;
    let file = to.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    file.metadata().map(|written| written.len())
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::run(format!(
        "cannot read the state {}: {}; let this process read it, or move it away to start without usage",
        path.display(),
        plain(error)
    ))
}

/// Keeps a file that cannot be used under another name, and writes that to the log.
fn set_aside(path: &Path, what: &str, why: &str) -> Result<(), Error> {
    let aside = beside(path, ".unusable");
    let renamed = fs::rename(path, &aside);
    let (path, kept) = (path.display(), aside.display());
    renamed.map_err(|error| {
        Error::run(format!(
            "{path} cannot be used: {why}; and it cannot be renamed to {kept}: {}; move it away to start without usage",
            plain(&error)
        ))
    })?;
    log::warn(format_args!(
        "all {what} start without usage, because {path} cannot be used: {why}; the file is now {kept}"
    ));
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Writes to the log what the rules have taken over.
fn note(report: &RestoreReport, rules: &Rules, path: &Path) {
    let &RestoreReport { made_at, counters, dropped, ref unusable, holds, .. } = report;
    let (ours, path) = (rules.clock().now(), path.display());
    let age = Duration::from_secs(ours.duration_since(made_at).as_secs());
    let [counters, holds] =
        [(counters, "rule"), (holds, "hold")].map(|(count, what)| human::counted(count, what));
    log::info(format_args!("took over the usage of {counters} and {holds} from {path}, written {age:?} ago"));
    if dropped > 0 {
        let rules = human::counted(dropped, "rule");
        log::info(format_args!("dropped the usage of {rules} in {path}, because they do not exist any more"));
    }
    let behind = made_at.duration_since(ours);
    if !behind.is_zero() {
        log::warn(format_args!(
            "the clock is {behind:?} behind the state {path}: no time counts as passed, so limits are free later than usual"
        ));
    }
    for (rule, why) in unusable.iter().take(NAMED) {
        log::warn(format_args!("the rule {rule:?} starts without usage: {why}"));
    }
    if unusable.len() > NAMED {
        let more = human::counted((unusable.len() - NAMED) as u64, "more rule");
        log::warn(format_args!("the usage of {more} in {path} cannot be used, so they start without usage"));
    }
}

impl Run {
    /// Writes each file even if another one cannot be written, because a folder in the place of one of them must not cost the usage
    /// in the others.
    fn write(&self) {
        let rules = self.write_rules();
        let endpoints = Vec::from_iter(self.endpoints.iter().map(|kept| self.write_kept(kept)));
        let counts = &self.counts;
        if let Some(bytes) = iter::once(rules).chain(endpoints).sum::<Option<u64>>() {
            counts.writes.add();
            counts.bytes.set(bytes);
            counts.written_at.set(now());
        }
    }

    fn write_rules(&self) -> Option<u64> {
        self.write_file((&self.file.path, &self.writing), |to| self.rules.snapshot(to))
    }

    fn write_kept(&self, kept: &Kept) -> Option<u64> {
        self.write_file((&self.path_of(kept), &kept.writing), |to| kept.save(to))
    }

    fn path_of(&self, kept: &Kept) -> PathBuf {
        beside(&self.file.path, kept.state.suffix())
    }

    /// Writes a file, and returns its length. Writes to the log why it cannot be written.
    fn write_file(
        &self,
        (path, writing): (&Path, &Mutex<()>),
        put: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    ) -> Option<u64> {
        let _writing = writing.lock().unwrap_or_else(PoisonError::into_inner);
        let written = replace(path, put);
        if let Err(error) = &written {
            self.counts.errors.add();
            log::warn(format_args!(
                "cannot write the state {}: {}; a restart would lose the usage since the last write",
                path.display(),
                plain(error)
            ));
        }
        written.ok()
    }
}

impl StateWriter {
    /// Writes to the log what the rules have taken over, and returns whether they have.
    pub fn note(&self) -> bool {
        let Run { file, rules, counts, .. } = &*self.run;
        let Some(report) = rules.restored() else { return false };
        // First the count, so that it is there for a program that has read the line.
        counts.restored.set(report.counters);
        note(&report, rules, &file.path);
        true
    }

    /// Writes the state of the end. Returns the files of endpoints that are not written, because their code has taken so long
    /// without a step. The file of the rules waits for none of them.
    pub async fn finish(self, most: Duration) -> Vec<PathBuf> {
        let Self { run, stop } = self;
        drop(stop);
        let rules = Arc::clone(&run);
        let rules = spawn_blocking(move || rules.write_rules());
        let writes = (0..run.endpoints.len()).map(|place| {
            let run = Arc::clone(&run);
            spawn_blocking(move || run.write_kept(&run.endpoints[place]))
        });
        // All begin before the first is waited for.
        let writes = Vec::from_iter(writes);
        let _ = rules.await;
        let mut left = Vec::new();
        for (kept, write) in run.endpoints.iter().zip(writes) {
            tokio::select! {
                biased;
                _ = write => {}
                () = kept.until_stuck(most) => left.push(run.path_of(kept)),
            }
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of an endpoint, and what its program does before it writes.
    struct Fake(&'static str, fn());

    impl EndpointState for Fake {
        fn suffix(&self) -> &'static str {
            self.0
        }

        fn save(&self, to: &mut dyn Write) -> io::Result<()> {
            (self.1)();
            to.write_all(b"kept")
        }
    }

    fn well() {}

    fn panic() {
        panic!("a fault of the program");
    }

    fn hang() {
        loop {
            std::thread::park();
        }
    }

    /// Keeps the state of no rules, and of endpoints.
    fn keep(path: &Path, endpoints: [Fake; 2]) -> StateWriter {
        let file = StateFile { path: path.to_owned(), every: Duration::ZERO, _lock: None };
        let rules = Arc::new(Rules::from_yaml("domain: d\ndescriptors: []\n").unwrap());
        let endpoints = endpoints.map(|fake| Arc::new(fake) as Arc<dyn EndpointState>);
        file.keep(&rules, endpoints.into(), &Stats::default()).unwrap()
    }

    /// Cause: an endpoint wrote its state on the thread that writes all of them. Trigger: its code panics. Symptom: from then on nothing was
    /// written, and a crash lost the usage of all rules.
    // G143
    #[tokio::test]
    async fn endpoint_that_panics_keeps_no_other_state_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let writer = keep(&path, [Fake(".a", panic), Fake(".b", well)]);
        for errors in 1..=2 {
            writer.run.write();
            assert_eq!(writer.run.counts.errors.get(), errors);
            assert!(fs::read(&path).is_ok_and(|state| !state.is_empty()));
            assert_eq!(fs::read(beside(&path, ".b")).unwrap(), b"kept");
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing of the endpoint that panicked is left"
        );
        assert!(writer.finish(Duration::from_secs(2)).await.is_empty());
        assert!(path.exists());
    }

    /// Cause: the end waited for a last write, which waited for the one before it. Trigger: a `save` that does not return. Symptom: the
    /// process went on until a second signal, and its last file of the rules was old.
    // G143
    #[test]
    fn endpoint_that_hangs_keeps_no_other_state_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let writer = keep(&path, [Fake(".a", hang), Fake(".b", well)]);
        let (run, minute) = (Arc::clone(&writer.run), Arc::clone(&writer.run));
        std::thread::spawn(move || minute.write());
        while run.endpoints[0].steps.get() == 0 {
            std::thread::yield_now();
        }
        fs::remove_file(&path).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let left = runtime.block_on(writer.finish(Duration::from_millis(1)));
        runtime.shutdown_background();
        assert!(path.exists() && left.contains(&beside(&path, ".a")), "{left:?}");
        // On a busy machine, this one may have taken as long.
        let _written = run.endpoints[1].writing.lock();
        assert_eq!(fs::read(beside(&path, ".b")).unwrap(), b"kept");
    }

    /// A suffix that is empty would give the endpoint the file of the rules.
    #[test]
    fn each_state_has_a_file_of_its_own() {
        let check = |suffixes: &[&'static str]| {
            let states: Vec<Arc<dyn EndpointState>> =
                suffixes.iter().map(|suffix| Arc::new(Fake(suffix, well)) as _).collect();
            check_suffixes(states.iter().map(|state| ("mine", state)))
        };
        assert!(check(&[]).is_ok() && check(&[".resp", ".b"]).is_ok());
        for wrong in ["", ".", "resp", ".a/b", "./a", "..", ".a.new", ".lock", ".new", ".unusable"] {
            let why = check(&[".b", wrong]).unwrap_err().to_string();
            assert!(why.contains("the endpoint mine") && why.contains(&format!("{wrong:?}")), "{why}");
        }
        assert!(check(&[".b", ".b"]).unwrap_err().to_string().contains("another file has it"));
    }
}
