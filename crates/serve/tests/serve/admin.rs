//! The endpoint for operators, and `tollgate ctl`, which speaks it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tollgate_testing::redis::Server as Redis;

use crate::client::{Grpc, LIMIT, ONCE, Page, block_on, bytes, comes_true, send, stat, wait_for_stat};
use crate::server::{Ended, FREE, PATIENCE, Place, Server, eventually};
use crate::tls::{Authority, certified, dns};

const RULES: &str = "
domain: rl
tollgate: {}
descriptors:
  - key: once
    rate_limit: { unit: year, every: 70, requests_per_unit: 1 }
  - key: login
    rate_limit: { name: logins, unit: day, requests_per_unit: 5, algorithm: gcra, block: { for: 10m, at_most: 24h } }
  - key: log
    rate_limit: { unit: day, requests_per_unit: 5, algorithm: sliding-log }
";

const TOKENS: &str = "# operators\nalice:0123456789abcdef0123\nbob:bobbobbobbobbobbob12\n";
const ALICE: &str = "0123456789abcdef0123";

fn unix(place: &Place, args: &str) -> Server {
    place.start(&format!("--admin unix:$/admin {args}"))
}

/// Runs `tollgate ctl`. In the last arguments, `$` stands for the place.
fn program(place: &Place, args: &[&str], more: &str) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-serve"));
    command.arg("ctl").args(args).args(place.fill(more).split_ascii_whitespace()).env_clear();
    Ended::of(command.output().unwrap())
}

/// Runs `tollgate ctl` at the socket of a place.
fn ctl(place: &Place, args: &[&str]) -> Ended {
    program(place, args, "--at unix:$/admin")
}

/// The same, with JSON.
fn ctl_json(place: &Place, args: &[&str]) -> Value {
    let done = ctl(place, &[args, &["--json"]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    serde_json::from_str(&done.stdout).unwrap()
}

/// Asks for (once, x). Returns the overall code: 1 is admitted, and 2 is over the limit.
async fn once(server: &Server) -> u8 {
    Grpc::connect(&server.address("grpc")).await.ok(LIMIT, &bytes(ONCE)).await[1]
}

fn once_each(first: &Server, second: &Server) -> (u8, u8) {
    block_on(async { (once(first).await, once(second).await) })
}

const JSON: (&str, &str) = ("content-type", "application/json");

fn reset() -> String {
    json!({ "domain": "rl", "descriptors": [[["once", "x"]]], "why": "a test" }).to_string()
}

// G146
#[test]
fn operator_helps_one_key_over_a_socket() {
    let place = Place::with(RULES);
    let mut server = unix(&place, "");
    assert_eq!(place.path("admin").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(once_each(&server, &server), (1, 2));
    let seen = ctl_json(&place, &["inspect", "rl", "once=x"]);
    let rule = &seen["rules"][0];
    assert_eq!((&rule["rule"], &rule["key"]), (&json!("rl|once"), &json!("x")), "{seen}");
    assert_eq!((&rule["state"]["limit"], &rule["state"]["used"]), (&json!(1), &json!(1)), "{seen}");
    assert!(rule["file"].as_str().unwrap().ends_with("limits.yaml") && rule["line"] == 6, "{seen}");

    let done = ctl(&place, &["reset", "rl", "once=x", "--why", "ticket 4711"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stdout.contains("1 unit back"), "{done:?}");
    let line = server.wait_for_line("operator uid");
    for part in ["reset rl once=x", "rl.once (rl|once) done", "why: ticket 4711"] {
        assert!(line.contains(part), "{line}");
    }
    assert_eq!(once_each(&server, &server), (1, 2), "exactly the limit");
    assert!(ctl(&place, &["grant", "1", "rl", "once=x", "--why", "more"]).stdout.contains("1 unit back"));
    assert_eq!(once_each(&server, &server), (1, 2));
    server.stop();
    assert!(!place.path("admin").exists());
}

// G146
#[test]
fn operator_blocks_and_unblocks() {
    let place = Place::with(RULES);
    let _server = unix(&place, "");
    let key = ["rl", "login=mallory", "--why", "attack"];
    let blocked = ctl_json(&place, &[&["block", "2h"], &key[..]].concat());
    let rest = blocked["rules"][0]["state"]["blocked_for_ns"].as_u64().unwrap();
    assert!((7_190_000_000_000..=7_200_000_000_000).contains(&rest), "{blocked}");
    let text = ctl(&place, &["inspect", "rl", "login=mallory"]).stdout;
    assert!(text.contains("1 h 59 min") || text.contains("2 h"), "{text}");
    assert!(ctl(&place, &["inspect", "rl", "login=alice"]).stdout.contains('5'), "another key");
    let unblocked = ctl_json(&place, &[&["unblock"], &key[..]].concat());
    assert_eq!(unblocked["rules"][0]["state"]["remaining"], 5, "{unblocked}");

    let long = ctl(&place, &[&["block", "25h"], &key[..]].concat());
    long.fails(1, &["1 of 1 rules refused"]);
    assert!(long.stdout.contains("at most 86400s"), "{long:?}");
    let none = ctl(&place, &["block", "1h", "rl", "once=x", "--why", "attack"]);
    none.fails(1, &["refused"]);
    assert!(none.stdout.contains("has no block"), "{none:?}");
}

#[test]
fn refusals_and_mistakes_are_clear() {
    let place = Place::with(RULES);
    let server = unix(&place, "");
    ctl(&place, &["reset", "nope", "a=b", "--why", "x"])
        .fails(1, &["404", "no rules have the domain \"nope\""]);
    ctl(&place, &["reset", "rl", "zzz=b", "--why", "x"]).fails(1, &["no rule applies"]);
    ctl(&place, &["reset", "rl", "once=x", "--why", " "]).fails(1, &["400", "why is missing"]);
    ctl(&place, &["reset", "rl", "once=x"]).fails(2, &["--why"]);
    ctl(&place, &["grant", "-1", "rl", "once=x", "--why", "x"]).fails(2, &["-1"]);
    ctl(&place, &["block", "soon", "rl", "login=x", "--why", "x"]).fails(2, &["soon"]);
    ctl(&place, &["inspect", "rl"]).fails(2, &["KEY=VALUE"]);
    let log = ctl(&place, &["grant", "1", "rl", "log=x", "--why", "x"]);
    log.fails(1, &["refused"]);
    assert!(log.stdout.contains("cannot give units back"), "{log:?}");
    let all = ctl_json(&place, &["grant", &u64::MAX.to_string(), "rl", "once=x", "--why", "x"]);
    assert_eq!(all["rules"][0]["units"], 0, "{all}");
    let only = ctl_json(&place, &["inspect", "rl", "once=x", "--descriptor", "login=x", "--rule", "logins"]);
    assert_eq!(only["rules"].as_array().unwrap().len(), 1, "{only}");
    assert_eq!(only["rules"][0]["descriptor"], 1, "{only}");
    server.stop();
    ctl(&place, &["inspect", "rl", "once=x"]).fails(1, &["was not reached", "--admin"]);
    for at in ["admin", "ftp://x:1", "https://x", "unix:"] {
        program(&place, &["inspect", "rl", "once=x", "--at", at], "").fails(2, &["expected unix:PATH"]);
    }
}

// G146
#[test]
fn bad_requests_change_nothing() {
    let place = Place::with(RULES);
    unix(&place, "").during(async |server| {
        assert_eq!(once(server).await, 1);
        let connect = async || UnixStream::connect(place.path("admin")).await.unwrap();
        let post = async |path: &str, fields: &[(&str, &str)], body: String| {
            send(connect().await, "POST", path, fields, &body).await
        };
        let no_why = json!({ "domain": "rl", "descriptors": [[["once", "x"]]] }).to_string();
        for (path, fields, body, code, part) in [
            ("/v1/reset", &[JSON][..], no_why, 400, "why is missing"),
            ("/v1/reset", &[JSON], "{".to_owned(), 400, "no request"),
            ("/v1/reset", &[JSON], String::new(), 400, "no request"),
            ("/v1/reset", &[JSON], reset().replace("why", "because"), 400, "unknown field"),
            ("/v1/grant", &[JSON], reset(), 400, "needs units"),
            ("/v1/block", &[JSON], reset(), 400, "needs for"),
            ("/v1/reset", &[JSON], reset().replace("a test", &"x".repeat(1_001)), 400, "1000 bytes"),
            ("/v1/reset", &[JSON], reset().replace("[\"once\",\"x\"]", ""), 400, "no entry"),
            ("/v1/reset", &[], reset(), 415, "content-type"),
            ("/v1/reset", &[("content-type", "text/plain")], reset(), 415, "content-type"),
            ("/v1/reset", &[JSON], " ".repeat(65_537), 413, "64 KiB"),
            ("/v1/drop", &[JSON], reset(), 404, "/v1/"),
            ("/", &[JSON], reset(), 404, "/v1/"),
        ] {
            let Page { status, body, .. } = post(path, fields, body).await;
            assert_eq!(status, code, "{path}: {body}");
            assert!(body.contains(part), "{path}: {body}");
        }
        assert_eq!(send(connect().await, "GET", "/v1/reset", &[JSON], "").await.status, 405);
        assert_eq!(once(server).await, 2, "nothing was reset");
        // The pages are not the endpoint for operators.
        let debug = TcpStream::connect(server.address("debug")).await.unwrap();
        assert_eq!(send(debug, "POST", "/v1/reset", &[JSON], &reset()).await.status, 405);
        let done = post("/v1/reset", &[JSON], reset()).await;
        assert_eq!(done.status, 200, "{}", done.body);
        assert_eq!(once(server).await, 1);
    });
}

/// No key is acted on that the log does not name.
#[test]
fn log_names_every_key_of_an_act() {
    let place = Place::with(RULES);
    unix(&place, "").during(async |server| {
        // Twenty thousand of these have four letters each in the log.
        let long = format!("{}\n\0", "\u{7f}".repeat(20_000));
        let body =
            json!({ "domain": "rl", "descriptors": [[["once", long]], [["once", "x"]]], "why": "a test" });
        assert_eq!((once(server).await, once(server).await), (1, 2));
        let stream = UnixStream::connect(place.path("admin")).await.unwrap();
        assert_eq!(send(stream, "POST", "/v1/reset", &[JSON], &body.to_string()).await.status, 200);
        assert_eq!(once(server).await, 1);
        let line = server.wait_for_line("operator uid");
        let long = format!("{}\\x0a\\x00", "\\x7f".repeat(20_000));
        assert!(line.contains(&format!("reset rl once={long} once=x: rl.once (rl|once) done")), "{line}");
    });
}

// G146
#[test]
fn tokens_name_operators_and_change_while_it_runs() {
    let place = Place::with(RULES);
    place.write("tokens", TOKENS);
    place.serve("--admin 127.0.0.1:0 --admin-token-file $/tokens", async |server| {
        let address = server.address("admin");
        let ask = async |token: &str| {
            let stream = TcpStream::connect(&address).await.unwrap();
            let bearer = format!("Bearer {token}");
            send(stream, "POST", "/v1/reset", &[JSON, ("authorization", &bearer)], &reset()).await.status
        };
        let stream = TcpStream::connect(&address).await.unwrap();
        assert_eq!(send(stream, "POST", "/v1/reset", &[JSON], &reset()).await.status, 401);
        for wrong in ["", "x", "0123456789abcdef0124", "0123456789abcdef01234", "alice:0123456789abcdef0123"]
        {
            assert_eq!(ask(wrong).await, 401, "{wrong}");
        }
        assert_eq!(ask(ALICE).await, 200);
        assert!(server.wait_for_line("operator alice, 127.0.0.1:").contains("reset rl once=x"));
        wait_for_stat(&server.address("debug"), "tollgate_service_operator_refused_total", 6).await;
        place.write("tokens", "alice:another-token-of-alice\n");
        assert_eq!(ask(ALICE).await, 401, "the token was taken away");
        assert_eq!(ask("bobbobbobbobbobbob12").await, 401);
        assert_eq!(ask("another-token-of-alice").await, 200);
        place.write("tokens", "alice:another-token-of-alice");
        assert_eq!(ask("another-token-of-alice").await, 401, "the rest of the token may be missing");
        place.write("tokens", "alice:short\n");
        assert_eq!(ask("another-token-of-alice").await, 401, "a bad file admits no client");
        assert_eq!(ask("short").await, 401);
        std::fs::remove_file(place.path("tokens")).unwrap();
        assert_eq!(ask("another-token-of-alice").await, 401);
        wait_for_stat(&server.address("debug"), "tollgate_service_operator_acts_total{act=\"reset\"}", 2)
            .await;
        assert!(!server.log().contains(ALICE), "no token is in the log");
        place.write("tokens", TOKENS);
        place.write("mine", format!("{ALICE}\n"));
        let at = format!("http://{address}");
        let args = ["reset", "rl", "once=x", "--why", "x", "--at", &at];
        program(&place, &args, "").fails(1, &["401", "not admitted"]);
        let done = program(&place, &args, "--token-file $/mine");
        assert_eq!(done.code, 0, "{done:?}");
    });
}

// G146
#[test]
fn endpoint_without_authentication_does_not_start() {
    let place = Place::with(RULES);
    place.write("tokens", TOKENS);
    place.write("short", "alice:0123456789abcde\n");
    place.write("none", "# no tokens\n");
    place.write("plain", "0123456789abcdef0123\n");
    // The beginning of a token is a token of 16 bytes.
    place.write("cut", "# operators\nalice:0123456789abcdef");
    // Cut after 1 MiB, the last token would have 16 bytes.
    place.write("long", format!("#{}\nalice:{}", "x".repeat((1 << 20) - 24), "t".repeat(40)));
    let cut =
        "cut:2: the line has no end, so the file may be written in part; write the rest, and a line feed";
    for (args, code, part) in [
        ("--admin 127.0.0.1:0", 2, "everyone who reaches this address"),
        ("--admin 127.0.0.1:0 --check", 2, "everyone who reaches this address"),
        ("--admin 0.0.0.0:0 --admin-token-file $/tokens", 2, "without TLS"),
        ("--admin 127.0.0.1:0 --admin-token-file $/short", 1, "short:1: the token is shorter than 16"),
        ("--admin 127.0.0.1:0 --admin-token-file $/none", 1, "has no tokens"),
        ("--admin 127.0.0.1:0 --admin-token-file $/plain", 1, "plain:1: expected NAME:TOKEN"),
        ("--admin 127.0.0.1:0 --admin-token-file $/cut", 1, cut),
        ("--admin 127.0.0.1:0 --admin-token-file $/long", 1, "long has more than 1 MiB"),
        ("--admin 127.0.0.1:0 --admin-token-file /nope", 1, "cannot read the tokens in /nope"),
        ("--admin-token-file $/tokens", 2, "--admin"),
        ("--admin nowhere", 2, "expected unix:PATH"),
        ("--admin unix:", 2, "needs a path"),
        ("--admin unix:/no/such/folder/admin", 1, "make its folder first"),
        ("--admin unix:$/limits.yaml", 1, "choose another --admin"),
    ] {
        place.run(&format!("{FREE} {args}")).fails(code, &[part]);
    }
    place.start("--admin off").stop();
}

/// The service may be another program.
#[test]
fn answer_does_not_control_the_terminal() {
    let place = Place::with(RULES);
    let listener = std::os::unix::net::UnixListener::bind(place.path("admin")).unwrap();
    std::thread::spawn(move || {
        for body in
            ["{\"error\":\"\\u001b[2J\u{9b}1m\"}", "\u{1b}]0;x\u{7}", "{\"rules\":[{\"line\":\"\u{9b}\"}]}"]
        {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = std::io::Read::read(&mut stream, &mut [0; 4_096]);
            let status = if body.contains("rules") { "200 OK" } else { "400 Bad" };
            let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
            std::io::Write::write_all(&mut stream, (head + body).as_bytes()).unwrap();
        }
    });
    let inspect = ["inspect", "rl", "once=x"];
    ctl(&place, &inspect).fails(1, &["400: \\x1b[2J\\xc2\\x9b1m"]);
    ctl(&place, &inspect).fails(1, &["400: \\x1b]0;x\\x07"]);
    let done = ctl(&place, &[&inspect[..], &["--json"]].concat());
    assert!(done.stdout.contains("\"\\u009b\""), "{done:?}");
}

/// Clients that are not admitted keep no place for long, and those of the socket are not theirs.
#[test]
#[ignore = "takes 16 s"]
fn clients_without_a_token_do_not_keep_operators_out() {
    let place = Place::with(RULES);
    place.write("tokens", TOKENS);
    place.write("mine", format!("{ALICE}\n"));
    place.serve("--admin unix:$/admin,127.0.0.1:0 --admin-token-file $/tokens", async |server| {
        // The line of the start names the socket first.
        let started = server.log();
        let (_, address) = started.split_once("admin on 127").expect(&started);
        let address = format!("127{}", address.split([',', ';', ' ', '\n']).next().unwrap());
        let at = format!("http://{address}");
        let ask =
            |at: &str| program(&place, &["inspect", "rl", "once=x", "--at", at], "--token-file $/mine").code;
        assert_eq!(ask(&at), 0);
        let (debug, open) = (server.address("debug"), "tollgate_service_connections");
        // A place that the operator still has would be missing for one of the clients.
        assert!(comes_true(async || stat(&debug, open).await == 0).await, "the operator keeps a place");
        let mut held = Vec::new();
        for number in 0..64 {
            let mut stream = TcpStream::connect(&address).await.unwrap();
            let refused = b"POST /v1/inspect HTTP/1.1\r\nhost: x\r\n\r\n";
            // HTTP/2 with SETTINGS, part of a head, a body that does not come, and nothing.
            let begun: &[u8] = match number % 4 {
                0 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
                1 => b"POST /v1/inspect HTTP/1.1\r\nhost:",
                2 => refused,
                _ => b"",
            };
            stream.write_all(begun).await.unwrap();
            held.push(stream);
        }
        wait_for_stat(&debug, open, 64).await;
        assert_eq!(ask(&at), 1, "all places are taken");
        assert_eq!(ask(&format!("unix:{}", place.name("admin"))), 0, "the socket has places of its own");
        let ends = async {
            for mut stream in held {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        };
        tokio::time::timeout(PATIENCE, ends).await.expect("clients keep their places");
        assert_eq!(ask(&at), 0);
        server.wait_for_line("always 64 for --admin, --debug and --metrics");
    });
}

/// A server with TLS.
fn with_tls(place: &Place, args: &str) -> (Server, String) {
    let files = "--admin-cert $/tls.crt --admin-key $/tls.key";
    let server = place.start(&format!("--admin 127.0.0.1:0 {files} {args}"));
    let port = server.address("admin").rsplit_once(':').unwrap().1.to_owned();
    (server, format!("https://localhost:{port}"))
}

// G146
#[test]
fn certificate_names_the_operator() {
    let ((place, authority), other) = (certified(), Authority::new());
    let (mut server, at) = with_tls(&place, "--admin-client-ca $/ca.crt");
    for (name, pair) in [
        ("ops", authority.issue(&[dns("ops.example.com")])),
        ("other", other.issue(&[dns("ops.example.com")])),
        ("nameless", authority.issue(&[])),
    ] {
        place.write(&format!("{name}.crt"), pair.cert);
        place.write(&format!("{name}.key"), pair.key);
    }
    place.write("trusted.crt", authority.pem());
    let reset = |more: &str| program(&place, &["reset", "rl", "once=x", "--why", "x", "--at", &at], more);
    let ask = |name: &str| reset(&format!("--ca $/trusted.crt --cert $/{name}.crt --key $/{name}.key"));
    let done = ask("ops");
    assert_eq!(done.code, 0, "{done:?}");
    assert!(server.wait_for_line("operator ops.example.com at 127.0.0.1:").contains("why: x"));
    reset("--ca $/trusted.crt").fails(1, &["was not reached"]);
    ask("other").fails(1, &["was not reached"]);
    ask("nameless").fails(1, &["401"]);
    reset("").fails(2, &["--ca"]);
    // Certificates of another authority are in force soon after the files have changed.
    place.write("ca.crt", other.pem());
    assert!(eventually(|| ask("other").code == 0), "{}", server.log());
    assert_eq!(ask("ops").code, 1);
}

#[test]
fn token_over_tls_needs_no_certificate() {
    let (place, _) = certified();
    place.write("tokens", TOKENS);
    let (mut server, at) = with_tls(&place, "--admin-token-file $/tokens");
    place.write("mine", "alice:0123456789abcdef0123\n");
    let args = ["reset", "rl", "once=x", "--why", "x", "--at", &at];
    let done = program(&place, &args, "--ca $/ca.crt --token-file $/mine");
    assert_eq!(done.code, 0, "{done:?}");
    server.wait_for_line("operator alice, 127.0.0.1:");
}

/// The permissions of the socket keep others out, and so does the service if somebody widens them.
// G146
#[test]
fn another_user_is_not_admitted() {
    if rustix_uid() != 0 {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let place = Place::with(RULES);
    let server = unix(&place, "");
    for path in [place.path("").as_path(), place.path("admin").as_path()] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let at = format!("unix:{}", place.name("admin"));
    // The other user may not reach this program, so a copy lies beside the socket. Another process writes it: a file that this
    // process has open, and with it the children of other tests, cannot be run.
    let copy = place.path("ctl");
    assert!(
        Command::new("cp").arg(env!("CARGO_BIN_EXE_tollgate-serve")).arg(&copy).status().unwrap().success()
    );
    let other = Command::new(&copy)
        .args(["ctl", "reset", "rl", "once=x", "--why", "x", "--at", &at])
        .env_clear()
        .current_dir("/")
        .uid(65_534)
        .output();
    Ended::of(other.unwrap()).fails(1, &["401", "not admitted"]);
    assert_eq!(ctl(&place, &["reset", "rl", "once=x", "--why", "x"]).code, 0);
    assert!(server.log().contains("only the user of the service and root"), "{}", server.log());
}

fn rustix_uid() -> u32 {
    // SAFETY: it has no preconditions.
    unsafe { libc::geteuid() }
}

// G146
#[test]
fn acts_on_shared_rules_count_in_all_processes() {
    let Some(mut redis) = Redis::start() else { return };
    let place = Place::with(RULES);
    let more = "tollgate: { store: redis, mode: atomic, timeout: 20s, charging: all-or-nothing }";
    let rules = RULES.replace("tollgate: {}", more);
    let (rules, _) = rules.split_once("  - key: log\n").unwrap();
    place.write("limits.yaml", rules);
    let args = format!("--redis {} --deadline 20s", redis.url());
    let other = place.start(&args);
    let one = unix(&place, &args);
    assert_eq!(once_each(&other, &one), (1, 2));
    let seen = ctl_json(&place, &["inspect", "rl", "once=x"]);
    assert_eq!((&seen["rules"][0]["shared"], &seen["rules"][0]["state"]["used"]), (&json!(true), &json!(1)));
    assert_eq!(ctl(&place, &["grant", "5", "rl", "once=x", "--why", "x"]).code, 0);
    assert_eq!(once_each(&other, &one), (1, 2));
    assert_eq!(ctl(&place, &["block", "1h", "rl", "login=x", "--why", "x"]).code, 0);
    let seen = ctl_json(&place, &["inspect", "rl", "login=x"]);
    assert!(seen["rules"][0]["state"]["blocked_for_ns"].as_u64() > Some(3_500_000_000_000), "{seen}");
    assert_eq!(ctl(&place, &["unblock", "rl", "login=x", "--why", "x"]).code, 0);
    redis.kill();
    let away = ctl(&place, &["reset", "rl", "once=x", "--why", "x"]);
    away.fails(1, &["refused"]);
    assert!(away.stdout.contains("did not answer"), "{away:?}");
    one.signal("TERM");
    other.signal("TERM");
}

// G146
#[test]
fn act_under_way_is_answered_by_a_drain() {
    let place = Place::with(RULES);
    let mut server = unix(&place, "--log info");
    block_on(async {
        let mut stream = UnixStream::connect(place.path("admin")).await.unwrap();
        let body = reset();
        let head = format!(
            "POST /v1/reset HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server reads the body.
        let mut answer = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
        server.signal("TERM");
        server.wait_for_line("closing");
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    });
    server.wait_for_line("why: a test");
    assert_eq!(server.wait(), 0, "{}", server.log());
}
