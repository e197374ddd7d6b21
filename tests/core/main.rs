//! Algorithms compared with their oracles and with textbook examples; quotas that change; other kinds of charges;
//! refunds; several limits and leases; waits.

#[macro_use]
extern crate tollgate_testing;

mod adjustable;
mod adjustable_stores;
mod adjustable_verbs;
mod algorithms_named;
mod algorithms_oracle;
#[path = "../common/alike.rs"]
mod alike;
#[path = "../common/alike_limits.rs"]
mod alike_limits;
mod blocks;
#[cfg(feature = "calendar")]
mod calendar;
mod charges_named;
mod charges_oracle;
mod classes;
mod distinct;
mod first_fill;
mod given_back;
mod holds;
mod joint;
mod kinds_alike;
mod late_charges;
mod limit_states;
mod limit_text;
mod limiter;
mod oracles;
mod oversized;
mod quota;
mod refunds;
mod send_sync;
mod unlimited;
mod wait;
