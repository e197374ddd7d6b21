//! The library behind the program. These tests call its public names and start no process.

#[cfg(feature = "serve")]
#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[cfg(feature = "serve")]
mod answer;
mod args;
mod axis;
#[cfg(feature = "serve")]
#[path = "../../../../tests/common/counting.rs"]
mod counting;
#[cfg(feature = "serve")]
mod debug;
mod decimal;
mod descriptor;
#[cfg(feature = "serve")]
mod duration;
#[cfg(feature = "serve")]
mod grpc;
mod human;
mod input;
#[cfg(feature = "serve")]
mod json;
#[cfg(feature = "serve")]
mod messages;
#[cfg(feature = "serve")]
mod recorder;
#[cfg(feature = "serve")]
mod resp;
mod synthetic;
#[cfg(feature = "serve")]
mod variables;
#[cfg(feature = "serve")]
mod xds;
