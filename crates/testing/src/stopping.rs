//! A clock that stops between its reading and the next step of the caller.

use std::sync::{Arc, Mutex};
use tollgate::{Clock, ManualClock, Timestamp};

type Meanwhile = Box<dyn FnOnce() + Send>;

/// A clock one of whose readings is held up: a function runs after the reading and before the caller gets it.
#[derive(Clone)]
pub struct Stopping {
    pub time: ManualClock,
    meanwhile: Arc<Mutex<Option<(u32, Meanwhile)>>>,
}

impl Stopping {
    pub fn new(start: Timestamp) -> Self {
        Self { time: ManualClock::new(start), meanwhile: Arc::default() }
    }

    /// Holds up a reading, after `skipped` others.
    pub fn stop_after(&self, skipped: u32, meanwhile: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some((skipped, Box::new(meanwhile)));
    }

    /// Drops a function that no reading has run. Returns whether there was one.
    pub fn go_on(&self) -> bool {
        self.meanwhile.lock().unwrap().take().is_some()
    }
}

impl Clock for Stopping {
    fn now(&self) -> Timestamp {
        let now = self.time.now();
        let mut held = self.meanwhile.lock().unwrap();
        let due = held.take_if(|(skipped, _)| *skipped == 0);
        if let Some((skipped, _)) = &mut *held {
            *skipped -= 1;
        }
        // Released first, so that the calls of the function read the clock without delay.
        drop(held);
        if let Some((_, meanwhile)) = due {
            meanwhile();
        }
        now
    }
}
