//! The guard of a limiter, with a server that does what a test says, in paused time.

mod breakers;
mod calls;

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tollgate::Quota;
use tollgate_protocol::{Call, LimitStanding, Place, Reply, Transport};
use tollgate_redis::internals::with_client;
use tollgate_redis::{AtomicLimiter, Breaker, Error, ErrorKind, InProcess, Limit, OnFailure};

const TIMEOUT: Duration = Duration::from_millis(40);
const SECOND: Duration = Duration::from_secs(1);

/// What the server does with a call.
#[derive(Copy, Clone)]
enum Does {
    Answer,
    /// Answers after this delay.
    Late(Duration),
    Hang,
    Fail(ErrorKind),
}

/// A server or a set of servers. A copy is the same server.
#[derive(Clone)]
struct Fake(Arc<Mutex<FakeState>>);

struct FakeState {
    does: Box<dyn Fn(&Call) -> Does + Send>,
    /// The places of the calls.
    asked: Vec<Place>,
}

impl Fake {
    fn new(does: impl Fn(&Call) -> Does + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(FakeState { does: Box::new(does), asked: Vec::new() })))
    }

    /// A server that does the same with each call.
    fn that(does: Does) -> Self {
        Self::new(move |_| does)
    }

    fn now_does(&self, does: Does) {
        self.0.lock().unwrap().does = Box::new(move |_| does);
    }

    /// The number of calls since the last call of this method.
    fn asked(&self) -> usize {
        std::mem::take(&mut self.0.lock().unwrap().asked).len()
    }

    async fn act<R>(&self, call: &Call, answer: R) -> Result<R, Error> {
        let does = {
            let mut state = self.0.lock().unwrap();
            state.asked.push(call.place);
            (state.does)(call)
        };
        match does {
            Does::Answer => {}
            Does::Late(after) => tokio::time::sleep(after).await,
            Does::Hang => pending().await,
            Does::Fail(kind) => return Err(Error::new(kind, "simulated failure")),
        }
        Ok(answer)
    }
}

/// The last byte of a key is its part.
fn part_of(call: &Call) -> usize {
    call.tag[call.tag.len() - 2].into()
}

impl Transport for Fake {
    type States = ();

    async fn call(&self, call: &Call) -> Result<Reply, Error> {
        let limits = call.plan.parts().iter().map(|part| match part.windows() {
            None => LimitStanding::Pace { ahead: 0, is_blocked: false },
            Some(_) => LimitStanding::Windows { start_us: 0, previous: 0, current: 0 },
        });
        self.act(call, Reply::new(1, 0, limits.collect())).await
    }

    async fn has_states(&self, call: &Call) -> Result<bool, Error> {
        self.act(call, false).await
    }

    async fn read_states(&self, call: &Call) -> Result<(), Error> {
        self.act(call, ()).await
    }

    async fn write_states(&self, call: &Call, (): &()) -> Result<(), Error> {
        self.act(call, ()).await
    }

    fn part(&self, call: &Call) -> usize {
        part_of(call)
    }
}

/// A limiter of this server. `set` decides which server holds a key.
fn limiter_of(set: &InProcess, server: &Fake, breaker: Breaker, on_failure: OnFailure) -> AtomicLimiter {
    let limits = [Limit::gcra(Quota::per_second(10)), Limit::fixed_window(Quota::per_hour(8))];
    let builder = set.limiter("api", limits[0]).and(limits[1]).timeout(TIMEOUT);
    with_client(builder.breaker(breaker).on_failure(on_failure), server.clone()).atomic().unwrap()
}

/// A limiter whose breaker opens after three failures.
fn limiter(server: &Fake, on_failure: OnFailure) -> AtomicLimiter {
    limiter_of(&InProcess::default(), server, Breaker::new(3, SECOND), on_failure)
}

/// Asks the server about a key.
async fn ask_about(limiter: &AtomicLimiter, key: &str) -> Result<(), ErrorKind> {
    limiter.charge_unchecked(key, 1).await.map(drop).map_err(|error| error.kind())
}

async fn ask(limiter: &AtomicLimiter) -> Result<(), ErrorKind> {
    ask_about(limiter, "a").await
}
