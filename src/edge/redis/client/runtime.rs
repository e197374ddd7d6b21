//! Where limiters work: the runtime of async code, or a thread with a runtime that clients of threads share.
//!
//! A thread that waits polls its future itself. Connections, timers and the tasks of limiters are on the runtime's thread. So many calls
//! share a connection, and none waits for another's answer.

use std::pin::pin;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::{fmt, io};

use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;

use super::settings::BuildError;
use crate::edge::redis::protocol::{Error, ErrorKind, Transport};

/// What limiters are made on.
pub(crate) trait Connected {
    type Transport: Transport + Clone;

    /// What carries the calls. An error if there is no thread for it.
    fn transport(&self) -> Result<&Self::Transport, Error>;
}

impl<T: Transport + Clone> Connected for T {
    type Transport = Self;

    fn transport(&self) -> Result<&Self, Error> {
        Ok(self)
    }
}

/// An async client or limiter for threads that may block: its calls and tasks run on a thread of the client.
///
/// [`BlockingClient`](super::BlockingClient) and the blocking limiters are aliases of it.
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
        f.debug_tuple("OnThread").field(&self.inner).finish()
    }
}

impl<T: Transport + Clone> Connected for OnThread<T> {
    type Transport = T;

    fn transport(&self) -> Result<&T, Error> {
        let no_thread = |_| Error::new(ErrorKind::Unreachable, "there is no thread to carry calls");
        self.thread.handle().map(|_| &self.inner).map_err(no_thread)
    }
}

/// A thread with a runtime. It starts when it is first needed, and ends when nothing holds it any more.
#[derive(Clone, Default)]
pub(crate) struct RuntimeThread(Arc<OnceLock<io::Result<Started>>>);

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

    /// Waits for a future in the thread that calls, whether or not that is a thread of another runtime.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        // If no thread can be started, `transport` says so, and nothing is waited for.
        let _entered = self.handle().ok().map(Handle::enter);
        let (wake, woken) = sync_channel(1);
        let waker = Waker::from(Arc::new(Signal(wake)));
        let mut context = Context::from_waker(&waker);
        // A task that calls this has a budget of polls, which would never be renewed here.
        let mut future = pin!(tokio::task::unconstrained(future));
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            // `waker` holds a sender.
            let _ = woken.recv();
        }
    }
}

/// Wakes the thread that waits. A full channel holds a signal already.
struct Signal(SyncSender<()>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        let _ = self.0.try_send(());
    }
}

/// Where a limiter's tasks run. A thread of its own lasts until they have ended.
pub(crate) struct Tasks {
    pub(crate) runtime: Handle,
    _thread: Option<RuntimeThread>,
}

impl Tasks {
    /// In the runtime of the caller.
    pub(crate) fn here() -> Result<Self, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime)?;
        Ok(Self { runtime, _thread: None })
    }

    /// On a client's thread.
    pub(crate) fn on(thread: &RuntimeThread) -> Result<Self, BuildError> {
        let runtime =
            thread.handle().map_err(|why| BuildError::Thread(io::Error::new(why.kind(), why.to_string())))?;
        Ok(Self { runtime: runtime.clone(), _thread: Some(thread.clone()) })
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::quota::Quota;
    use crate::edge::redis::{BlockingClient, DecidedBy, Limit, OnFailure};

    /// The runtime of the caller cannot carry a call that its own thread waits for.
    #[tokio::test(flavor = "current_thread")]
    async fn no_call_is_waited_for_without_a_thread() {
        let none = OnceLock::from(Err(io::Error::other("no thread")));
        let client = BlockingClient::open("redis://127.0.0.1:1").unwrap();
        let client = BlockingClient { thread: RuntimeThread(Arc::new(none)), ..client };
        let builder = client.limiter("api", Limit::gcra(Quota::per_second(1))).on_failure(OnFailure::Closed);
        assert_eq!(builder.atomic().unwrap().check("a").by(), DecidedBy::Closed);
    }
}
