//! Wakes the watching thread after changes. A burst of changes causes one wake-up.
//!
//! A file that is written in place has only a part of its rules meanwhile, so it is not read until the writes have
//! stopped for [`QUIET`]. The other files do not wait for it. A file that is renamed to its name is whole from the start.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The quiet time after the last event, before files are read. Also the time after the last write to a file, before that
/// file is read.
const QUIET: Duration = Duration::from_millis(200);

/// The maximum time from an event until files are read. The rest of a second is for the load.
const LATEST: Duration = Duration::from_millis(500);

/// The time for which a file may be written without a pause before this is reported.
const LONG: Duration = Duration::from_secs(10);

/// The time after which the thread wakes by itself if it has to look again.
const AGAIN: Duration = Duration::from_secs(1);

/// The thread of the system reports changes, and the watching thread waits for them. The memory use does not depend on the
/// number of events.
#[derive(Debug, Default)]
pub(super) struct ChangeSignal {
    noticed: Mutex<Noticed>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Noticed {
    /// The events since the last wait.
    burst: Option<Burst>,
    /// The files that were being written when the thread last woke, or have been written since.
    writes: HashMap<PathBuf, Write>,
    rewatch: bool,
    /// Whether the next wait ends after [`AGAIN`], also without an event.
    again: bool,
    stopped: bool,
}

/// The events that no wake-up has followed yet.
#[derive(Copy, Clone, Debug)]
struct Burst {
    /// The time of the last event.
    last: Instant,
    /// The time at which the thread wakes at the latest.
    latest: Instant,
}

impl Burst {
    /// Adds an event. It also counts while the thread is loading, so that a long load delays the next one no further.
    fn with(burst: Option<Self>, now: Instant) -> Self {
        Self { last: now, latest: burst.map_or(now + LATEST, |burst| burst.latest) }
    }

    /// Returns the time until the thread wakes, if there is no further event.
    fn left(self, now: Instant) -> Duration {
        (self.last + QUIET).min(self.latest).saturating_duration_since(now)
    }
}

/// The times of the first and of the last write to a file, without a pause between them.
#[derive(Copy, Clone, Debug)]
struct Write {
    first: Instant,
    last: Instant,
    is_reported: bool,
}

impl Write {
    fn is_going_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) < QUIET
    }
}

/// The result of [`ChangeSignal::wait`].
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Woken {
    /// Files may have changed. If `rewatch` is set, a watched path may now refer to another file or folder. `endless` is
    /// a file that has been written without a pause for a long time, and is named once.
    Changed { rewatch: bool, endless: Option<PathBuf> },
    /// The watcher is being dropped.
    Stopped,
}

impl ChangeSignal {
    fn lock(&self) -> MutexGuard<'_, Noticed> {
        self.noticed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports an event. `written` are the files that were written in place.
    pub(super) fn notify(&self, rewatch: bool, written: Vec<PathBuf>) {
        self.lock().note(now(), rewatch, written);
        self.changed.notify_one();
    }

    /// Makes the next wait end after a second, also without a change.
    pub(super) fn look_again(&self) {
        self.lock().again = true;
    }

    /// Whether some file is being written.
    pub(super) fn has_writes(&self) -> bool {
        !self.lock().writes.is_empty()
    }

    /// Whether this file is being written, so that a reader would find a part of it.
    pub(super) fn is_written(&self, file: &Path) -> bool {
        self.lock().is_written(file, now())
    }

    /// Makes every current and later wait return [`Woken::Stopped`].
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_one();
    }

    /// Sleeps for `at_most`, or until `delay` after a change.
    pub(super) fn wait_hint(&self, at_most: Duration, delay: Duration) -> Woken {
        let (mut noticed, _) = self.wait_change(Some(at_most));
        if noticed.burst.is_some() {
            let waited = self.changed.wait_timeout_while(noticed, delay, |noticed| !noticed.stopped);
            (noticed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        noticed.wake(now())
    }

    /// Sleeps until a change and then a quiet time, or until the first change was a longer time ago.
    /// Also returns after `retry`, with a request to set up all watches again.
    pub(super) fn wait(&self, retry: Option<Duration>) -> Woken {
        let again = std::mem::take(&mut self.lock().again).then_some(AGAIN);
        let (mut noticed, timed_out) = self.wait_change(again.or(retry));
        noticed.rewatch |= timed_out && retry.is_some();
        while let Some(left) = noticed.left(now()) {
            let waited = self.changed.wait_timeout(noticed, left);
            (noticed, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        noticed.wake(now())
    }

    /// Sleeps until a change, at most for a time. Returns whether that time has passed.
    fn wait_change(&self, at_most: Option<Duration>) -> (MutexGuard<'_, Noticed>, bool) {
        let nothing = |noticed: &mut Noticed| !noticed.stopped && noticed.burst.is_none();
        let Some(at_most) = at_most else {
            let waited = self.changed.wait_while(self.lock(), nothing);
            return (waited.unwrap_or_else(PoisonError::into_inner), false);
        };
        let waited = self.changed.wait_timeout_while(self.lock(), at_most, nothing);
        let (noticed, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        (noticed, timeout.timed_out())
    }
}

impl Noticed {
    fn note(&mut self, now: Instant, rewatch: bool, written: Vec<PathBuf>) {
        self.burst = Some(Burst::with(self.burst, now));
        self.rewatch |= rewatch;
        for file in written {
            let begun = Write { first: now, last: now, is_reported: false };
            let write = self.writes.entry(file).or_insert(begun);
            *write = if write.is_going_on(now) { Write { last: now, ..*write } } else { begun };
        }
    }

    fn is_written(&self, file: &Path, now: Instant) -> bool {
        self.writes.get(file).is_some_and(|write| write.is_going_on(now))
    }

    /// Returns the time until the thread wakes, or `None` if it wakes now.
    fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.burst.filter(|_| !self.stopped)?.left(now);
        (!left.is_zero()).then_some(left)
    }

    /// Ends the burst. While a file is being written, the next one begins: the thread wakes again when the file may be
    /// whole.
    fn wake(&mut self, now: Instant) -> Woken {
        if self.stopped {
            return Woken::Stopped;
        }
        self.writes.retain(|_, write| write.is_going_on(now));
        let last = self.writes.values().map(|write| write.last).max();
        self.burst = last.map(|last| Burst { last, latest: now + QUIET });
        let is_endless = |write: &Write| !write.is_reported && write.last.duration_since(write.first) >= LONG;
        let endless = self.writes.iter_mut().find(|(_, write)| is_endless(write)).map(|(file, write)| {
            write.is_reported = true;
            file.clone()
        });
        Woken::Changed { rewatch: std::mem::take(&mut self.rewatch), endless }
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

    /// A load: when it begins, and the files that it reads. All times are in milliseconds.
    type Load = (u64, Vec<&'static str>);

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// Returns the loads for these events, if each load takes `load`. An event has the file that it reports as written in
    /// place, or `None` for another change. A load reads the files of `all` that are not being written.
    fn loads(events: &[(u64, Option<&'static str>)], all: &[&'static str], load: u64) -> Vec<Load> {
        let start = now();
        let mut events = events.iter().copied().peekable();
        let (mut noticed, mut woken, mut free, mut loads) = (Noticed::default(), 0, 0, Vec::new());
        loop {
            // The thread is busy until `free`, and then wakes as soon as the burst is over.
            let due = noticed.burst.map(|burst| {
                let left = burst.left(at(start, woken)).as_millis();
                free.max(woken + u64::try_from(left).unwrap())
            });
            match (events.next_if(|(event, _)| due.is_none_or(|due| *event < due)), due) {
                (Some((event, file)), _) => {
                    noticed.note(at(start, event), false, file.map(PathBuf::from).into_iter().collect());
                    woken = event;
                }
                (None, Some(due)) => {
                    let _ = noticed.wake(at(start, due));
                    let is_whole = |file: &&&str| !noticed.is_written(Path::new(**file), at(start, due));
                    loads.push((due, all.iter().filter(is_whole).copied().collect()));
                    (woken, free) = (due, due + load);
                }
                (None, None) => return loads,
            }
        }
    }

    /// Cause: each event put the load off by its quiet time, for up to two seconds, and the time began only when the
    /// thread was free. Symptom: a folder that changed every 0.2 s was loaded up to 3.2 s late.
    // G104
    #[test]
    fn constant_events_are_in_force_within_a_second() {
        for gap in [1, 50, 150, 199, 200, 201, 250, 400, 700] {
            for load in [0, 100, 250, 400] {
                let events: Vec<_> = (0..12_000 / gap).map(|at| (at * gap, None)).collect();
                let loads = loads(&events, &[], load);
                for (event, _) in &events {
                    let (next, _) = loads.iter().find(|(begin, _)| begin >= event).unwrap();
                    // A load is in force when it ends.
                    let in_force = next + load - event;
                    assert!(in_force <= 1_000, "event {event} of {gap} is in force after {in_force} ms");
                }
            }
        }
        let events: Vec<_> = (0..60).map(|at| (at * 200, None)).collect();
        assert!(loads(&events, &[], 20).len() >= 12);
        let burst = [(0, None), (50, None), (100, None)];
        assert_eq!(loads(&burst, &[], 20), [(300, vec![])], "a burst is one load");
    }

    const QUIET_MS: u64 = 200;

    /// Programs write one file after the other in place, each at once. No change waits for those after it.
    // G104
    #[test]
    fn files_written_one_by_one_are_in_force_within_a_second() {
        const FILES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];
        for gap in [1, 50, 150, 199, 201, 400] {
            for load in [0, 100, 250, 400] {
                let round = |at: u64| FILES[usize::try_from(at % 7).unwrap()];
                let events: Vec<_> = (0..6_000 / gap).map(|at| (at * gap, Some(round(at)))).collect();
                let loads = loads(&events, &FILES, load);
                let is_left_for = |event: u64, file, ms| {
                    !events.iter().any(|(at, other)| *other == file && (event + 1..event + ms).contains(at))
                };
                for &(event, file) in
                    events.iter().filter(|(event, file)| is_left_for(*event, *file, QUIET_MS + 1))
                {
                    let reads = |(begin, whole): &&Load| *begin >= event && whole.contains(&file.unwrap());
                    let in_force = loads.iter().find(reads).unwrap().0 + load - event;
                    // A file that soon changes again may be missed a few times, but not for ever.
                    let most = if is_left_for(event, file, 600) { 1_000 } else { 3_000 };
                    assert!(in_force <= most, "event {event} of {gap} is in force after {in_force} ms");
                }
                let least = loads.windows(3).map(|three| three[2].0 - three[0].0).min();
                assert!(least.is_none_or(|least| least >= 200), "loads must not follow each other at once");
            }
        }
    }

    /// Cause: a load began at most half a second after the first event. Trigger: a program wrote a file in forty parts,
    /// fifty milliseconds apart. Symptom: a part of the file was loaded, and the clients of the other rules had no limit.
    // G104
    #[test]
    fn slowly_written_file_is_read_after_its_last_part() {
        let mut events: Vec<_> = (0..40).map(|part| (part * 50, Some("slow"))).collect();
        // Meanwhile, another file is renamed to its name.
        events.push((701, None));
        events.sort_unstable();
        let loads = loads(&events, &["slow", "other"], 20);
        let reads =
            |file| loads.iter().find(|(begin, whole)| *begin >= 701 && whole.contains(&file)).unwrap().0;
        assert_eq!(reads("slow"), 39 * 50 + 200);
        assert!(loads.iter().all(|(begin, whole)| *begin >= 2_150 || !whole.contains(&"slow")), "{loads:?}");
        assert!(reads("other") <= 701 + 500, "{loads:?}");
        assert!(loads.len() <= 2_150 / 200 + 1, "{loads:?}");
    }

    #[test]
    fn endless_write_is_reported_once() {
        let (start, mut noticed) = (now(), Noticed::default());
        let mut reports = Vec::new();
        let mut write = |from: u64, to: u64| {
            for ms in (from..to).step_by(100) {
                noticed.note(at(start, ms), false, vec!["slow".into()]);
                if let Woken::Changed { endless: Some(file), .. } = noticed.wake(at(start, ms + 50)) {
                    reports.push((ms, file));
                }
            }
        };
        write(0, 30_000);
        // After a pause, this is another write.
        write(30_200, 39_000);
        write(40_000, 51_000);
        let file = PathBuf::from("slow");
        assert_eq!(reports, [(10_000, file.clone()), (50_000, file)]);
    }
}
