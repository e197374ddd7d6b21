//! The endpoint for operators, who inspect and change single keys. `tollgate ctl` speaks it.
//!
//! | file | does |
//! |---|---|
//! | `listen` | the flags, the start, and the client of a connection |
//! | `who` | the operator: a user of this machine, a certificate, or a token |
//! | `read` | a body to an operation |
//! | `answer` | an operation to its reports: carries it out, logs it and counts it |
//! | `write` | reports to JSON |
//!
//! A request is `POST /v1/ACTION` with a body in JSON, up to 64 KiB:
//!
//! ```text
//! {"domain": "shop", "descriptors": [[["user", "alice"]]], "tier": null, "rule": null, "why": "ticket 4711",
//!  "units": 50,  for grant
//!  "for": "2h"}  for block
//! ```

pub mod answer;
pub mod flags;
mod listen;
pub mod read;
mod who;
mod write;

pub use self::listen::endpoints;
