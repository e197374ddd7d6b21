//! `--state`: the next process takes the usage of limits of Redis clients over.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tollgate_testing::service::{FREE, TEN, admitted, eventually};

use super::{Client, Place, Server};

const STATE: &str = "--log info --state $/state";

fn start(place: &Place, more: &str) -> Server {
    place.start(&format!("{STATE} {more}"))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

// G143
#[test]
fn file_that_cannot_be_read_stops_the_start() {
    let place = Place::with(TEN);
    // The system opens a folder, and the first read fails.
    fs::create_dir(place.path("state.resp")).unwrap();
    place
        .run(&format!("{FREE} --resp 0 {STATE}"))
        .fails(1, &["cannot read the state", "state.resp: ", "move it away"]);
    assert!(place.path("state.resp").is_dir());
}

/// A file that cannot be written costs only its own usage, at the end, too.
// G143
#[test]
fn each_file_is_written_if_the_other_cannot_be() {
    for (blocked, written, named) in
        [("state.new", "state.resp", "state: "), ("state.resp.new", "state", "state.resp: ")]
    {
        let place = Place::with(TEN);
        fs::create_dir(place.path(blocked)).unwrap();
        fs::write(place.path(blocked).join("x"), "").unwrap();
        let mut server = start(&place, "--resp 0 --state-every 1s");
        assert_eq!((admitted(&server, "alice", 4), throttled(&server, "9 10 86400", 4)), (4, 4));
        let line = server.wait_for_line("cannot write the state");
        assert!(line.contains(named), "{line}");
        server.signal("TERM");
        assert_eq!(server.wait(), 0);
        assert!(place.path(written).is_file(), "{written}");
        let next = start(&place, "--resp 0");
        let left = (admitted(&next, "alice", 12), throttled(&next, "9 10 86400", 12));
        assert_eq!(left, if written == "state" { (6, 10) } else { (10, 6) }, "{written}");
    }
}

/// Asks for units of a key as a Redis client, and returns how many were admitted.
fn throttled(server: &Server, quota: &str, times: usize) -> usize {
    let mut client = Client::connect(server);
    (0..times).filter(|_| client.say(&format!("CL.THROTTLE alice {quota}"), 6).starts_with("*5|:0|")).count()
}

/// Two limits that Redis clients send, in three processes.
// G143
#[test]
fn limits_of_redis_clients_survive() {
    let place = Place::with(TEN);
    let first = start(&place, "--resp 0 --state-every 1s");
    assert_eq!((throttled(&first, "9 10 86400", 4), throttled(&first, "4 5 3600", 9)), (4, 5));
    first.stop();
    assert_eq!(mode(&place.path("state.resp")), 0o600);
    let mut second = start(&place, "--resp 0 --state-every 0");
    second.wait_for_line("took over the usage of 2 limits of Redis clients from");
    assert_eq!((throttled(&second, "9 10 86400", 2), throttled(&second, "4 5 3600", 3)), (2, 0));
    second.stop();
    // Without the endpoint, the file stays as it is.
    let good = fs::read(place.path("state.resp")).unwrap();
    let without = start(&place, "");
    assert_eq!(admitted(&without, "alice", 1), 1);
    without.stop();
    assert_eq!(fs::read(place.path("state.resp")).unwrap(), good);
    // A new place is refused until one of those that were taken over is idle.
    let third = start(&place, "--resp 0 --resp-quotas 1");
    assert_eq!((throttled(&third, "9 10 86400", 9), throttled(&third, "4 5 3600", 3)), (4, 0));
    assert!(Client::connect(&third).say("CL.THROTTLE alice 1 1 60", 1).starts_with("-ERR 1 other quotas"));
}

// G143
#[test]
fn unusable_limits_of_redis_clients_are_kept_aside_and_rules_survive() {
    let place = Place::with(TEN);
    let first = start(&place, "--resp 0");
    assert_eq!((admitted(&first, "alice", 9), throttled(&first, "9 10 86400", 10)), (9, 10));
    first.stop();
    let good = fs::read(place.path("state.resp")).unwrap();
    let rules = fs::read(place.path("state")).unwrap();
    // An older process has no such file.
    fs::remove_file(place.path("state.resp")).unwrap();
    let older = start(&place, "--resp 0");
    assert_eq!((admitted(&older, "alice", 0), throttled(&older, "9 10 86400", 11)), (0, 10));
    older.stop();
    let changed = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        (changed(0), "", "no file of limits of Redis clients"),
        (changed(14), "", "of a later version"),
        (changed(16), "", "damaged or cut off"),
        (changed(60), "", "damaged or cut off"),
        (changed(good.len() - 60), "", "damaged or cut off"),
        (good[..good.len() - 40].to_vec(), "", "damaged or cut off"),
        ([&good[..], &[0]].concat(), "", "bytes follow its end"),
        ([&good[..], &good[..]].concat(), "", "bytes follow its end"),
        (rules.clone(), "", "no file of limits of Redis clients"),
        (Vec::new(), "", "damaged or cut off"),
        (good.clone(), "--resp-quota-memory 2MiB", "it needs the earlier --resp-quota-memory"),
    ];
    for (bytes, flag, why) in cases {
        place.write("state.resp", &bytes);
        place.write("state", &rules);
        let mut server = start(&place, &format!("--resp 0 {flag}"));
        let line = server.wait_for_line("all limits of Redis clients start without usage");
        assert!(line.contains(why) && line.contains("state.resp.unusable"), "{line}");
        assert_eq!(fs::read(place.path("state.resp.unusable")).unwrap(), bytes);
        assert_eq!((admitted(&server, "alice", 3), throttled(&server, "9 10 86400", 11)), (1, 10), "{why}");
    }
}

/// A large file takes a second to read. A gateway that connected meanwhile waited, instead of asking another replica.
// G143
#[test]
fn no_port_opens_before_the_state_is_read() {
    let place = Place::with(TEN);
    let pipe = place.path("state.resp");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let socket = place.path("socket");
    let writer = std::thread::spawn(move || {
        // Waits until the server opens the pipe.
        let pipe = fs::OpenOptions::new().write(true).open(pipe).unwrap();
        let is_open = socket.exists();
        drop(pipe);
        is_open
    });
    let _server = start(&place, "--resp 0 --grpc-socket $/socket");
    assert!(!writer.join().unwrap(), "the port was open while the state was read");
}

/// Cause: only a drain wrote the state. Symptom: each start without a control plane gave Redis clients their burst again.
// G139
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn start_that_ends_without_rules_keeps_the_limits_of_clients() {
    let place = Place::new();
    let args = place.fill(&format!("{FREE} --xds 127.0.0.1:1 --resp 0 {STATE}"));
    let mut command = super::command();
    command.args(args.split_ascii_whitespace());
    let mut server = Server::spawn_until("waits for the first rules", command, &[]);
    assert_eq!(throttled(&server, "0 1 86400", 1), 1);
    assert_eq!(server.wait(), 1);
    assert!(eventually(|| server.log().contains("no rules within 20 s")), "{}", server.log());
    let next = Server::start_with(&[], &format!("{args} --start-without-rules"), &[]);
    assert_eq!(throttled(&next, "0 1 86400", 1), 0);
}
