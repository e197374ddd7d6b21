//! Rules in the language of Envoy's rate limit service, which reload while requests are decided.

mod spec;

pub use self::spec::{Algorithm, Charging, Limit, Metric, Rule, Store};
