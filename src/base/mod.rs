//! What every floor stands on: the sync shim, clocks, the time of a check, quotas, decisions, memory.

pub(crate) mod check_time;
pub(crate) mod clock;
pub(crate) mod decision;
pub(crate) mod memory;
pub(crate) mod quota;
pub(crate) mod sync;
