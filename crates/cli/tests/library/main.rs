//! The library behind the program. These tests call its public names and start no process.

#[cfg(feature = "serve")]
mod answer;
#[cfg(feature = "serve")]
mod grpc;
#[cfg(feature = "serve")]
mod json;
#[cfg(feature = "serve")]
mod messages;
