//! Wakes the watching thread after changes. A burst of changes causes one wake-up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The quiet time after the last event, before files are read.
const QUIET: Duration = Duration::from_millis(200);

/// The maximum time that files may keep changing before they are read.
const LATEST: Duration = Duration::from_secs(2);

/// The system's thread rings the bell, and the watching thread waits for it. The memory use does not depend on the
/// number of events.
#[derive(Debug, Default)]
pub(super) struct Bell {
    heard: Mutex<Heard>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    /// How often the bell rang since the last wait.
    rings: u64,
    rewatch: bool,
    stopped: bool,
}

/// The result of [`Bell::wait`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Woken {
    /// Files may have changed. If `rewatch` is set, a watched path may now refer to another file or folder.
    Changed { rewatch: bool },
    /// The watcher is being dropped.
    Stopped,
}

impl Bell {
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event.
    pub(super) fn ring(&self, rewatch: bool) {
        let mut heard = self.lock();
        heard.rings = heard.rings.saturating_add(1);
        heard.rewatch |= rewatch;
        self.rung.notify_one();
    }

    /// Makes every current and later wait return [`Woken::Stopped`].
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.rung.notify_one();
    }

    /// Sleeps for `at_most`, or until the bell has rung and then `delay` has passed.
    pub(super) fn wait_hint(&self, at_most: Duration, delay: Duration) -> Woken {
        let nothing = |heard: &mut Heard| !heard.stopped && heard.rings == 0;
        let waited = self.rung.wait_timeout_while(self.lock(), at_most, nothing);
        let (mut heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if heard.rings > 0 {
            let waited = self.rung.wait_timeout_while(heard, delay, |heard| !heard.stopped);
            (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        if heard.stopped {
            return Woken::Stopped;
        }
        heard.rings = 0;
        Woken::Changed { rewatch: std::mem::take(&mut heard.rewatch) }
    }

    /// Sleeps until the bell has rung and then stayed quiet for a while, or has rung for a long time. Also returns
    /// after `retry`, with a request to set up all watches again.
    pub(super) fn wait(&self, retry: Option<Duration>) -> Woken {
        let mut heard = self.lock();
        let nothing = |heard: &mut Heard| !heard.stopped && heard.rings == 0;
        if let Some(retry) = retry {
            let waited = self.rung.wait_timeout_while(heard, retry, nothing);
            let timeout;
            (heard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            heard.rewatch |= timeout.timed_out();
        } else {
            heard = self.rung.wait_while(heard, nothing).unwrap_or_else(PoisonError::into_inner);
        }
        if heard.rings > 0 {
            let begin = now();
            loop {
                let rings = heard.rings;
                let left = LATEST.saturating_sub(now().saturating_duration_since(begin)).min(QUIET);
                let more = |heard: &mut Heard| !heard.stopped && heard.rings == rings;
                let waited = self.rung.wait_timeout_while(heard, left, more);
                let timeout;
                (heard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if heard.stopped || timeout.timed_out() || left.is_zero() {
                    break;
                }
            }
        }
        if heard.stopped {
            return Woken::Stopped;
        }
        heard.rings = 0;
        Woken::Changed { rewatch: std::mem::take(&mut heard.rewatch) }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "editors and the system write by the real time, whatever the rules' clock says"
)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn bell_merges_bursts_and_keeps_rewatch() {
        let bell = Bell::default();
        bell.ring(false);
        bell.ring(true);
        bell.ring(false);
        assert_eq!(bell.wait(None), Woken::Changed { rewatch: true });
        // The burst is over, so only the retry wakes the thread.
        assert_eq!(bell.wait(Some(Duration::ZERO)), Woken::Changed { rewatch: true });
        bell.ring(false);
        assert_eq!(bell.wait(None), Woken::Changed { rewatch: false });
    }

    #[test]
    fn hint_ends_wait_and_stop_ends_delay() {
        let bell = Bell::default();
        bell.ring(false);
        let long = Duration::from_secs(3_600);
        assert_eq!(bell.wait_hint(long, Duration::ZERO), Woken::Changed { rewatch: false });
        // The hint is used up, so the wait takes its full time.
        assert_eq!(bell.wait_hint(Duration::ZERO, long), Woken::Changed { rewatch: false });
        bell.ring(false);
        bell.stop();
        assert_eq!(bell.wait_hint(long, long), Woken::Stopped);
    }

    #[test]
    fn stop_wakes_waiter() {
        let bell = Arc::new(Bell::default());
        let waits = std::thread::spawn({
            let bell = Arc::clone(&bell);
            move || bell.wait(None)
        });
        bell.stop();
        assert_eq!(waits.join().unwrap(), Woken::Stopped);
        bell.ring(true);
        assert_eq!(bell.wait(None), Woken::Stopped, "it stays stopped");
    }

    /// A bell that is never quiet for [`QUIET`] still wakes the thread.
    #[test]
    fn continuous_ringing_wakes_waiter() {
        let bell = Arc::new(Bell::default());
        let (tell, told) = channel();
        let waits = std::thread::spawn({
            let bell = Arc::clone(&bell);
            move || tell.send(bell.wait(None))
        });
        let mut woken = None;
        // Rings until the thread wakes, with a generous time limit.
        for _ in 0..60_000 {
            bell.ring(false);
            woken = told.recv_timeout(Duration::from_millis(1)).ok();
            if woken.is_some() {
                break;
            }
        }
        bell.stop();
        assert_eq!(woken, Some(Woken::Changed { rewatch: false }));
        let _ = waits.join();
    }
}
