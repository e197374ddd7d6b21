//! Limiters while a real server is killed, paused, cut off, full or read-only.
//!
//! Properties, for async and blocking limiters and for each of the three failure policies:
//! - Nothing panics, and no call hangs. A call may take its time-out plus ten seconds, since these tests do not
//!   measure time.
//! - While the server does not answer, the policy decides, and the counters show it.
//! - While the breaker is open, only probes reach the server.
//! - After the server returns, it decides again.
//! - Except with the open policy, a key gets at most the limit plus this process's share of it.
//!   If the server lost its data, the key may get the limit a second time.

#![expect(clippy::disallowed_methods, reason = "real servers take real time")]

pub(crate) mod subject;

pub(crate) mod cluster;
mod outages;
mod recovery;
mod single;
