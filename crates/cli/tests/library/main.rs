//! The library behind the program. These tests call its public names and start no process.

mod args;
mod axis;
mod input;
mod synthetic;
