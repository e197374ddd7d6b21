//! Where limiters run: on the caller's runtime, or on a thread with a runtime that all clients for threads share.
//!
//! A thread that waits polls its future itself. Connections, timers and the tasks of limiters run on the runtime's
//! thread. Many calls can therefore share a connection, and no call waits for the answer to another call.

use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::{fmt, io};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::settings::{BuildError, Builder};
use crate::edge::redis::protocol::{Error, ErrorKind, Transport};

/// A client on which limiters can be built.
pub(crate) trait Connected: Send + Sync {
    type Transport: Transport;

    /// Returns the transport that carries the calls. Returns an error if its thread could not start.
    fn transport(&self) -> Result<&Self::Transport, Error>;
}

impl<T: Transport> Connected for T {
    type Transport = Self;

    fn transport(&self) -> Result<&Self, Error> {
        Ok(self)
    }
}

/// A client or a limiter of async code, for threads that may block.
///
/// Programs use it by the names of its aliases: [`BlockingClient`](crate::edge::redis::BlockingClient),
/// [`BlockingInProcess`](crate::edge::redis::BlockingInProcess), [`BlockingLeaseLimiter`](crate::edge::redis::BlockingLeaseLimiter) and
/// [`BlockingWriteBackLimiter`](crate::edge::redis::BlockingWriteBackLimiter).
///
/// It holds the async form, and shares a thread named `tollgate-redis` that has a tokio runtime. Connections, timers and the tasks of
/// limiters run on that thread. A method that waits drives the async form in the thread that calls it. The thread starts when it is
/// first needed and ends after the last copy of the client, and of its limiters, is dropped; no drop waits for it.
///
/// # Errors
/// If the system cannot start the thread, `build` of a limiter returns [`BuildError::Thread`], calls to a server fail as
/// [`Unreachable`](crate::edge::redis::ErrorKind::Unreachable), and [`OnFailure`](crate::edge::redis::OnFailure) decides.
///
/// # Panics
/// Calls do not panic, whichever thread makes them. A task of a tokio runtime may call too, but it blocks a thread of that runtime
/// until the call returns.
///
/// # Cost
/// One thread for each client, whatever the number of its limiters and calls. A call that waits allocates the channel by which the
/// answer wakes it. A check that does not wait costs the same as in the async form.
#[derive(Clone)]
pub struct OnThread<T> {
    pub(crate) inner: T,
    pub(crate) thread: RuntimeThread,
}

impl<T> OnThread<T> {
    pub(crate) fn new(inner: T) -> Self {
        Self { inner, thread: RuntimeThread::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for OnThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Prints the name of the alias: `BlockingClient { .. }` for `Client { .. }`.
        f.write_str("Blocking")?;
        self.inner.fmt(f)
    }
}

impl<T: Transport> Connected for OnThread<T> {
    type Transport = T;

    fn transport(&self) -> Result<&T, Error> {
        let no_thread =
            |_| Error::new(ErrorKind::Unreachable, "the thread for calls to the server could not start");
        self.thread.handle().map(|_| &self.inner).map_err(no_thread)
    }
}

/// Splits a builder into a builder for the async client, and the thread that runs it.
pub(crate) fn on_thread<T>(builder: Builder<OnThread<T>>) -> (Builder<T>, RuntimeThread) {
    let Builder { client, prefix, settings } = builder;
    (Builder { client: client.inner, prefix, settings }, client.thread)
}

/// A thread with a runtime. It starts on first use, and ends when its last owner is dropped.
#[derive(Clone, Default, Debug)]
pub(crate) struct RuntimeThread(Arc<OnceLock<io::Result<Started>>>);

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

    /// Waits for a future in the calling thread. That thread may belong to another runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        // If the thread cannot start, `transport` returns the error, and the call does not wait.
        let _entered = self.handle().ok().map(Handle::enter);
        let (wake, woken) = sync_channel(1);
        let waker = Waker::from(Arc::new(Signal(wake)));
        let mut context = Context::from_waker(&waker);
        // A calling task has a budget of polls. Here the budget would never be renewed, so the future runs without one.
        let mut future = pin!(tokio::task::unconstrained(future));
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
    /// Uses the runtime of the caller.
    pub(crate) fn here() -> Result<Self, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        Ok(Self { runtime, _thread: None })
    }

    /// Uses a client's thread.
    pub(crate) fn on(thread: &RuntimeThread) -> Result<Self, BuildError> {
        let runtime =
            thread.handle().map_err(|why| BuildError::Thread(io::Error::new(why.kind(), why.to_string())))?;
        Ok(Self { runtime: runtime.clone(), _thread: Some(thread.clone()) })
    }
}

/// Calls a function on drop, unless it was cancelled.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(act: F) -> Self {
        Self(Some(act))
    }

    pub(crate) fn cancel(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(act) = self.0.take() {
            act();
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::quota::Quota;
    use crate::edge::redis::{BlockingClient, DecidedBy, Limit, OnFailure};

    /// The runtime of the caller cannot carry a call while its only thread waits for that call.
    #[tokio::test(flavor = "current_thread")]
    async fn call_fails_at_once_without_a_thread() {
        let none = OnceLock::from(Err(io::Error::other("no thread")));
        let client = BlockingClient::open("redis://127.0.0.1:1").unwrap();
        let client = BlockingClient { thread: RuntimeThread(Arc::new(none)), ..client };
        let builder = client.limiter("api", Limit::gcra(Quota::per_second(1))).on_failure(OnFailure::Closed);
        assert_eq!(builder.atomic().unwrap().check("a").by(), DecidedBy::Closed);
    }
}
