//! The library behind the program. These tests call its public names and start no process.

#[cfg(feature = "serve")]
mod answer;
mod decimal;
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
