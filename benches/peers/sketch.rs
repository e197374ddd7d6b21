//! The rows of Tollgate's sketch store, which counts windows in constant memory.

use std::time::Duration;

use tollgate::{Capacity, FixedWindow, Quota, RateLimiter, Sketch};

use crate::subject::{Expect, Recipe, Setup, Subject};
use crate::support::length;

/// A window that does not end during a run.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

struct OursSketch(RateLimiter<Sketch>);

impl OursSketch {
    fn new(setup: Setup) -> Self {
        let limit = if setup.expect == Expect::Denied { 1 } else { u64::from(setup.expect.terms().burst) };
        // 16 bytes per key.
        let capacity = Capacity::memory(length(setup.population * 16).max(1 << 20));
        let builder = RateLimiter::builder(FixedWindow::new(Quota::new(limit, YEAR)));
        let hasher = ahash::RandomState::with_seeds(1, 2, 3, 4);
        Self(builder.hasher(hasher).capacity(capacity).sketch().expect("the counters can hold the limit"))
    }
}

impl Subject<u64> for OursSketch {
    #[inline(always)]
    fn check(&self, key: &u64) -> bool {
        self.0.check(key).is_allowed()
    }
}

pub(crate) fn keyed() -> Vec<Recipe<u64>> {
    vec![Recipe {
        name: "tollgate sketch",
        counts: "check, fixed window, ahash, default clock; 16 B a key, 1 MiB at least",
        build: |setup| Box::new(OursSketch::new(setup)),
    }]
}
