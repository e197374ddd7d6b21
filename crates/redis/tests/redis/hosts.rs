//! Where processes share limits: a model of a server, or a server.

use tollgate::ManualClock;
use tollgate_redis::{AtomicLimiter, Blocking, InProcess, Limit};
use tollgate_testing::redis::Server;

use crate::{client, strict};

/// Makes the limiter of a process with a client of its own.
pub(crate) struct Host<'h>(&'h (dyn Fn(&str, &[Limit]) -> Blocking<AtomicLimiter> + Sync));

impl Host<'_> {
    pub(crate) fn process(&self, limits: &[Limit]) -> Blocking<AtomicLimiter> {
        self.named("api", limits)
    }

    pub(crate) fn named(&self, name: &str, limits: &[Limit]) -> Blocking<AtomicLimiter> {
        (self.0)(name, limits)
    }
}

/// Runs a test on a model of a server, and on a server if there is one.
pub(crate) fn on_each(test: impl Fn(&Host<'_>)) {
    let model = InProcess::new(ManualClock::default()).blocking();
    test(&Host(&|name, limits| strict(model.limiter(name, limits[0]), &limits[1..]).atomic().unwrap()));
    if let Some(server) = Server::start() {
        test(&Host(&|name, limits| {
            let client = client(&server).blocking();
            strict(client.limiter(name, limits[0]), &limits[1..]).atomic().unwrap()
        }));
    }
}
