//! `--state`: the file from which the next process takes the usage over.
//!
//! ```text
//! start   lock FILE.lock, read FILE ── it is damaged ──► FILE.unusable, and all limits start without usage
//! serve   every minute, on a thread of the file that gives way:  FILE.new, synced ──► FILE
//! end     after the last answer, once more
//! ```
//! What an endpoint keeps has a file of its own next to it, such as FILE.resp with the limits that Redis clients send. It is read and
//! written in the same way. Each file has a thread of its own, so that code of an endpoint that hangs keeps no other file from being
//! written.
//!
//! A crash leaves the file of the last write, because a new file replaces it in one step. If a file cannot be written, answers go on
//! as before: the log has the reason, and the next write tries again.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::future::pending;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::join_all;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::oneshot;
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

    /// Writes all of it. A thread that gives way calls this each minute, and another one after the last answer. Then the process does not
    /// wait for code that has neither written nor returned for two seconds, and the file of the last write stays. So write as you go,
    /// instead of computing all of it first.
    ///
    /// # Errors
    /// If `to` returns an error. The file of the last write then stays.
    fn save(&self, to: &mut dyn Write) -> io::Result<()>;
}

/// The file of `--state`, which this process alone uses, and those of endpoints next to it.
pub struct StateFile {
    path: PathBuf,
    every: Duration,
    /// Locked until the last thread that writes has ended. `None` if the folder cannot be written.
    _lock: Option<File>,
}

/// Writes the state until the end.
pub struct StateWriter {
    file: Arc<StateFile>,
    rules: Arc<Rules>,
    counts: Arc<StateCounts>,
    threads: Vec<WriterThread>,
}

/// A thread that writes one file.
struct WriterThread {
    kept: Arc<Kept>,
    /// Without it, the thread ends.
    stop: mpsc::Sender<Infallible>,
    ended: oneshot::Receiver<()>,
}

/// One of the files, and what is written to it.
struct Kept {
    file: Arc<StateFile>,
    path: PathBuf,
    source: StateSource,
    counts: Arc<StateCounts>,
    /// The place of its own counts.
    place: usize,
    /// Odd while an endpoint's code runs, until it writes or returns.
    steps: Count,
    /// The steps at the last tick, and one more when the log has that they do not change.
    seen: Count,
}

/// What is written to a file.
enum StateSource {
    Rules(Arc<Rules>),
    /// With the name of the endpoint.
    Endpoint(&'static str, Arc<dyn EndpointState>),
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
    /// Writes the file each time that the flag tells. Tells of the code of endpoints that hangs.
    fn write_until_end(&self, stopped: &mpsc::Receiver<Infallible>, endpoints: &[Arc<Self>]) {
        let every = if self.file.every.is_zero() { Duration::MAX } else { self.file.every };
        while stopped.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
            endpoints.iter().for_each(|kept| kept.tell_of_hang());
            self.write();
        }
    }

    /// Writes the file once more after the end of its thread. This write does not give way, because the end waits for it.
    async fn write_after(self: &Arc<Self>, thread: oneshot::Receiver<()>) {
        let _ = thread.await;
        let (end, ended) = oneshot::channel::<()>();
        let writing = Arc::clone(self);
        let write = move || {
            writing.write();
            // As above.
            drop(writing);
            drop(end);
        };
        match process::spawn_equal("tollgate-state", write) {
            Ok(_) => _ = ended.await,
            Err(error) => self.note_error(error),
        }
    }

    fn write(&self) {
        match replace(&self.path, |to| self.save(to)) {
            Ok(bytes) => {
                let counts = &self.counts.files[self.place];
                counts.writes.add();
                counts.bytes.set(bytes);
                counts.written_at.set(now());
            }
            Err(error) => self.note_error(plain(&error)),
        }
    }

    fn save(&self, to: &mut BufWriter<File>) -> io::Result<()> {
        let (name, state) = match &self.source {
            StateSource::Rules(rules) => return rules.snapshot(to),
            StateSource::Endpoint(name, state) => (name, state),
        };
        self.steps.add();
        // Code of a program may panic. Its state is saved again in any case.
        let save = AssertUnwindSafe(|| state.save(&mut Counted { to, steps: &self.steps }));
        let panicked = |_| Err(io::Error::other(format!("the endpoint {name} panicked")));
        let saved = catch_unwind(save).unwrap_or_else(panicked);
        self.steps.add();
        saved
    }

    /// Writes to the log, once, that the endpoint's code has run since the last call without a step.
    fn tell_of_hang(&self) {
        let (steps, seen) = (self.steps.get(), self.seen.get());
        if let StateSource::Endpoint(name, _) = self.source
            && steps % 2 == 1
            && seen <= steps
        {
            let hangs = seen == steps;
            self.seen.set(steps + u64::from(hangs));
            if hangs {
                let every = self.file.every;
                self.note_error(format_args!(
                    "for {every:?}, the endpoint {name} has neither written nor returned; mend its EndpointState::save"
                ));
            }
        }
    }

    fn note_error(&self, why: impl fmt::Display) {
        self.counts.errors.add();
        log::warn(format_args!(
            "cannot write the state {}: {why}; a restart would lose the usage since the last write",
            self.path.display()
        ));
    }

    /// Returns after an endpoint's code has run for so long without a step. A disk may take longer, and rules too.
    async fn until_stuck(&self, most: Duration) {
        if let StateSource::Rules(_) = self.source {
            return pending().await;
        }
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

    /// Starts the threads that write the state of the rules, and that of endpoints, which have names.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn keep(
        self,
        rules: &Arc<Rules>,
        endpoints: Vec<(&'static str, Arc<dyn EndpointState>)>,
        stats: &Stats,
    ) -> Result<StateWriter, Error> {
        let mut sources = vec![(self.path.clone(), StateSource::Rules(Arc::clone(rules)))];
        sources.extend(
            endpoints.into_iter().map(|(name, state)| {
                (beside(&self.path, state.suffix()), StateSource::Endpoint(name, state))
            }),
        );
        let counts = Arc::new(StateCounts::new(sources.len()));
        // Set only here.
        let _ = stats.state.set(Arc::clone(&counts));
        let file = Arc::new(self);
        let kept = Vec::from_iter(sources.into_iter().enumerate().map(|(place, (path, source))| {
            let (file, counts) = (Arc::clone(&file), Arc::clone(&counts));
            let (steps, seen) = (Count::default(), Count::default());
            Arc::new(Kept { file, path, source, counts, place, steps, seen })
        }));
        let threads = kept.iter().map(|one| {
            let (stop, stopped) = mpsc::channel();
            let (end, ended) = oneshot::channel();
            // That of the rules waits for no endpoint, so it looks at all of them.
            let endpoints = if one.place == 0 { kept[1..].to_vec() } else { Vec::new() };
            let writing = Arc::clone(one);
            process::spawn("tollgate-state", move || {
                writing.write_until_end(&stopped, &endpoints);
                // The lock may be free when the end is known.
                drop((writing, endpoints));
                drop(end);
            })?;
            Ok(WriterThread { kept: Arc::clone(one), stop, ended })
        });
        let threads = threads.collect::<Result<_, Error>>()?;
        Ok(StateWriter { file, rules: Arc::clone(rules), counts, threads })
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

impl StateWriter {
    /// Writes to the log what the rules have taken over, and returns whether they have.
    pub fn note(&self) -> bool {
        let Self { file, rules, counts, .. } = self;
        let Some(report) = rules.restored() else { return false };
        // First the count, so that it is there for a program that has read the line.
        counts.restored.set(report.counters);
        note(&report, rules, &file.path);
        true
    }

    /// Writes the state of the end. Returns the files of endpoints that are not written, because their code has taken so long
    /// without a step. No file waits for another one.
    pub async fn finish(self, most: Duration) -> Vec<PathBuf> {
        let ends = self.threads.into_iter().map(async |WriterThread { kept, stop, ended }| {
            drop(stop);
            tokio::select! {
                biased;
                () = kept.write_after(ended) => None,
                () = kept.until_stuck(most) => Some(kept.path.clone()),
            }
        });
        join_all(ends).await.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;
    use tollgate_testing::service::eventually;

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

    const TICK: Duration = Duration::from_millis(1);

    /// Keeps the state of no rules, and of endpoints.
    fn keep(path: &Path, every: Duration, endpoints: [Fake; 2]) -> StateWriter {
        let file = StateFile::open(&ServeState { state: Some(path.to_owned()), state_every: every });
        let rules = Arc::new(Rules::from_yaml("domain: d\ndescriptors: []\n").unwrap());
        let endpoints = endpoints.map(|fake| (&fake.0[1..], Arc::new(fake) as Arc<dyn EndpointState>));
        file.unwrap().unwrap().keep(&rules, endpoints.into(), &Stats::default()).unwrap()
    }

    impl StateWriter {
        /// Waits until the code of an endpoint hangs.
        fn wait_for_hang(&self, place: usize) {
            assert!(eventually(|| self.threads[place].kept.steps.get() == 1));
        }
    }

    /// Cause: an endpoint wrote its state on the thread that writes all of them. Trigger: its code panics. Symptom: from then on nothing was
    /// written, and a crash lost the usage of all rules.
    // G143
    #[tokio::test]
    async fn endpoint_that_panics_is_saved_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let writer = keep(&path, Duration::ZERO, [Fake(".a", panic), Fake(".b", well)]);
        for errors in 1..=2 {
            writer.threads.iter().for_each(|thread| thread.kept.write());
            assert_eq!(writer.counts.errors.get(), errors);
            assert!(fs::read(&path).is_ok_and(|state| !state.is_empty()));
            assert_eq!(fs::read(beside(&path, ".b")).unwrap(), b"kept");
            fs::remove_file(&path).unwrap();
        }
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "beside the lock, and nothing of the endpoint that panicked");
        assert!(writer.finish(Duration::from_secs(2)).await.is_empty());
        assert!(path.exists());
        // All threads that hold the lock have ended.
        keep(&path, Duration::ZERO, [Fake(".a", well), Fake(".b", well)]);
    }

    /// Cause: one thread wrote all files, one after the other. Trigger: a `save` that does not return. Symptom: no file was written again
    /// before the end, the log said nothing, and a crash lost all usage.
    // G143
    #[test]
    fn endpoint_that_hangs_keeps_no_other_state_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let writer = keep(&path, TICK, [Fake(".a", hang), Fake(".b", well)]);
        writer.wait_for_hang(1);
        for file in [&path, &beside(&path, ".b")] {
            assert!(eventually(|| fs::remove_file(file).is_ok()));
            assert!(eventually(|| file.exists()), "{file:?}");
        }
    }

    /// The line in the log counts as an error.
    // G143
    #[test]
    fn endpoint_that_hangs_is_in_the_log_once() {
        let folder = tempfile::tempdir().unwrap();
        let writer = keep(&folder.path().join("state"), TICK, [Fake(".a", hang), Fake(".b", hang)]);
        let errors = || writer.counts.errors.get();
        assert!(eventually(|| errors() == 2));
        let ticks = &writer.counts.files[0].writes;
        let later = ticks.get() + 5;
        assert!(eventually(|| ticks.get() >= later));
        assert_eq!(errors(), 2);
    }

    /// Cause: the end waited for a last write, which waited for the one before it. Trigger: a `save` that does not return. Symptom: the
    /// process went on until a second signal, and its last file of the rules was old. Later, the end waited for each of them in turn.
    // G143
    #[tokio::test(start_paused = true)]
    async fn end_waits_for_all_endpoints_that_hang_together() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let writer = keep(&path, TICK, [Fake(".a", hang), Fake(".b", hang)]);
        (1..=2).for_each(|place| writer.wait_for_hang(place));
        let (began, most) = (Instant::now(), Duration::from_secs(2));
        let left = writer.finish(most).await;
        assert_eq!(left, [".a", ".b"].map(|suffix| beside(&path, suffix)));
        assert!(path.exists() && began.elapsed() < 2 * most, "{:?}", began.elapsed());
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
