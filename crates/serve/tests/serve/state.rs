//! `--state`: the next process takes the usage over.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use prost::Message as _;
use tollgate_serve::proto::RateLimitRequest;

use crate::client::{
    self, Grpc, LIMIT, Load, asking, block_on, descriptor, get, http, question, wait_for_stat,
};
use crate::drain::load_hangs;
use crate::server::{FREE, Place, Server, eventually};
use tollgate_testing::service::{TEN, admitted};

/// The overall code of an admitted request.
const OK: &[u8] = &[8, 1];

const STATE: &str = "--log info --state $/state";

fn start(place: &Place, more: &str) -> Server {
    place.start(&format!("{STATE} {more}"))
}

/// Starts a process, sends requests of alice, and ends it. Returns how many were admitted.
fn life(place: &Place, args: &str, requests: usize) -> usize {
    let server = start(place, args);
    let admitted = admitted(&server, "alice", requests);
    server.stop();
    admitted
}

/// Returns a count from `/stats`.
fn stat(server: &Server, name: &str) -> u64 {
    block_on(client::stat(&server.address("debug"), name))
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// Three processes in one window.
// G143
#[test]
fn replaced_processes_admit_exactly_the_limit() {
    let place = Place::with(TEN);
    assert_eq!(life(&place, "", 4), 4);
    assert_eq!(mode(&place.path("state")), 0o600);
    let mut second = start(&place, "");
    second.wait_for_line("took over the usage of 1 rule and 0 holds");
    assert_eq!(stat(&second, "tollgate_service_state_restored_rules"), 1);
    assert_eq!((admitted(&second, "alice", 3), admitted(&second, "bob", 12)), (3, 10));
    second.stop();
    let third = start(&place, "");
    assert_eq!((admitted(&third, "alice", 9), admitted(&third, "bob", 9)), (3, 0));
    third.stop();
    let without = place.start("");
    assert_eq!(admitted(&without, "alice", 12), 10);
}

/// Returns the units that are left of the rule that a [`Load`] uses up, and counts nothing.
fn left(server: &Server) -> u64 {
    let ask =
        r#"{"domain":"rl","descriptors":[{"entries":[{"key":"generic_key","value":"v"}],"hitsAddend":"0"}]}"#;
    let page = block_on(http(&server.address("http"), "POST", "/json", ask)).body;
    let (_, rest) = page.split_once("\"limitRemaining\":").expect(&page);
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().expect(&page)
}

/// While clients send, one server drains: each answered request is counted in its state, or by the other server.
// G143
#[test]
fn drain_under_load_saves_every_answered_request() {
    let place = Place::new();
    let mut first = start(&place, "--drain 200ms");
    let other = place.start("");
    let (total, code) = block_on(async {
        let load = Load::start(&[first.address("grpc"), other.address("grpc")], 4);
        load.wait_for_answers(500).await;
        first.signal("TERM");
        let code = tokio::task::spawn_blocking(move || first.wait()).await.unwrap();
        load.wait_for_answers(500).await;
        (load.end().await, code)
    });
    assert_eq!(code, 0);
    let next = start(&place, "");
    let used = [&next, &other].map(|server| 1_000_000 - left(server));
    assert_eq!(used[0] + used[1], total, "{used:?}");
}

// G143
#[test]
fn kill_loses_what_came_since_the_last_write() {
    let place = Place::with(TEN);
    #[expect(clippy::disallowed_methods, reason = "another process needs real time")]
    let began = std::time::Instant::now();
    let mut first = start(&place, "--state-every 1s");
    assert_eq!(admitted(&first, "alice", 6), 6);
    let writes = stat(&first, "tollgate_service_state_writes_total");
    // The second write from now begins after the requests.
    block_on(wait_for_stat(&first.address("debug"), "tollgate_service_state_writes_total", writes + 2));
    assert!(stat(&first, "tollgate_service_state_bytes") > 100);
    assert!(stat(&first, "tollgate_service_state_age_seconds") <= began.elapsed().as_secs());
    first.signal("KILL");
    first.wait();
    let mut second = start(&place, "--state-every 0");
    assert_eq!(admitted(&second, "alice", 2), 2);
    second.signal("KILL");
    second.wait();
    let third = start(&place, "");
    assert_eq!(
        admitted(&third, "alice", 9),
        4,
        "the two requests since the last write are lost, and no others"
    );
}

/// The limit of a reload, and of the next start, takes the usage over.
// G143
#[test]
fn state_follows_reloads_and_changed_limits() {
    let place = Place::with(TEN);
    let first = start(&place, "");
    assert_eq!(admitted(&first, "alice", 6), 6);
    place.write("limits.yaml", TEN.replace("10", "8"));
    block_on(wait_for_stat(&first.address("debug"), "tollgate_reload_total{result=\"success\"}", 2));
    assert_eq!(admitted(&first, "alice", 1), 1);
    first.stop();
    place.write("limits.yaml", TEN.replace("10", "20"));
    assert_eq!(life(&place, "", 20), 13);
    place.write("limits.yaml", TEN.replace("user", "client"));
    let mut third = start(&place, "");
    third.wait_for_line("dropped the usage of 1 rule");
}

#[test]
fn rule_that_starts_without_usage_is_named() {
    let place = Place::with(TEN);
    let month = |day| {
        let limit =
            format!("rate_limit: {{ period: month, starts: {{ day: {day} }}, requests_per_unit: 10 }}");
        place.write(
            "limits.yaml",
            format!("domain: rl\ntollgate: {{}}\ndescriptors: [{{ key: user, {limit} }}]"),
        );
    };
    month(1);
    assert_eq!(life(&place, "", 1), 1);
    month(7);
    let mut second = start(&place, "");
    let line = second.wait_for_line("the rule \"rl|user\" starts without usage");
    assert!(line.contains("calendar"), "{line}");
}

/// A process that has no rules yet does not know what its file is for.
#[test]
fn process_without_rules_keeps_the_state() {
    let place = Place::with(TEN);
    assert_eq!(life(&place, "", 7), 7);
    let kept = fs::read(place.path("state")).unwrap();
    place.write("limits.yaml", "domain: [");
    let second = start(&place, "--start-without-rules --state-every 1s");
    block_on(wait_for_stat(&second.address("debug"), "tollgate_service_state_writes_total", 3));
    second.stop();
    assert_eq!(fs::read(place.path("state")).unwrap(), kept);
    let mut third = start(&place, "--start-without-rules --state-every 1s");
    place.write("limits.yaml", TEN);
    third.wait_for_line("took over the usage of 1 rule");
    assert_eq!(admitted(&third, "alice", 10), 3);
}

#[test]
fn load_that_hangs_does_not_hang_the_state() {
    let place = Place::with(TEN);
    let mut first = start(&place, "--state-every 0");
    assert_eq!(admitted(&first, "alice", 7), 7);
    let pipe = load_hangs(&place, &first);
    first.signal("TERM");
    assert_eq!(first.wait(), 0, "{}", first.log());
    drop(pipe);
    fs::remove_file(place.rules()).unwrap();
    place.write("limits.yaml", TEN);
    assert_eq!(life(&place, "", 10), 3);
}

// G143
#[test]
fn unusable_files_are_named_and_kept_aside() {
    let place = Place::with(TEN);
    assert_eq!(life(&place, "", 10), 10);
    let good = fs::read(place.path("state")).unwrap();
    let (mut damaged, mut future) = (good.clone(), good.clone());
    damaged[90] ^= 1;
    future[8] = 9;
    let cases: [(&[u8], &str); 5] = [
        (&damaged, "its checksum does not match"),
        (&good[..good.len() / 2], "cannot restore the snapshot"),
        (b"domain: rl", "not a tollgate snapshot"),
        (&future, "it has version 9, and this library reads version 2"),
        (b"", "not a tollgate snapshot"),
    ];
    for (bytes, why) in cases {
        place.write("state", bytes);
        let mut server = start(&place, "");
        let line = server.wait_for_line("all limits start without usage");
        assert!(line.contains(why) && line.contains("state.unusable"), "{line}");
        assert_eq!(fs::read(place.path("state.unusable")).unwrap(), bytes);
        assert_eq!(admitted(&server, "alice", 12), 10, "{why}");
        server.stop();
        assert_ne!(fs::read(place.path("state")).unwrap(), bytes, "the end wrote a new file");
    }
}

/// A path below a file stands for a disk that cannot be read: root may read everything else.
// G143
#[test]
fn file_that_cannot_be_read_or_kept_stops_the_start() {
    let place = Place::with(TEN);
    assert_eq!(life(&place, "", 7), 7);
    place
        .run(&format!("{FREE} --state $/limits.yaml/state"))
        .fails(1, &["cannot read the state", "not a directory", "move it away"]);
    place.write("state", "damaged");
    fs::create_dir(place.path("state.unusable")).unwrap();
    place
        .run(&format!("{FREE} {STATE}"))
        .fails(1, &["not a tollgate snapshot", "cannot be renamed to", "state.unusable", "move it away"]);
    assert_eq!(fs::read(place.path("state")).unwrap(), b"damaged");
}

// G143
#[test]
fn file_of_another_process_is_refused() {
    let place = Place::with(TEN);
    let first = start(&place, "");
    place.run(&format!("{FREE} {STATE}")).fails(1, &["another process uses the state", "state.lock"]);
    assert_eq!(admitted(&first, "alice", 3), 3);
    first.stop();
    start(&place, "").stop();
    place.run(&format!("{FREE} --state $")).fails(2, &["--state", "is not a file"]);
    place.run("--check --state $").fails(2, &["is not a file"]);
    place.run(&format!("{FREE} --state-every x")).fails(2, &["--state-every"]);
    place.run(&format!("{FREE} --state-every 999ms")).fails(2, &["--state-every", "1s or more"]);
    // Rules are no state, so they would be renamed, and gone for the next start.
    place
        .run(&format!("{FREE} --state $/limits.yaml"))
        .fails(2, &["--state", "limits.yaml", "file of rules"]);
    assert_eq!(fs::read(place.rules()).unwrap(), TEN.as_bytes());
}

/// A folder that is not there stands for a disk that cannot be written: root may write everywhere else.
// G143
#[test]
fn failed_writes_are_logged_and_stop_no_answer() {
    let place = Place::with(TEN);
    let flags = "--log info --state-every 1s --state $/mounted/state";
    let mut server = place.start(flags);
    server.wait_for_line("cannot lock");
    server.wait_for_line("cannot write the state");
    assert_eq!(admitted(&server, "alice", 12), 10);
    assert!(stat(&server, "tollgate_service_state_write_errors_total") > 0);
    fs::create_dir(place.path("mounted")).unwrap();
    block_on(wait_for_stat(&server.address("debug"), "tollgate_service_state_writes_total", 1));
    server.stop();
    let next = place.start(flags);
    assert_eq!(admitted(&next, "alice", 12), 0);
}

/// A folder in the place of the new file stands for a disk without room.
// G143
#[test]
fn full_disk_keeps_the_last_file() {
    let place = Place::with(TEN);
    assert_eq!(life(&place, "", 7), 7);
    let before = fs::read(place.path("state")).unwrap();
    fs::create_dir(place.path("state.new")).unwrap();
    fs::write(place.path("state.new").join("x"), "").unwrap();
    let mut second = start(&place, "--state-every 1s");
    second.wait_for_line("cannot write the state");
    assert_eq!(admitted(&second, "alice", 1), 1);
    second.stop();
    assert_eq!(fs::read(place.path("state")).unwrap(), before);
}

// G143
#[test]
fn holds_and_blocks_survive() {
    let place = Place::with(TEN);
    place.write(
        "limits.yaml",
        "
domain: rl
tollgate: {}
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 2, algorithm: gcra, block: { for: 1h } }
  - key: model
    rate_limit: { unit: year, every: 70, requests_per_unit: 5, hold: { life: 10m, units: 3 } }
",
    );
    let first = start(&place, "");
    assert_eq!(admitted(&first, "mallory", 5), 2);
    let model = || question(vec![descriptor(&[("model", "large")])]);
    let hits = |hits_addend| RateLimitRequest { hits_addend, ..model() };
    // A query holds three units; the report of one settles it.
    let mut query = model();
    query.descriptors[0].hits_addend = Some(0);
    let ask = |server: &Server, request: &RateLimitRequest| {
        let grpc =
            async { Grpc::connect(&server.address("grpc")).await.ok(LIMIT, &request.encode_to_vec()).await };
        block_on(grpc).starts_with(OK)
    };
    assert!(ask(&first, &query));
    first.stop();
    let mut second = start(&place, "");
    second.wait_for_line("and 1 hold");
    assert_eq!(admitted(&second, "mallory", 3), 0, "the block continues");
    assert!(!ask(&second, &query), "two units are left, and a query holds three");
    assert!(ask(&second, &hits(1)), "the report settles the hold");
    assert!(ask(&second, &hits(4)) && !ask(&second, &hits(1)));
}

/// Ten thousand rules, each with a client.
// G143
#[test]
#[ignore = "takes ten seconds or more; .ci/run runs it"]
fn ten_thousand_rules_survive_within_seconds() {
    let line = |tenant| {
        format!(
            "  - {{ key: user, value: t{tenant}, rate_limit: {{ unit: year, every: 70, requests_per_unit: 2 }} }}\n"
        )
    };
    let place = Place::with(TEN);
    place.write(
        "limits.yaml",
        format!("domain: rl\ntollgate: {{}}\ndescriptors:\n{}", (0..10_000).map(line).collect::<String>()),
    );
    let ask_all = |server: &Server| {
        block_on(async {
            let mut grpc = Grpc::connect(&server.address("grpc")).await;
            for tenant in 0..10_000 {
                let answer = grpc.ok(LIMIT, &asking(&[("user", &format!("t{tenant}"))])).await;
                assert!(answer.starts_with(OK), "{tenant}");
            }
            grpc.ok(LIMIT, &asking(&[("user", "t9999")])).await.starts_with(OK)
        })
    };
    let first = start(&place, "--state-every 1s");
    assert!(ask_all(&first), "the second of two");
    let used = first.resident_bytes();
    first.stop();
    let mut second = start(&place, "");
    second.wait_for_line("took over the usage of 10,000 rules");
    assert_eq!(admitted(&second, "t9999", 3), 0);
    assert_eq!(admitted(&second, "t7", 3), 1);
    // The snapshot that was read may be freed after the start.
    let is_freed = eventually(|| second.resident_bytes() < used + (64 << 20));
    assert!(is_freed, "{used} bytes before, {} bytes after", second.resident_bytes());
}

// G143
#[test]
fn without_the_flag_there_is_no_file_and_no_stat() {
    let place = Place::with(TEN);
    let server = place.start("");
    let page = block_on(get(&server.address("debug"), "/stats"));
    assert!(!page.body.contains("tollgate_service_state"), "{}", page.body);
    server.stop();
    let files = fs::read_dir(place.path("")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["limits.yaml"]);
}
