//! A server in this process.

use std::collections::HashMap;
use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex, PoisonError};

use super::runtime::OnThread;
use super::settings::Builder;
use crate::base::clock::{Clock, StdClock};
use crate::edge::redis::protocol::model::{self, KeyState, MARGINS_US};
use crate::edge::redis::protocol::{Call, Error, Limit, Reply, Transport};

/// A server in this process, for tests of your own and for simulations: it answers as the script on a real one does, and at once.
///
/// The time is that of any [`Clock`], in whole microseconds. Copies are the same server. For [`BlockingClient`](crate::edge::redis::BlockingClient)s'
/// limiters there is [`InProcess::blocking`].
///
/// # Examples
/// ```
/// use tollgate::redis::{InProcess, Limit};
/// use tollgate::{ManualClock, Quota};
///
/// let clock = ManualClock::default();
/// let server = InProcess::new(clock.clone());
/// // One limiter in each of two services.
/// let ours = server.limiter("api", Limit::gcra(Quota::per_second(2)));
/// let theirs = server.limiter("api", Limit::gcra(Quota::per_second(2)));
/// # let _ = (ours, theirs);
/// ```
#[derive(Clone)]
pub struct InProcess {
    shared: Arc<ServerState>,
}

/// The same for threads: what [`BlockingClient`](crate::edge::redis::BlockingClient) is to [`Client`](crate::edge::redis::Client).
pub type BlockingInProcess = OnThread<InProcess>;

struct ServerState {
    clock: Box<dyn Clock + Send + Sync>,
    keys: Mutex<KeptKeys>,
}

#[derive(Default)]
struct KeptKeys {
    held: HashMap<Vec<u8>, KeptKey, ahash::RandomState>,
    /// How many there may be before those that are over are looked for.
    sweep_at: usize,
}

#[derive(Default)]
struct KeptKey {
    held: KeyState,
    /// By the clock.
    over_us: u64,
}

/// Fewer keys than this are never looked through.
const SWEEP: usize = 1_024;

impl InProcess {
    /// An empty one, with this time.
    pub fn new(clock: impl Clock + Send + Sync + 'static) -> Self {
        let shared = ServerState { clock: Box::new(clock), keys: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// A limiter of this name. All that have the same name, prefix and limits share their states.
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }

    /// The same server, for limiters that block.
    #[must_use]
    pub fn blocking(&self) -> BlockingInProcess {
        OnThread::new(self.clone())
    }

    /// How many keys it holds, those included that are over and not swept yet.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys_now().held.len()
    }

    /// Forgets everything, as a server that starts anew without what it had.
    pub fn clear(&self) {
        *self.keys_now() = KeptKeys::default();
    }

    fn keys_now(&self) -> std::sync::MutexGuard<'_, KeptKeys> {
        self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers as of this time by the server's clock, unless the call says another.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn answer_at(&self, call: &Call, now_us: u64) -> Reply {
        Self::answer_of(&mut self.keys_now(), call, now_us)
    }

    fn answer_of(keys: &mut KeptKeys, call: &Call, now_us: u64) -> Reply {
        if keys.held.len() >= keys.sweep_at.max(SWEEP) {
            keys.held.retain(|_, entry| entry.over_us > now_us);
            keys.sweep_at = keys.held.len() * 2;
        }
        let at_us = call.now.map_or(now_us, |now| now.as_nanos() / 1_000);
        let margin_us = MARGINS_US[usize::from(call.now.is_some())];
        let answer = |entry: &mut KeptKey| {
            if entry.over_us <= now_us {
                entry.held = KeyState::default();
            }
            let reply = model::answer(&call.plan, &mut entry.held, at_us, &call.ask);
            let rest_us = entry.held.rest_us(&call.plan, at_us);
            entry.over_us = entry.over_us.max(now_us.saturating_add(rest_us).saturating_add(margin_us));
            reply
        };
        if let Some(entry) = keys.held.get_mut(&call.tag) {
            return answer(entry);
        }
        let mut entry = KeptKey::default();
        let reply = answer(&mut entry);
        if entry.held != KeyState::default() {
            keys.held.insert(call.tag.clone(), entry);
        }
        reply
    }

    fn answer(&self, call: &Call) -> Reply {
        // The time is read once nobody else is answered, as a script does: its calls never see time step back.
        let mut keys = self.keys_now();
        Self::answer_of(&mut keys, call, self.shared.clock.now().as_nanos() / 1_000)
    }
}

/// By the system's clock.
impl Default for InProcess {
    fn default() -> Self {
        Self::new(StdClock::new())
    }
}

impl BlockingInProcess {
    /// As [`InProcess::limiter`].
    pub fn limiter(&self, name: &str, limit: Limit) -> Builder<Self> {
        Builder::new(self.clone(), name, limit)
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("keys", &self.keys()).finish_non_exhaustive()
    }
}

impl Transport for InProcess {
    fn call(&self, call: &Call) -> impl Future<Output = Result<Reply, Error>> + Send {
        ready(Ok(self.answer(call)))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::base::clock::Timestamp;
    use crate::base::quota::Quota;
    use crate::base::sync::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    /// Waits in each reading for another one to begin, and remembers if one did.
    #[derive(Clone, Default)]
    struct Meeting {
        inside: Arc<AtomicU32>,
        met: Arc<AtomicU32>,
    }

    impl Clock for Meeting {
        #[expect(clippy::disallowed_methods, reason = "gives up in real time")]
        fn now(&self) -> Timestamp {
            // Ordering: Relaxed, here and below. Plain tallies.
            self.inside.fetch_add(1, Ordering::Relaxed);
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                if self.inside.load(Ordering::Relaxed) > 1 {
                    self.met.fetch_add(1, Ordering::Relaxed);
                }
                std::thread::yield_now();
            }
            self.inside.fetch_sub(1, Ordering::Relaxed);
            Timestamp::from_secs(1_700_000_000)
        }
    }

    /// The clock was read before the keys were locked. A thread that was held up between the two answered as of a time that others
    /// had left behind, by more than a window if that was short: the window that was under way was then taken for one of a clock
    /// that ran ahead, and was brought back, and admitted more than its limit. A script's time is its own, and so must this be.
    #[test]
    fn time_is_read_by_one_call_after_another() {
        let clock = Meeting::default();
        let server = InProcess::new(clock.clone()).blocking();
        let limiter = server.limiter("api", Limit::gcra(Quota::per_second(10))).atomic().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| limiter.check("one"));
            }
        });
        assert_eq!(clock.met.load(Ordering::Relaxed), 0, "two calls read the time at once");
    }
}
