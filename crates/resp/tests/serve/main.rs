//! `--resp`: Redis clients over sockets. Every test starts the program on free ports, asks it, and stops it.

mod bounds;
mod clients;
mod packaging;
mod pages;
mod state;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::Command;

use tollgate_testing::service::{self, Ended, PATIENCE, Program};

/// The service with the endpoint for Redis clients.
struct WithResp;

impl Program for WithResp {
    const PATH: &'static str = env!("CARGO_BIN_EXE_tollgate-resp");
}

type Server = service::Server<WithResp>;
type Place = service::Place<WithResp>;

fn command() -> Command {
    service::command::<WithResp>()
}

fn run(args: &str, variables: &[(&str, &str)]) -> Ended {
    service::run::<WithResp>(args, variables)
}

/// Starts the program with the endpoint for Redis clients.
fn start(place: &Place, args: &str) -> Server {
    place.start(&format!("--resp 0 {args}"))
}

/// A client that writes and reads bytes.
struct Client(TcpStream);

impl Client {
    fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address("resp")).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// Sends bytes. An error is one of the connection.
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes)
    }

    /// Returns everything up to this number of ends of lines, or up to the end of the stream.
    fn lines(&mut self, count: usize) -> String {
        let (mut read, mut buffer) = (Vec::new(), [0; 4_096]);
        while read.iter().filter(|byte| **byte == b'\n').count() < count {
            match self.0.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(length) => read.extend_from_slice(&buffer[..length]),
            }
        }
        String::from_utf8(read).unwrap().replace("\r\n", "|")
    }

    /// Sends a line, and returns the answer of this number of lines.
    fn say(&mut self, line: &str, lines: usize) -> String {
        self.send(format!("{line}\r\n").as_bytes()).unwrap();
        self.lines(lines)
    }

    /// Ends this side, and returns what comes until the other side ends.
    fn end(mut self) -> String {
        self.0.shutdown(Shutdown::Write).unwrap();
        self.lines(usize::MAX)
    }
}
