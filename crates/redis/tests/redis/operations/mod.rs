//! What an operator of the server sets: users with few rights, the addresses that Cluster nodes announce, and
//! fail-overs. Some servers only send the replies of a test.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

mod attempts;
mod endpoints;
mod failover;
mod outages;
mod replies;
mod users;

use tollgate_testing::redis::Server;
use tollgate_testing::skipped::skip;

/// Runs a command of a newer server. If the server does not know it, reports that the test skips and returns `None`.
#[track_caller]
pub(crate) fn newer<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> Option<T> {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    match command.query(&mut server.connection()) {
        Ok(answer) => Some(answer),
        Err(error) => {
            skip(&format!("the server is too old for {words:?}: {error}"));
            None
        }
    }
}
