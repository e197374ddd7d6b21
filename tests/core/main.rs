//! The algorithms against their oracles and the textbook; the limiter's own face: quotas that change, charges of other kinds, refunds.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod adjustable;
mod algorithms_named;
mod algorithms_oracle;
mod charges_named;
mod charges_oracle;
mod limiter;
mod oracles;
mod refunds;
mod send_sync;
