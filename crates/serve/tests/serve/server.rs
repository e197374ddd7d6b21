//! The program of this package as a running service.

use std::process::Command;

use tollgate_testing::service::{self, Program};
pub(crate) use tollgate_testing::service::{Ended, FREE, PATIENCE, RULES, SHARED, eventually, limit};

/// The service without endpoints of other packages.
pub(crate) struct Plain;

impl Program for Plain {
    const PATH: &'static str = env!("CARGO_BIN_EXE_tollgate-serve");
}

pub(crate) type Server = service::Server<Plain>;
pub(crate) type Place = service::Place<Plain>;

pub(crate) fn command() -> Command {
    service::command::<Plain>()
}

pub(crate) fn run(args: &str, variables: &[(&str, &str)]) -> Ended {
    service::run::<Plain>(args, variables)
}
