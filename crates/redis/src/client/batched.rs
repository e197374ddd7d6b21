//! The calls on one connection. Calls that are ready to leave at the same moment leave together.
//!
//! On a runtime with several threads, the connection sends each call at once (`TCP_NODELAY`). With the system's own
//! delay, a call would wait until the server has acknowledged the calls before it, which takes a round trip. But then
//! each of many calls is a write and a segment of its own. So calls are joined here, and none of them waits for the
//! network:
//!
//! 1. While fewer than `DIRECT` calls are under way, a call is sent directly.
//! 2. Any other call joins the calls that wait, and the first of them starts a task.
//! 3. The task runs after the other tasks that are ready now, and sends all calls that wait by then in one write.
//!
//! Each answer goes to its caller when it arrives. With one pipeline of all calls, each would wait for the last one, and
//! the server would then have nothing to do. A call that is dropped before it is sent is not sent.

use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::aio::MultiplexedConnection;
use ::redis::{Cmd, RedisError, RedisResult, Value};
use futures_util::StreamExt;
use futures_util::future::{Either, ready, select};
use futures_util::stream::FuturesUnordered;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use super::runtime::OnDrop;

/// The number of calls that are sent directly.
const DIRECT: usize = 2;

/// See the module docs.
pub(super) struct BatchedCalls {
    connection: MultiplexedConnection,
    state: Mutex<BatchState>,
}

#[derive(Default)]
struct BatchState {
    /// The calls that were sent and not answered, and those that wait.
    under_way: usize,
    waiting: Vec<Waiting>,
    /// Whether a task will send the calls that wait.
    is_sending: bool,
}

struct Waiting {
    command: Cmd,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl BatchedCalls {
    pub(super) fn new(connection: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self { connection, state: Mutex::default() })
    }

    /// The connection, for commands that are not joined.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    fn state(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) {
        self.state().under_way -= 1;
    }

    /// Takes the calls that wait. Later calls start another task.
    fn take_waiting(&self) -> Vec<Waiting> {
        let mut state = self.state();
        state.is_sending = false;
        mem::take(&mut state.waiting)
    }

    /// Sends a command, and waits for its answer.
    pub(super) async fn call(self: &Arc<Self>, runtime: &Handle, command: Cmd) -> RedisResult<Value> {
        // Its tasks run in order, so the connection's own task already writes all calls together.
        let (command, _ended) = if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
            (command, None)
        } else {
            match self.join(runtime, command) {
                Ok(answer) => return answer.await.unwrap_or_else(|_| Err(broken())),
                Err(command) => (command, Some(OnDrop::new(|| self.ended()))),
            }
        };
        // Boxed, so that the futures around it are small: each is moved when it begins.
        Box::pin(self.connection().send_packed_command(&command)).await
    }

    /// Adds a command to those that wait, or returns it if it is sent directly.
    fn join(
        self: &Arc<Self>,
        runtime: &Handle,
        command: Cmd,
    ) -> Result<oneshot::Receiver<RedisResult<Value>>, Cmd> {
        let mut state = self.state();
        state.under_way += 1;
        if state.under_way <= DIRECT {
            return Err(command);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push(Waiting { command, answer: sender });
        if !mem::replace(&mut state.is_sending, true) {
            drop(state);
            self.start(runtime);
        }
        Ok(receiver)
    }

    fn start(self: &Arc<Self>, runtime: &Handle) {
        let own = Arc::clone(self);
        // Created here, so that it acts even if the task never runs: a runtime that shuts down drops its tasks.
        let dropped = OnDrop::new(move || own.abandon());
        runtime.spawn(Arc::clone(self).send(dropped));
    }

    /// Ends the calls that wait without an answer.
    fn abandon(&self) {
        let waiting = self.take_waiting();
        self.state().under_way -= waiting.len();
    }

    /// Sends the calls that wait, and passes on their answers.
    async fn send(self: Arc<Self>, dropped: OnDrop<impl FnOnce()>) {
        // A new task runs first on its thread, so it makes way for the tasks that are ready.
        tokio::task::yield_now().await;
        let calls = self.take_waiting();
        dropped.cancel();
        // All calls are handed to the connection before its own task runs, which then writes them together.
        let answers: FuturesUnordered<_> = calls.into_iter().map(|waiting| self.answer(waiting)).collect();
        answers.for_each(|()| ready(())).await;
    }

    /// Sends one call, unless its caller is gone, and passes on the answer.
    async fn answer(&self, Waiting { command, mut answer }: Waiting) {
        let _ended = OnDrop::new(|| self.ended());
        if answer.is_closed() {
            return;
        }
        let mut connection = self.connection();
        let value = {
            let value = pin!(connection.send_packed_command(&command));
            match select(value, pin!(answer.closed())).await {
                Either::Left((value, _)) => value,
                Either::Right(_) => return,
            }
        };
        let _ = answer.send(value);
    }
}

/// The error of a call whose task ended without an answer.
fn broken() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}
