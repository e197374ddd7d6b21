//! Rules: reading, matching, deciding and reloading.

#[path = "../common/alike.rs"]
mod alike;
#[path = "../common/alike_rules.rs"]
mod alike_rules;
mod config;
mod engine;
#[cfg(feature = "watch")]
mod folders;
mod matching;
#[cfg(feature = "watch")]
#[path = "../common/one_rule.rs"]
mod one_rule;
mod own_store;
mod properties;
#[cfg(feature = "watch")]
mod restore;
#[path = "../common/scenarios.rs"]
mod scenarios;
mod source;
#[cfg(feature = "watch")]
mod watch;
