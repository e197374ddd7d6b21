//! Redis clients: bytes to bytes, without a socket. These tests start no process.

#[path = "../../../../tests/common/alike.rs"]
mod alike;
#[path = "../../../../tests/common/alike_rules.rs"]
mod alike_rules;
#[path = "../../../../tests/common/counting.rs"]
mod counting;
mod forms;
mod quotas;
mod transactions;
mod users;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tollgate::{Capacity, ManualClock, Timestamp};
use tollgate_resp::internals::{ClientQuota, Limits, Quotas, RespShared, Session, Step, TURN, User, Users};
use tollgate_rules::{Config, Rules};
use tollgate_serve::answer::{Answerer, Settings};

use crate::alike::{ALL, Entries, Seen, Surface, cases};
use crate::alike_rules::Process;

const RULES: &str = "
domain: shop
tollgate: {}
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 3, algorithm: gcra } }
  - { key: page, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: tokens, rate_limit: { name: tokens, unit: hour, requests_per_unit: 100, hold: { life: 60s } } }
";

/// Runs a call to its end.
fn run<T>(call: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(call)
}

/// What the connections of a test share, and its clock.
struct TestEndpoint {
    shared: Arc<RespShared<ManualClock>>,
    clock: ManualClock,
}

/// A connection.
struct Client {
    session: Session<ManualClock>,
    input: Vec<u8>,
}

impl TestEndpoint {
    fn new(rules: impl Into<Arc<Rules<ManualClock>>>, clock: ManualClock, settings: Settings) -> Self {
        Self::with(rules.into(), clock, settings, 8, None)
    }

    fn with(
        rules: Arc<Rules<ManualClock>>,
        clock: ManualClock,
        settings: Settings,
        most: usize,
        users: Option<Users>,
    ) -> Self {
        let shared = RespShared::new(
            Arc::new(Answerer::new(rules, settings)),
            Quotas::new(clock.clone(), most, Capacity::memory(64 << 10)).into(),
            users,
            Limits { args: 100, bytes: 2 << 20 },
            Duration::from_secs(60),
            Arc::default(),
        );
        Self { shared: Arc::new(shared), clock }
    }

    fn connect(&self) -> Client {
        let session = Session::new(Arc::clone(&self.shared), "127.0.0.1:1".to_owned());
        Client { session, input: Vec::new() }
    }

    /// Sends a line on a new connection, and returns the answer.
    fn say(&self, line: &str) -> String {
        self.connect().say(line)
    }
}

impl Client {
    /// Sends bytes. Returns the answers, and whether the connection goes on.
    fn send(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        run(self.ask(bytes))
    }

    async fn ask(&mut self, bytes: &[u8]) -> (Vec<u8>, bool) {
        self.input.extend_from_slice(bytes);
        let mut replies = Vec::new();
        loop {
            let step = self.session.answer(&mut self.input).await;
            replies.extend_from_slice(self.session.replies());
            self.session.sent();
            if step != Step::GoOn {
                return (replies, step == Step::Read);
            }
        }
    }

    /// Sends lines as a person types them. In the answers, `|` ends a line.
    fn say(&mut self, lines: &str) -> String {
        let (replies, _) = self.send(format!("{lines}\r\n").as_bytes());
        String::from_utf8(replies).unwrap().replace("\r\n", "|")
    }
}

/// Returns the bytes of a command.
fn command<T: AsRef<[u8]>>(texts: &[T]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", texts.len()).into_bytes();
    for text in texts.iter().map(AsRef::as_ref) {
        bytes.extend(format!("${}\r\n", text.len()).bytes());
        bytes.extend_from_slice(text);
        bytes.extend(b"\r\n");
    }
    bytes
}

fn rules(clock: &ManualClock, text: &str) -> Rules<ManualClock> {
    Rules::builder().clock(clock.clone()).load([Config::from_yaml("rules", text).unwrap()]).unwrap()
}

fn endpoint_with(most: usize, users: Option<Users>) -> TestEndpoint {
    let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000));
    TestEndpoint::with(rules(&clock, RULES).into(), clock, Settings::default(), most, users)
}

fn endpoint() -> TestEndpoint {
    endpoint_with(8, None)
}

// G140
#[test]
fn limits_of_clients_have_five_numbers() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    for (seconds, line, expected) in [
        (0, "CL.THROTTLE a 2 6 60", "*5|:0|:3|:2|:-1|:10|"),
        (0, "cl.throttle a 2 6 60 1", "*5|:0|:3|:1|:-1|:20|"),
        // A look charges nothing, and the quota and the key are the same count for both commands.
        (0, "CL.THROTTLE a 2 6 60 0", "*5|:0|:3|:1|:-1|:20|"),
        (0, "GCRA a 2 6 60 TOKENS 0", "*5|:0|:3|:1|$2|-1|$2|20|"),
        (0, "GCRA a 2 6 60.0", "*5|:0|:3|:0|$2|-1|$2|30|"),
        (0, "CL.THROTTLE a 2 6 60", "*5|:1|:3|:0|:10|:30|"),
        (0, "GCRA a 2 6 60 num_requests 2", "*5|:1|:3|:0|$2|20|$2|30|"),
        // More than the burst is never admitted.
        (0, "CL.THROTTLE a 2 6 60 4", "*5|:1|:3|:0|:-1|:30|"),
        (0, "GCRA a 2 6 60 TOKENS 4", "*5|:1|:3|:0|$2|-1|$2|30|"),
        (10, "CL.THROTTLE a 2 6 60", "*5|:0|:3|:0|:-1|:30|"),
        // A full burst.
        (0, "CL.THROTTLE b 2 6 60 0", "*5|:0|:3|:3|:-1|:0|"),
        (0, "GCRA b 2 6 60 TOKENS 0", "*5|:0|:3|:3|$2|-1|$2|-1|"),
        // Another quota is another count.
        (0, "CL.THROTTLE a 0 6 60", "*5|:0|:1|:0|:-1|:10|"),
        (0, "CL.THROTTLE a 0 6 60", "*5|:1|:1|:0|:10|:10|"),
        // Fractions: exact in one form, rounded up in the other.
        (0, "GCRA c 0 8 60", "*5|:0|:1|:0|$2|-1|$3|7.5|"),
        (0, "CL.THROTTLE c 0 8 60", "*5|:1|:1|:0|:8|:8|"),
        (0, "GCRA d 0 1 1.25", "*5|:0|:1|:0|$2|-1|$4|1.25|"),
        // A sum of floats has digits beyond a nanosecond.
        (0, "GCRA e 0 1 3.0000000000000004", "*5|:0|:1|:0|$2|-1|$11|2.999999623|"),
    ] {
        endpoint.clock.advance(Duration::from_secs(seconds));
        assert_eq!(client.say(line), expected, "{line}");
    }
    assert!(client.say("HELLO 3").starts_with("%7|"));
    assert_eq!(client.say("GCRA d 0 1 1.25"), "*5|:1|:1|:0|,1.25|,1.25|");
    assert_eq!(client.say("CL.THROTTLE d 0 1 9"), "*5|:0|:1|:0|:-1|:9|");
    assert_eq!(endpoint.shared.counts.denied.get(), 7);
}

// G140
#[test]
fn wrong_numbers_are_named() {
    let endpoint = endpoint();
    for (line, part) in [
        ("CL.THROTTLE a 1 2", "-ERR wrong number of arguments for 'cl.throttle' command|"),
        ("CL.THROTTLE a 1 2 3 4 5", "-ERR wrong number of arguments"),
        ("CL.THROTTLE a -1 2 3", "-ERR max_burst is '-1'; expected a whole number of 0 or more"),
        ("CL.THROTTLE a 1.5 2 3", "-ERR max_burst is '1.5'"),
        ("CL.THROTTLE a 1 0 3", "-ERR count is '0'; expected a whole number of 1 or more"),
        ("CL.THROTTLE a 1 2 0", "-ERR period is '0'"),
        ("CL.THROTTLE a 1 2 9999999999999", "-ERR period is longer than 584 years|"),
        ("CL.THROTTLE a 1 2 3 x", "-ERR quantity is 'x'"),
        ("CL.THROTTLE a 1 2 99999999999999999999", "-ERR period is '9999"),
        ("CL.THROTTLE a 9223372036854775807 1 1", "-ERR invalid quota: a burst of 9223372036854775808"),
        ("GCRA a 1 2 0", "-ERR period is no number of seconds above 0"),
        ("GCRA a 1 2 -0.5", "-ERR period is no number"),
        ("GCRA a 1 2 1e12", "-ERR period is no number"),
        ("GCRA a 1 2 nan", "-ERR period is no number"),
        ("GCRA a 1 2 3 TOKENS", "-ERR syntax error; expected GCRA key"),
        ("GCRA a 1 2 3 COINS 1", "-ERR syntax error; expected GCRA key"),
        ("GCRA a 1 2 3 TOKENS -1", "-ERR TOKENS is '-1'"),
        ("TOLLGATE.CHECK shop user", "-ERR wrong number of arguments for 'tollgate.check' command|"),
        ("TOLLGATE.CHECK shop user a b", "-ERR expected pairs of a key and a value"),
        ("TOLLGATE.CHECK shop HITS 2", "-ERR expected pairs"),
        ("TOLLGATE.CHECK shop HITS two user a", "-ERR HITS is 'two'"),
        ("TOLLGATE.CHECK shop HITS 2 user", "-ERR expected pairs"),
        ("TOLLGATE.HOLD shop TTL x user a", "-ERR TTL is no number of seconds|"),
        ("TOLLGATE.HOLD shop user a", "-ERR a rule of these descriptors cannot hold units"),
        ("TOLLGATE.CHECK '' user a", "-ERR the domain is empty|"),
        ("GET a", "-ERR unknown command 'GET'; COMMAND LIST shows"),
        ("\"\\x00\\n\"", "-ERR unknown command '\\x00\\n'"),
    ] {
        let answer = endpoint.say(line);
        assert!(answer.starts_with(part) && answer.matches('|').count() == 1, "{line}: {answer}");
    }
}

// G141
#[test]
fn rules_answer_with_figures_and_a_name() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    for (line, expected) in [
        ("TOLLGATE.CHECK shop user a", "*6|:0|:3|:2|:-1|:20|$8|per-user|"),
        ("TOLLGATE.CHECK shop HITS 2 user a", "*6|:0|:3|:0|:-1|:60|$8|per-user|"),
        ("TOLLGATE.CHECK shop user a", "*6|:1|:3|:0|:20|:60|$8|per-user|"),
        ("TOLLGATE.PEEK shop user a", "*6|:1|:3|:0|:60|:60|$8|per-user|"),
        ("TOLLGATE.PEEK shop user b", "*6|:0|:3|:3|:-1|:0|$8|per-user|"),
        ("TOLLGATE.CHECK shop HITS 0 user b", "*6|:0|:3|:3|:-1|:0|$8|per-user|"),
        ("TOLLGATE.CHECK shop HITS 4 user b", "*6|:1|:3|:0|:-1|:0|$8|per-user|"),
        // A rule without a name has the empty one, because others are paths with values of clients.
        ("TOLLGATE.CHECK shop page /", "*6|:0|:2|:1|:-1|:3600|$0||"),
        // No rule, and a rule without a limit.
        ("TOLLGATE.CHECK shop other a", "*6|:0|:-1|:-1|:-1|:-1|$0||"),
        ("TOLLGATE.CHECK shop free a", "*6|:0|:-1|:-1|:-1|:-1|$0||"),
        ("TOLLGATE.CHECK shp user a", "-ERR no rules have the domain \"shp\"|"),
        ("TOLLGATE.HOLD shp user a", "-ERR no rules have the domain 'shp'|"),
        ("TOLLGATE.COMMIT shp x 1 user a", "-ERR no rules have the domain 'shp'|"),
    ] {
        assert_eq!(client.say(line), expected, "{line}");
    }
    let counts = endpoint.shared.answerer.meters().read();
    assert_eq!((counts.entries, endpoint.shared.check.requests()), ([0, 2, 0, 0, 0, 0], 9), "{counts:?}");
    assert_eq!(counts.over_limit, 3);
}

#[test]
fn keys_near_a_limit_are_seen_while_somebody_views_them() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let view = endpoint.shared.answerer.near();
    for line in ["CHECK shop HITS 2 user a", "CHECK shop user a", "CHECK shop user a", "PEEK shop user a"] {
        assert!(client.say(&format!("TOLLGATE.{line}")).starts_with("*6|"));
    }
    let near: Vec<_> = view.top(9).iter().map(|key| (key.rule.clone(), key.key.clone(), key.count)).collect();
    // The second of them took the last unit.
    assert_eq!(near, [("per-user".into(), "user=a".into(), 1)]);
}

// G141
#[test]
fn units_are_held_and_settled_once() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let hold = |client: &mut Client, line: &str| {
        let answer = client.say(line);
        answer.strip_prefix("*2|:0|$32|").expect(&answer).trim_end_matches('|').to_owned()
    };
    let first = hold(&mut client, "TOLLGATE.HOLD shop HITS 60 TTL 10 tokens x");
    assert_eq!(client.say("TOLLGATE.HOLD shop HITS 60 tokens x"), "*2|:1|$-1|");
    assert_eq!(client.say(&format!("TOLLGATE.COMMIT shop {first} 20 tokens x")), ":1|");
    assert_eq!(client.say(&format!("TOLLGATE.COMMIT shop {first} 20 tokens x")), ":0|");
    // The second commit was a report, so 40 units are used.
    assert!(client.say("TOLLGATE.PEEK shop tokens x").starts_with("*6|:0|:100|:60|"));
    let second = hold(&mut client, "TOLLGATE.HOLD shop HITS 60 TTL 10.5 tokens x");
    endpoint.clock.advance(Duration::from_secs(11));
    assert!(client.say("TOLLGATE.CHECK shop HITS 60 tokens x").starts_with("*6|:0|:100|:0|"), "it ended");
    assert_eq!(client.say(&format!("TOLLGATE.COMMIT shop {second} 1 tokens x")), ":0|");
}

/// Cause: a look was a query, and a query holds the units of rules with `hold: { units }`. Symptom: looks used up the limit.
// G141
#[test]
fn looks_hold_nothing() {
    const HOLDS: &str = "{ domain: d, tollgate: {}, descriptors: [
        { key: job, rate_limit: { in_progress: 2, hold: { units: 1 } } },
        { key: budget, rate_limit: { unit: hour, requests_per_unit: 100, hold: { units: 60 } } } ] }";
    let clock = ManualClock::new(Timestamp::from_secs(1_800_000_000));
    let endpoint = TestEndpoint::new(rules(&clock, HOLDS), clock, Settings::default());
    let mut client = endpoint.connect();
    for _ in 0..3 {
        assert!(client.say("TOLLGATE.PEEK d job a").starts_with("*6|:0|:2|:2|"));
        assert!(client.say("TOLLGATE.PEEK d budget a").starts_with("*6|:0|:100|:100|"));
    }
    for _ in 0..2 {
        assert!(client.say("TOLLGATE.HOLD d job a").starts_with("*2|:0|"));
    }
    assert!(client.say("TOLLGATE.PEEK d job a").starts_with("*6|:1|:2|:0|"));
}

#[test]
fn libraries_can_begin_a_connection() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    for (line, expected) in [
        ("PING", "+PONG|"),
        ("PING hello", "$5|hello|"),
        ("ECHO \"a b\"", "$3|a b|"),
        ("SELECT 0", "+OK|"),
        ("SELECT 1", "-ERR DB index is out of range; there is only 0|"),
        ("CLIENT SETNAME api", "+OK|"),
        ("CLIENT GETNAME", "$3|api|"),
        ("CLIENT SETNAME 'a b'", "-ERR Client names cannot"),
        ("CLIENT SETINFO LIB-NAME redis-py", "+OK|"),
        ("client setinfo lib-ver 7.0", "+OK|"),
        ("CLIENT SETINFO color red", "-ERR Unrecognized option 'color'|"),
        ("CLIENT ID", ":1|"),
        ("CLIENT NO-EVICT on", "+OK|"),
        ("CLIENT NO-TOUCH on", "+OK|"),
        ("CLIENT KILL 1", "-ERR unknown subcommand 'KILL' of CLIENT"),
        (
            "CLIENT INFO",
            "$86|id=1 addr=127.0.0.1:1 name=api db=0 user=default resp=2 lib-name=redis-py lib-ver=7.0",
        ),
        ("CONFIG GET save", "*2|$4|save|$0||"),
        ("CONFIG GET maxmemory", "*0|"),
        ("CONFIG SET save x", "-ERR there is only CONFIG GET"),
        ("COMMAND COUNT", ":22|"),
        ("COMMAND DOCS", "*0|"),
        ("COMMAND INFO gcra get", "*2|*6|$4|gcra|:-5|*1|+fast|:1|:1|:1|$-1|"),
        (&format!("COMMAND INFO{}", " gcra".repeat(22)), "*22|*6|"),
        (&format!("COMMAND INFO{}", " gcra".repeat(23)), "-ERR COMMAND INFO takes at most 22 names|"),
        ("COMMAND LIST", "*22|$11|cl.throttle|"),
        ("COMMAND", "*22|*6|$11|cl.throttle|:-5|"),
        ("COMMAND GETKEYS x", "-ERR unknown subcommand"),
        ("AUTH x", "-ERR AUTH <password> called without any password configured"),
        ("AUTH default x", "+OK|"),
        ("AUTH other x", "-WRONGPASS"),
        ("HELLO 4", "-NOPROTO"),
        ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'|"),
        ("HELLO 3 AUTH default x SETNAME web", "%7|$6|server|$8|tollgate|"),
        ("CLIENT GETNAME", "$3|web|"),
        ("COMMAND DOCS", "%0|"),
        ("RESET", "+RESET|"),
        ("CLIENT GETNAME", "$-1|"),
        ("HELLO", "*14|$6|server|"),
        ("INFO", "$"),
    ] {
        let answer = client.say(line);
        assert!(answer.starts_with(expected), "{line}: {answer}");
    }
    assert!(client.say("INFO server").contains("|redis_version:7.4.0|"));
    let (replies, goes_on) = client.send(b"QUIT\r\nPING\r\n");
    assert_eq!((&replies[..], goes_on), (&b"+OK\r\n"[..], false));
}

/// Inputs with their answers. After those that end with `end`, nothing is read.
const STREAMS: &[(&[u8], &str)] = &[
    (b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHO\r\n$2\r\n\r\n\r\n", "+PONG|$2|||"),
    (b"PING\nPING\r\n\r\n   \r\n PING  x \r\n", "+PONG|+PONG|$1|x|"),
    (b"ECHO \"\\x41\\n\\\"\"\r\nECHO 'it\\'s'\r\nECHO \"\"\r\n", "$3|A\n\"|$4|it's|$0||"),
    (b"*0\r\n*-1\r\nPING\r\n", "+PONG|"),
    (b"*1\r\n$-1\r\nPING\r\n", "-ERR Protocol error: invalid bulk length|end"),
    (b"*x\r\nPING\r\n", "-ERR Protocol error: invalid multibulk length|end"),
    (b"*1\nPING\r\n", "-ERR Protocol error: invalid multibulk length|end"),
    (
        b"PING\r\n*101\r\n",
        "+PONG|-ERR Protocol error: invalid multibulk length: a command has at most 100 texts|end",
    ),
    (
        b"*1\r\n$2097152\r\n",
        "-ERR Protocol error: invalid bulk length: a command has at most 2097152 bytes|end",
    ),
    (
        b"*1\r\n$9223372036854775807\r\n",
        "-ERR Protocol error: invalid bulk length: a command has at most 2097152 bytes|end",
    ),
    (b"*1\r\n!4\r\nPING\r\n", "-ERR Protocol error: expected '$', got '!'|end"),
    (b"*1\r\n$4\r\nPINGPONG\r\n", "-ERR Protocol error: a text is longer than its length says|end"),
    (
        b"*1\r\n$00000000000000000000000000000000000000004\r\n",
        "-ERR Protocol error: too big count string|end",
    ),
    (b"ECHO \"a\r\n", "-ERR Protocol error: unbalanced quotes in request|end"),
    (b"ECHO \"a\"b\r\n", "-ERR Protocol error: unbalanced quotes in request|end"),
    (
        b"PING\r\nGET / HTTP/1.1\r\nHost: x\r\nPING\r\n",
        "+PONG|-ERR unknown command 'GET'; COMMAND LIST shows those of \
        Tollgate, which keeps limits and no data|end",
    ),
    (b"POST / HTTP/1.1\r\nPING\r\n", "end"),
];

// G141
#[test]
fn splits_of_a_stream_change_no_answer() {
    for (stream, expected) in STREAMS {
        let endpoint = endpoint();
        let told = |parts: &[&[u8]]| {
            let (mut client, mut told) = (endpoint.connect(), String::new());
            for part in parts {
                let (replies, goes_on) = client.send(part);
                told += &String::from_utf8(replies).unwrap().replace("\r\n", "|");
                if !goes_on {
                    return told + "end";
                }
            }
            told
        };
        assert_eq!(told(&[stream]), *expected);
        assert_eq!(told(&stream.chunks(1).collect::<Vec<_>>()), *expected, "byte by byte");
        for at in 0..stream.len() {
            let (one, two) = stream.split_at(at);
            assert_eq!(told(&[one, two]), *expected, "split at {at}");
        }
    }
}

// G140
#[test]
fn keys_of_any_bytes_and_length_are_counted() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let long = vec![b'k'; 1 << 20];
    let keys: Vec<Vec<u8>> =
        (0..=255).map(|byte| vec![byte]).chain([vec![], long.clone(), [&long[..], b"2"].concat()]).collect();
    for limited in [0, 1] {
        for key in &keys {
            let (replies, _) = client.send(&command(&[b"CL.THROTTLE", &key[..], b"0", b"1", b"3600"]));
            assert!(replies.starts_with(format!("*5\r\n:{limited}\r\n").as_bytes()), "{} bytes", key.len());
            let check = command(&[&b"TOLLGATE.CHECK"[..], b"shop", b"HITS", b"2", b"page", key]);
            let (replies, _) = client.send(&check);
            assert!(replies.starts_with(format!("*6\r\n:{limited}\r\n").as_bytes()), "{} bytes", key.len());
        }
    }
}

// G141
#[test]
fn turns_and_full_answers_let_others_go_on() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let mut steps = |input: &[u8]| {
        let (mut input, mut steps) = (input.to_vec(), Vec::new());
        loop {
            let step = run(client.session.answer(&mut input));
            steps.push(client.session.replies().len());
            client.session.sent();
            if step == Step::Read {
                return steps;
            }
        }
    };
    assert_eq!(steps(&b"PING\r\n".repeat(2 * TURN + 1)), [7 * TURN, 7 * TURN, 7]);
    let echo = command(&[&b"ECHO"[..], &[b'e'; 10_000]]);
    assert_eq!(steps(&echo.repeat(4)), [2 * 10_010, 2 * 10_010, 0]);
}

#[test]
fn limits_of_clients_allocate_nothing() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let commands: Vec<u8> = (0..16)
        .flat_map(|key: u32| command(&["CL.THROTTLE", &format!("key:{key}"), "9", "100", "60"]))
        .chain(
            b"GCRA inline 9 100 60\r\nTOLLGATE.CHECK shop HITS 0 page a\r\nTOLLGATE.CHECK shop page a\r\n"
                .iter()
                .copied(),
        )
        .collect();
    let mut round = || {
        client.input.extend_from_slice(&commands);
        let step = client.session.answer(&mut client.input).now_or_never();
        assert_eq!((step, client.session.replies().len() > 400), (Some(Step::Read), true));
        client.session.sent();
    };
    round();
    assert_eq!(crate::counting::allocations(|| (0..100).for_each(|_| round())), 0);
}

/// A client of the rules of a process. It connects again for each command.
struct Commands {
    process: Process,
    ids: Vec<String>,
}

impl Commands {
    /// Returns the answer to a command with this argument before the entries.
    fn say(&self, now: u64, start: &str, entries: Entries) -> String {
        let endpoint =
            TestEndpoint::new(Arc::clone(self.process.at(now)), alike::clock(), Settings::default());
        let pairs = entries.iter().flat_map(|(key, value)| [*key, *value]);
        let texts: Vec<&str> = start.split(' ').chain(pairs).collect();
        String::from_utf8(endpoint.connect().send(&command(&texts)).0).unwrap()
    }
}

impl Surface for Commands {
    fn ask(&mut self, now: u64, entries: Entries, units: u64) -> Seen {
        let text = self.say(now, &format!("TOLLGATE.CHECK alike HITS {units}"), entries);
        let numbers: Vec<i64> =
            text.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect();
        let [limited, _, left, wait, _] = numbers[..] else { panic!("{text}") };
        let number = |number: i64| u64::try_from(number).ok();
        Seen { is_allowed: limited == 0, left: number(left), wait: number(wait), is_block: None }
    }

    fn process(&mut self) -> Option<&mut dyn Surface> {
        Some(&mut self.process)
    }

    fn hold(&mut self, now: u64, entries: Entries, units: u64, life: u64) -> Seen {
        let text = self.say(now, &format!("TOLLGATE.HOLD alike HITS {units} TTL {life}"), entries);
        let id = text.strip_prefix("*2\r\n:0\r\n$32\r\n");
        self.ids.extend(id.map(|id| id.trim_end().to_owned()));
        Seen { is_allowed: id.is_some(), left: None, wait: None, is_block: None }
    }

    fn commit(&mut self, now: u64, entries: Entries, hold: usize, used: u64) -> Option<bool> {
        let start = format!("TOLLGATE.COMMIT alike {} {used}", self.ids[hold]);
        Some(self.say(now, &start, entries) == ":1\r\n")
    }
}

// G141
#[test]
fn commands_answer_each_kind_alike() {
    for case in cases(true) {
        for between in ALL {
            let process = Process::new(case, "", alike::clock(), |builder| builder);
            case.play(&mut Commands { process, ids: Vec::new() }, between);
        }
    }
}
