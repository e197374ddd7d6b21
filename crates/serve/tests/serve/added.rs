//! An endpoint that a program adds: `examples/lines.rs`, which is built with these tests.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use tollgate_testing::service::client::{block_on, stat};
use tollgate_testing::service::{FREE, PATIENCE};
use tollgate_testing::skipped::skip;

use crate::server::{Ended, Place, Server};

/// Returns the command `serve` of the example. `cargo test --test serve` builds no examples, so there may be none.
fn lines() -> Option<Command> {
    let program = Path::new(env!("CARGO_BIN_EXE_tollgate-serve")).with_file_name("examples").join("lines");
    if !program.exists() {
        skip("the example lines is not built; build it (cargo build -p tollgate-serve --example lines)");
        return None;
    }
    let mut command = Command::new(program);
    command.arg("serve").env_clear();
    Some(command)
}

#[test]
fn example_answers_by_the_rules_and_ends_with_the_server() {
    let Some(mut command) = lines() else { return };
    let limit = "{ unit: year, every: 70, requests_per_unit: 1 }";
    let place = Place::with(format!(
        "domain: lines\ntollgate: {{}}\ndescriptors: [{{ key: path, rate_limit: {limit} }}]\n"
    ));
    command.arg(place.rules()).args(FREE.split(' ')).args(["--lines", "0"]);
    let mut server = Server::spawn(command, &[]);
    let stream = TcpStream::connect(server.address("lines")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = BufReader::new(stream);
    for (line, told) in [("path /login", "yes"), ("path /login", "no "), ("path /", "yes"), ("free x", "yes")]
    {
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(told), "{line}: {answer}");
    }
    for count in ["lines_total", "tollgate_service_requests_total{method=\"lines\"}"] {
        assert_eq!(block_on(stat(&server.address("debug"), count)), 4, "{count}");
    }
    server.signal("TERM");
    assert_eq!(server.wait(), 0, "{}", server.log());
}

#[test]
fn flags_of_the_example_are_flags_of_the_service() {
    let Some(mut command) = lines() else { return };
    let help = Ended::of(command.arg("-h").output().unwrap());
    let (before, after) = help.stdout.split_once("  --lines ADDRESS    Lines of text").expect(&help.stdout);
    assert!(before.contains("  --metrics ADDRESS") && after.contains("  --admin ADDRESS"), "{before}{after}");
    let Some(mut command) = lines() else { return };
    let off = Ended::of(command.args(["--grpc", "off", "--http", "off"]).output().unwrap());
    off.fails(2, &["--grpc, --http and --lines are off, so no client could ask"]);
}
