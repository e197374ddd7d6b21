//! The commands for rule files.
//!
//! | file | does |
//! |---|---|
//! | `check` | `tollgate rules check`: shows their contents |
//! | `explain` | `tollgate rules explain`: which rules apply to a request, and why |
//! | `replay`, `tally`, `output`, `sections` | `tollgate replay --rules`: the denied requests, by rule and by key |
//! | `shared` | `tollgate rules push`, `pull` and `diff`: rules on a server; `no_redis` stands in for it |
//! | `mapping` | from the fields of a log to descriptors |

pub mod check;
pub mod explain;
mod mapping;
mod output;
pub mod replay;
mod sections;
#[cfg_attr(not(feature = "redis"), path = "no_redis.rs")]
pub mod shared;
mod tally;
