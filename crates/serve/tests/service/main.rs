//! The service as a library. These tests call its public names and start no process.

#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[path = "../../../../tests/common/alike_rules.rs"]
mod alike_rules;
mod answer;
mod debug;
mod duration;
mod grpc;
mod json;
mod messages;
mod recorder;
mod variables;
mod xds;
