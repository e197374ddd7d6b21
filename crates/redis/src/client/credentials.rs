//! Credentials in a file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{BasicAuth, ErrorKind as Theirs, RedisResult, StreamingCredentialsProvider};
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tollgate_protocol::{Error, ErrorKind};

/// The largest file of credentials.
const MAX_FILE: u64 = 64 * 1_024;

pub(crate) type CredentialStream = Pin<Box<dyn Stream<Item = RedisResult<BasicAuth>> + Send>>;

/// Credentials in a file, which is read again and compared by its content.
///
/// - A file of one line contains the password. The user is `default`, or the one that [`user`](Self::user) sets.
/// - A file of two lines contains the user and then the password.
///
/// The line ends at `\n` or `\r\n`; all other characters belong to the password. A file that is missing, is empty, is
/// not UTF-8, has more lines or is larger than 64 KiB changes nothing, and is counted and reported as
/// [`Client::on_refused_credentials`](crate::Client::on_refused_credentials) describes. So the file can be
/// replaced in one step, as Kubernetes does with a mounted secret, or written in place.
///
/// Each connection reads the file when it is made, and once a second afterwards, on a thread for blocking work: one read at a
/// time, also if the file system hangs.
///
/// # Examples
/// ```
/// use tollgate_redis::{Client, CredentialsFile};
///
/// let file = CredentialsFile::new("/run/secrets/redis-password").user("limits");
/// let client = Client::open("redis://10.0.0.1")?.credentials(file);
/// # let _ = client;
/// # Ok::<(), tollgate_redis::Error>(())
/// ```
#[derive(Clone)]
pub struct CredentialsFile {
    path: Arc<Path>,
    user: Option<Arc<str>>,
    every: Duration,
    /// Held while a thread reads: one that hangs keeps no other thread.
    turn: Arc<Mutex<()>>,
}

impl CredentialsFile {
    /// Names the file. It is not read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into().into(), user: None, every: Duration::from_secs(1), turn: Arc::default() }
    }

    /// Sets the user of a file of one line. With a file of two lines, this is an error.
    #[must_use]
    pub fn user(mut self, user: &str) -> Self {
        self.user = Some(user.into());
        self
    }

    /// Sets the time between two reads, at least 10 ms. Default: one second.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_millis(10));
        self
    }

    /// Reads the file once, in the calling thread. Use it to find mistakes when a program starts.
    ///
    /// # Errors
    /// If the file cannot be used; see the type. The text names the reason, and neither the path nor the content.
    pub fn read(&self) -> Result<BasicAuth, Error> {
        let (user, password) = self.lines().map_err(|why| Error::new(ErrorKind::Refused, why))?;
        Ok(BasicAuth::new(user, password))
    }

    /// Returns the user, or an empty text, and the password.
    fn lines(&self) -> Result<(String, String), Fault> {
        use std::io::Read as _;

        let mut text = String::new();
        let file = std::fs::File::open(&self.path).map_err(|error| of_system(&error))?;
        let length = file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(|error| of_system(&error))?;
        if length as u64 > MAX_FILE {
            return Err(TOO_LARGE);
        }
        let text = text.trim_end_matches(['\r', '\n']);
        match (&text.lines().collect::<Vec<_>>()[..], &self.user) {
            ([], _) => Err(EMPTY),
            ([password], user) => {
                Ok((user.as_deref().unwrap_or_default().to_owned(), (*password).to_owned()))
            }
            ([_, _], Some(_)) => Err(TWO_USERS),
            ([user, password], None) => Ok(((*user).to_owned(), (*password).to_owned())),
            _ => Err(TOO_MANY_LINES),
        }
    }
}

/// Why a file of credentials cannot be used.
pub(super) type Fault = &'static str;

const MISSING: Fault = "the file of credentials does not exist";
const FORBIDDEN: Fault = "the file of credentials may not be read by this user of the system";
const NOT_UTF8: Fault = "the file of credentials is not UTF-8";
const UNREADABLE: Fault = "the file of credentials cannot be read";
const EMPTY: Fault = "the file of credentials is empty";
const TOO_LARGE: Fault = "the file of credentials is larger than 64 KiB";
const TWO_USERS: Fault =
    "the file of credentials names a user in its first line, and so does the program: name one";
const TOO_MANY_LINES: Fault = "the file of credentials has more than two lines";

fn of_system(error: &std::io::Error) -> Fault {
    match error.kind() {
        std::io::ErrorKind::NotFound => MISSING,
        std::io::ErrorKind::PermissionDenied => FORBIDDEN,
        std::io::ErrorKind::InvalidData => NOT_UTF8,
        _ => UNREADABLE,
    }
}

/// Every fault. None of these texts contains a secret.
pub(super) const FAULTS: [Fault; 8] =
    [MISSING, FORBIDDEN, NOT_UTF8, UNREADABLE, EMPTY, TOO_LARGE, TWO_USERS, TOO_MANY_LINES];

impl StreamingCredentialsProvider for CredentialsFile {
    fn subscribe(&self) -> CredentialStream {
        Box::pin(unfold((self.clone(), None), async |(file, known)| {
            let mut is_first = known.is_none();
            loop {
                if !is_first {
                    sleep(file.every).await;
                }
                is_first = false;
                let (reader, turn) = (file.clone(), Arc::clone(&file.turn).lock_owned().await);
                // A file system that hangs must not hang the runtime. The caller may leave, and the thread keeps the turn.
                let read = move || {
                    let _turn = turn;
                    reader.lines()
                };
                let Ok(present) = tokio::task::spawn_blocking(read).await else { return None };
                if known.as_ref() != Some(&present) {
                    let item = present.clone().map(|(user, password)| BasicAuth::new(user, password));
                    let item = item.map_err(|why| (Theirs::AuthenticationFailed, why).into());
                    return Some((item, (file, Some(present))));
                }
            }
        }))
    }
}

/// The output does not contain the content of the file.
impl fmt::Debug for CredentialsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, user) = (&self.path, &self.user);
        f.debug_struct("CredentialsFile").field("path", path).field("user", user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use tokio::runtime::Builder;
    use tokio::task::spawn_blocking;
    use tokio::time::timeout;

    use super::*;

    #[cfg(unix)]
    #[test]
    fn file_that_hangs_keeps_one_thread() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let runtime = Builder::new_current_thread().enable_time().max_blocking_threads(2).build().unwrap();
        let is_free = runtime.block_on(async {
            // Nothing writes to the pipe, so a read waits for ever.
            let file = CredentialsFile::new(&pipe);
            for _ in 0..4 {
                let mut stream = file.subscribe();
                assert!(timeout(Duration::from_millis(50), stream.next()).await.is_err());
            }
            timeout(Duration::from_secs(10), spawn_blocking(|| ())).await.is_ok()
        });
        runtime.shutdown_background();
        assert!(is_free, "all threads read the file");
    }
}
