//! Real servers that are killed, stopped, cut off, full or read only, and what limiters do meanwhile.
//!
//! Properties, for async and for blocking limiters, and for each of the three policies:
//! - nothing panics, and no call takes longer than the time-out (ten times that is allowed for: these are not tests of time);
//! - while the server does not answer the policy decides, and the counts say so; once the breaker is open, the server is not asked but for probes;
//! - once it is back the server decides again;
//! - of a key, no more is admitted than the limit and this process's share of it together, and once more the limit if the server has
//!   lost what it knew.

#![expect(clippy::disallowed_methods, reason = "real servers take real time")]

mod subject;

mod cluster;
mod outages;
mod recovery;
mod single;
