//! The names of the gauges of shared limiters.

pub(crate) const PARTITIONED: &str = "tollgate_partitioned";
pub(crate) const BREAKER_STATE: &str = "tollgate_breaker_state";
pub(crate) const SERVER_EVICTS: &str = "tollgate_server_evicts";
pub(crate) const REGION_CUT_OFF: &str = "tollgate_region_cut_off";
pub(crate) const REGION_LAST_ANSWER: &str = "tollgate_region_last_answer_seconds";
