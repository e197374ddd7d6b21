//! Wakes the watching thread after changes. A burst of changes causes one wake-up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The quiet time after the last event, before files are read.
const QUIET: Duration = Duration::from_millis(200);

/// The maximum time from an event until files are read. The rest of a second is for the load.
const LATEST: Duration = Duration::from_millis(500);

/// The system's thread rings the bell, and the watching thread waits for it. The memory use does not depend on the
/// number of events.
#[derive(Debug, Default)]
pub(super) struct Bell {
    heard: Mutex<Heard>,
    rung: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    /// The events since the last wait.
    burst: Option<Burst>,
    rewatch: bool,
    stopped: bool,
}

/// The times of the first and of the last event that no wake-up has followed yet.
#[derive(Copy, Clone, Debug)]
struct Burst {
    first: Instant,
    last: Instant,
}

impl Burst {
    /// Adds an event. It also counts while the thread is loading, so that a long load delays the next one no further.
    fn with(burst: Option<Self>, now: Instant) -> Self {
        Self { first: burst.map_or(now, |burst| burst.first), last: now }
    }

    /// Returns the time until the thread wakes, if there is no further event.
    fn left(self, now: Instant) -> Duration {
        let left = |from: Instant, most: Duration| most.saturating_sub(now.saturating_duration_since(from));
        left(self.last, QUIET).min(left(self.first, LATEST))
    }
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
        heard.burst = Some(Burst::with(heard.burst, now()));
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
        let (mut heard, _) = self.wait_ring(Some(at_most));
        if heard.burst.is_some() {
            let waited = self.rung.wait_timeout_while(heard, delay, |heard| !heard.stopped);
            (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        heard.wake()
    }

    /// Sleeps until the bell has rung and then stayed quiet for a while, or until its first ring was a longer while ago.
    /// Also returns after `retry`, with a request to set up all watches again.
    pub(super) fn wait(&self, retry: Option<Duration>) -> Woken {
        let (mut heard, timed_out) = self.wait_ring(retry);
        heard.rewatch |= timed_out;
        while let Some(left) = heard.left(now()) {
            let waited = self.rung.wait_timeout(heard, left);
            (heard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        heard.wake()
    }

    /// Sleeps until the bell has rung, at most for a time. Returns whether that time has passed.
    fn wait_ring(&self, at_most: Option<Duration>) -> (MutexGuard<'_, Heard>, bool) {
        let nothing = |heard: &mut Heard| !heard.stopped && heard.burst.is_none();
        let Some(at_most) = at_most else {
            let waited = self.rung.wait_while(self.lock(), nothing);
            return (waited.unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.rung.wait_timeout_while(self.lock(), at_most, nothing);
        let (heard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (heard, timeout.timed_out())
    }
}

impl Heard {
    /// Returns the time until the thread wakes, or `None` if it wakes now.
    fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.burst.filter(|_| !self.stopped)?.left(now);
        (!left.is_zero()).then_some(left)
    }

    /// Ends the burst.
    fn wake(&mut self) -> Woken {
        if self.stopped {
            return Woken::Stopped;
        }
        self.burst = None;
        Woken::Changed { rewatch: std::mem::take(&mut self.rewatch) }
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
    use super::*;

    /// Returns when loads begin, for events at these times and loads that take `load`. The times are in milliseconds.
    fn loads(events: &[u64], load: u64) -> Vec<u64> {
        let start = now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut events = events.iter().copied().peekable();
        let (mut burst, mut free, mut loads) = (None, 0, Vec::new());
        loop {
            // The thread is busy until `free`, and then reads the files as soon as the burst is over.
            let due = burst.map(|burst: Burst| {
                let ms = u64::try_from(burst.last.duration_since(start).as_millis()).unwrap();
                free.max(ms + u64::try_from(burst.left(burst.last).as_millis()).unwrap())
            });
            match (events.next_if(|event| due.is_none_or(|due| *event < due)), due) {
                (Some(event), _) => burst = Some(Burst::with(burst, at(event))),
                (None, Some(due)) => {
                    loads.push(due);
                    (burst, free) = (None, due + load);
                }
                (None, None) => return loads,
            }
        }
    }

    /// Cause: each event put the load off by its quiet time, for up to two seconds, and the time began only when the
    /// thread was free. Symptom: a folder that changed every 0.2 s was loaded up to 3.2 s late.
    #[test]
    fn constant_events_are_in_force_within_a_second() {
        for gap in [1, 50, 150, 199, 200, 201, 250, 400, 700] {
            for load in [0, 100, 250, 400] {
                let events: Vec<u64> = (0..12_000 / gap).map(|at| at * gap).collect();
                let loads = loads(&events, load);
                for event in &events {
                    let next = loads.iter().find(|begin| *begin >= event).copied().unwrap();
                    // A load is in force when it ends.
                    let in_force = next + load - event;
                    assert!(in_force <= 1_000, "event {event} of {gap} is in force after {in_force} ms");
                }
            }
        }
        assert!(loads(&(0..60).map(|at| at * 200).collect::<Vec<_>>(), 20).len() >= 12);
        assert_eq!(loads(&[0, 50, 100], 20), [300], "a burst is one load");
    }
}
