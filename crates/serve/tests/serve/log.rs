//! The log: what it says about denials, and a reader that stops.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use tokio::net::UnixStream;

use crate::client::{ASK, Grpc, LIMIT, block_on, bytes};
use crate::server::{Place, command, eventually};

/// A request of the domain `rl` with one descriptor, (once, secret).
const SECRET: &str = "0a02726c12100a0e0a046f6e63651206736563726574";

// G116
#[test]
#[expect(clippy::disallowed_methods, reason = "another process needs real time")]
fn log_sums_up_denials_without_values() {
    let (place, began) = (Place::new(), Instant::now());
    place.serve("--log debug", async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        for _ in 0..1_001 {
            grpc.ok(LIMIT, &bytes(SECRET)).await;
        }
        let mut lines = 0;
        let found = eventually(|| {
            let log = server.log();
            let said = log.split("the rule rl.once denied ").skip(1);
            let counts =
                said.map(|rest| rest.split(' ').next().unwrap().replace(',', "").parse::<u64>().unwrap());
            let counts: Vec<u64> = counts.collect();
            lines = counts.len();
            counts.iter().sum::<u64>() == 1_000
        });
        // A line in each second.
        assert!(found && lines as u64 <= began.elapsed().as_secs() + 1, "{}", server.log());
        assert!(!server.log().contains("secret"), "{}", server.log());
    });
}

// G116
#[test]
fn unread_log_delays_nothing() {
    let place = Place::new();
    let socket = place.path("socket");
    let (_unread, mut full) = std::io::pipe().unwrap();
    // The size of a pipe.
    full.write_all(&[b'x'; 1 << 16]).unwrap();
    let mut child = command()
        .arg(place.rules())
        .args(["--http", "off", "--debug", "off", "--drain", "0s", "--log", "debug", "--grpc-socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .stderr(full)
        .spawn()
        .unwrap();
    assert!(eventually(|| socket.exists()));
    block_on(async {
        let mut grpc = Grpc::over(UnixStream::connect(&socket).await.unwrap()).await;
        grpc.ok(LIMIT, &bytes(ASK)).await;
    });
    // Each line of the end goes to the log too.
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let mut code = None;
    let ended = eventually(|| {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended && code.is_some_and(|code| code.success()), "{code:?}");
}
