//! Where limiters run: on the caller's runtime, or on a thread with a runtime that all clients for threads share.
//!
//! A thread that waits polls its future itself. Connections, timers and the tasks of limiters run on the runtime's
//! thread. Many calls can therefore share a connection, and no call waits for the answer to another call.

use std::ops::Deref;
use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::{fmt, io};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tollgate::Limit;
use tollgate_protocol::{Error, ErrorKind, Transport};

use super::settings::{BuildError, InProgressOptions, LimiterBuilder};
use super::sharded::Routes;

/// A client on which limiters can be built.
pub trait Connected {
    /// The client for async code.
    type Transport: Transport;
    /// A limiter of this client.
    type Form<L>;

    /// Splits the client into the client for async code, and the thread that runs it.
    fn split(self) -> (Self::Transport, Option<RuntimeThread>);

    /// Returns the limiter in the form of this client.
    fn form<L>(limiter: L, thread: Option<RuntimeThread>) -> Self::Form<L>;
}

impl<T: Transport> Connected for T {
    type Transport = T;
    type Form<L> = L;

    fn split(self) -> (T, Option<RuntimeThread>) {
        (self, None)
    }

    fn form<L>(limiter: L, _: Option<RuntimeThread>) -> L {
        limiter
    }
}

impl<T: Transport> Connected for Blocking<T> {
    type Transport = T;
    type Form<L> = Blocking<L>;

    fn split(self) -> (T, Option<RuntimeThread>) {
        (self.inner, Some(self.thread))
    }

    fn form<L>(inner: L, thread: Option<RuntimeThread>) -> Blocking<L> {
        Blocking { inner, thread: thread.unwrap_or_default() }
    }
}

/// A client or a limiter for threads that may block.
///
/// [`Client::blocking`](crate::Client::blocking) and [`InProcess::blocking`](crate::InProcess::blocking)
/// make the client, and its builders make the limiters. Methods of the client or the limiter that do not wait are called
/// directly, and so is `check` of each limiter. [`block_on`](Self::block_on) calls any other method, which is `async`, and waits
/// for it in the calling thread.
///
/// All clones share a thread named `tollgate-redis` that has a tokio runtime. Connections, timers and the tasks of limiters run on that
/// thread. It starts when it is first needed and ends after the last copy of the client, and of its limiters, is dropped; no drop waits
/// for it.
///
/// # Errors
/// If the system cannot start the thread, `build` of a limiter returns [`BuildError::Thread`], calls to a server fail as
/// [`Unreachable`](crate::ErrorKind::Unreachable), and [`OnFailure`](crate::OnFailure) decides.
///
/// # Cost
/// One thread for each client, whatever the number of its limiters and calls. A call that waits allocates the channel by which the
/// answer wakes it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tollgate_redis::{AtomicLimiter, Blocking, InProcess, LeaseLimiter, Limit};
/// use tollgate::Quota;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = InProcess::default().blocking(); // or Client::open("redis://127.0.0.1:6379")?.blocking()
///
/// let dear: Blocking<AtomicLimiter> = server.limiter("dear", Limit::gcra(Quota::per_second(2))).atomic()?;
/// let answer = dear.check("203.0.113.7"); // waits for the server
/// assert_eq!(dear.block_on(|limiter| limiter.refund("203.0.113.7", &answer))?, 1);
///
/// // A limiter that decides in this process needs it only where the caller waits for units.
/// let usual: Blocking<LeaseLimiter> = server.limiter("api", Limit::gcra(Quota::per_second(100))).leases().build()?;
/// assert!(usual.block_on(|limiter| limiter.check_async("203.0.113.7")).is_allowed());
/// let _at_once = usual.check("203.0.113.7");
/// usual.block_on(|limiter| limiter.clone().close());
///
/// // Other futures run on the thread as well, such as those of a hold.
/// let tokens = server.limiter("tokens", Limit::fixed_window(Quota::per_day(10_000))).holding()?;
/// let hold = tokens.block_on(|limiter| limiter.hold("alice", 4_000, Duration::from_secs(60))).expect("10,000 are left");
/// assert_eq!(tokens.block_on(|_| hold.commit(1_500))?.remaining(), 8_500);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Blocking<T> {
    inner: T,
    thread: RuntimeThread,
}

impl<T> Blocking<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, thread: RuntimeThread::default() }
    }

    /// Waits for a future of this client or limiter, in the calling thread.
    ///
    /// A task of a tokio runtime may call this too, but it blocks a thread of that runtime until the call returns.
    pub fn block_on<'l, F: Future>(&'l self, call: impl FnOnce(&'l T) -> F) -> F::Output {
        self.thread.block_on(call(&self.inner))
    }

    /// Another limiter on the same thread.
    pub(crate) fn with<L>(&self, inner: L) -> Blocking<L> {
        Blocking { inner, thread: self.thread.clone() }
    }

    /// The form for async code.
    #[cfg(feature = "rules")]
    pub(crate) fn into_inner(self) -> T {
        self.inner
    }

    #[cfg(feature = "rules")]
    pub(crate) fn thread(&self) -> &RuntimeThread {
        &self.thread
    }
}

impl<T: Routed> Blocking<T> {
    /// Returns a builder for a limiter with this name. All limiters with the same name, prefix and limits share their
    /// state, in every process.
    pub fn limiter(&self, name: &str, limit: impl Into<Limit>) -> LimiterBuilder<Self> {
        LimiterBuilder::new(self.clone(), self.inner.routes(), name, &[limit.into()])
    }

    /// Returns a builder for a limit of `limit` units in progress for each key. All limits with the same name and prefix
    /// share their state, in every process.
    pub fn in_progress(&self, name: &str, limit: u64) -> LimiterBuilder<Self, InProgressOptions> {
        LimiterBuilder::in_progress(self.clone(), self.inner.routes(), name, limit)
    }
}

/// A client whose keys are on one server or several.
pub trait Routed: Clone {
    /// The servers.
    fn routes(&self) -> &Arc<Routes>;
}

impl<T> Deref for Blocking<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Blocking<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(&self.inner).finish()
    }
}

/// A thread with a runtime. It starts on first use, and ends when its last owner is dropped.
#[derive(Clone, Default, Debug)]
pub struct RuntimeThread(Arc<OnceLock<io::Result<Started>>>);

#[derive(Debug)]
struct Started {
    handle: Handle,
    /// The thread ends when this is dropped.
    _ends: oneshot::Sender<()>,
}

impl RuntimeThread {
    fn handle(&self) -> Result<&Handle, &io::Error> {
        let start = || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let (ends, ended) = oneshot::channel::<()>();
            let run = move || drop(runtime.block_on(ended));
            thread::Builder::new().name("tollgate-redis".to_owned()).spawn(run)?;
            Ok(Started { handle, _ends: ends })
        };
        self.0.get_or_init(start).as_ref().map(|started| &started.handle)
    }

    /// Starts the thread. Returns the error of calls if that is not possible.
    pub(crate) fn start(&self) -> Result<(), Error> {
        let no_thread =
            |_| Error::new(ErrorKind::Unreachable, "the thread for calls to the server could not start");
        self.handle().map(drop).map_err(no_thread)
    }

    /// Waits for a future in the calling thread. That thread may belong to another runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        // If the thread cannot start, the call returns the error, and does not wait.
        let _entered = self.handle().ok().map(Handle::enter);
        // A calling task has a budget of polls. Here the budget would never be renewed, so the future runs without one.
        let mut future = pin!(tokio::task::unconstrained(future));
        // A decision from the units that this process holds is ready at once, and needs no channel.
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        let (wake, woken) = sync_channel(1);
        let waker = Waker::from(Arc::new(Signal(wake)));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            // `waker` holds a sender, so `recv` cannot fail.
            let _ = woken.recv();
        }
    }
}

/// Wakes the waiting thread. If the channel is full, it already contains a signal.
struct Signal(SyncSender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(());
    }
}

/// Where a limiter's tasks run. If this is a client's thread, the thread lives until the tasks end.
pub(crate) struct Tasks {
    pub(crate) runtime: Handle,
    _thread: Option<RuntimeThread>,
}

impl Tasks {
    /// Uses a client's thread, or else the runtime of the caller.
    pub(crate) fn on(thread: Option<&RuntimeThread>) -> Result<Self, BuildError> {
        let runtime = match thread {
            None => Handle::try_current().map_err(|_| BuildError::NoRuntime)?,
            Some(thread) => {
                let no_thread =
                    |why: &io::Error| BuildError::Thread(io::Error::new(why.kind(), why.to_string()));
                thread.handle().map_err(no_thread)?.clone()
            }
        };
        Ok(Self { runtime, _thread: thread.cloned() })
    }
}

/// Calls a function on drop, unless it was cancelled.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(work: F) -> Self {
        Self(Some(work))
    }

    pub(crate) fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{Client, DecidedBy, OnFailure};
    use tollgate::Quota;

    /// The runtime of the caller cannot carry a call while its only thread waits for that call.
    #[tokio::test(flavor = "current_thread")]
    async fn call_fails_at_once_without_a_thread() {
        let none = OnceLock::from(Err(io::Error::other("no thread")));
        let inner = Client::open("redis://127.0.0.1:1").unwrap();
        let client = Blocking { inner, thread: RuntimeThread(Arc::new(none)) };
        let builder = client.limiter("api", Limit::gcra(Quota::per_second(1))).on_failure(OnFailure::Closed);
        let limiter = builder.atomic().unwrap();
        assert_eq!(limiter.block_on(|limiter| limiter.check("a")).by(), DecidedBy::Closed);
    }
}
