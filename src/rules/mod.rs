//! Rules in the language of Envoy's rate limit service, which reload while requests are decided.

mod config;
mod spec;
mod tree;

pub use self::config::{Config, ConfigError, Domain, Problem};
pub use self::spec::{Algorithm, Charging, Limit, Metric, Rule, Store};
