//! Servers that send the replies of a test: errors of several versions, and maps of a Cluster.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::Quota;
use tollgate_protocol::{Call, Place, Plan, Question, Scope, Transport, slot};
use tollgate_redis::{AtomicLimiter, Breaker, Client, ErrorKind, Limit};

use crate::fake::Fake;
use crate::strict;

fn limiter(client: &Client) -> AtomicLimiter {
    let builder = strict(client.limiter("api", Limit::gcra(Quota::per_day(10))), &[]);
    builder.breaker(Breaker::new(u32::MAX, Duration::ZERO)).atomic().unwrap()
}

/// A script's error on servers before version 7 is in the text of another error.
#[tokio::test]
async fn server_errors_have_kinds_and_no_keys() {
    let replica = "You can't write against a read only replica.";
    let holds = "Operation against a key holding the wrong kind of value";
    let full = "OOM command not allowed when used memory > 'maxmemory'.";
    let key = "NOPERM User a has no permissions to access the 'tollgate:v1:{api|secret}:g0' key";
    let in_script = "ERR Error running script (call to f_5af9): @user_script:99:";
    // Whether the client connects again: the server may be a replica now.
    for (line, kind, reconnects) in [
        (format!("READONLY {replica} script: 5af9, on @user_script:239."), ErrorKind::Refused, true),
        (format!("{in_script} @user_script: 99: -READONLY {replica} "), ErrorKind::Refused, true),
        (format!("{in_script} -READONLY {replica}"), ErrorKind::Refused, true),
        ("ERR no script has_code READONLY".to_owned(), ErrorKind::Refused, false),
        (full.to_owned(), ErrorKind::Refused, false),
        ("NOTOURS a key holds no state of a limiter".to_owned(), ErrorKind::Reply, false),
        (format!("WRONGTYPE {holds} script: 5af9, on @user_script:99."), ErrorKind::Reply, false),
        (format!("{in_script} @user_script: 99: WRONGTYPE {holds} "), ErrorKind::Reply, false),
        (format!("{in_script} -WRONGTYPE Operation"), ErrorKind::Reply, false),
        (key.to_owned(), ErrorKind::Refused, false),
    ] {
        let server = Fake::start("EVALSHA", &format!("-{line}\r\n"));
        let limiter = limiter(&Client::open(&server.url()).unwrap());
        let told = limiter.charge_unchecked("secret", 1).await.unwrap_err();
        assert_eq!(limiter.charge_unchecked("secret", 1).await.unwrap_err().kind(), kind, "{line}");
        let connections = server.connections.load(Ordering::SeqCst);
        assert_eq!((told.kind(), connections), (kind, 1 + usize::from(reconnects)), "{line}");
        let told = told.to_string();
        assert!(!told.contains("secret"), "{told}");
        for (of, shown) in [(key, "NOPERM"), (full, full)] {
            assert!(line != of || told == format!("the server refused the command: {shown}"), "{told}");
        }
    }
}

fn array(items: impl IntoIterator<Item = String>) -> String {
    let items: Vec<_> = items.into_iter().collect();
    format!("*{}\r\n{}", items.len(), items.concat())
}

fn number(number: impl Into<i64>) -> String {
    format!(":{}\r\n", number.into())
}

fn text(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

/// A range of slots and its nodes: the host, as a reply, and the port.
fn range(slots: [u16; 2], nodes: &[(&str, u16)]) -> String {
    let nodes = nodes.iter().map(|(host, port)| array([(*host).to_owned(), number(*port), text("an id")]));
    array(slots.map(number).into_iter().chain(nodes))
}

const NIL: &str = "$-1\r\n";

/// A call about a key of this slot.
fn call_at(wanted: u16) -> Call {
    let tag = (0..).map(|key| key.to_string().into_bytes()).find(|tag| slot::slot(tag) == wanted).unwrap();
    let plan = Plan::new(&[Limit::gcra(Quota::per_day(10))]).unwrap().into();
    let (ask, place) = (Question::Peek { cost: 0 }, Place::default());
    Call { tag, plan, ask, now: None, place, scope: Scope::Limits }
}

#[tokio::test]
async fn invalid_slot_map_is_an_error() {
    let one = |parts: &[&str]| array([array(parts.iter().map(|part| (*part).to_owned()))]);
    for (map, kind) in [
        (NIL.to_owned(), ErrorKind::Reply),
        (one(&[]), ErrorKind::Reply),
        (one(&[":0\r\n"]), ErrorKind::Reply),
        (one(&[":-1\r\n", ":1\r\n"]), ErrorKind::Reply),
        (one(&["$1\r\n0\r\n", ":1\r\n"]), ErrorKind::Reply),
        (array([number(1)]), ErrorKind::Reply),
        (array([]), ErrorKind::Unreachable),
    ] {
        let client = Client::cluster([&*Fake::start("SLOTS", &map).url()]).unwrap();
        // A busy machine may let the server answer after the client has given up.
        let mut told = client.call(&call_at(5)).await.unwrap_err().kind();
        while told == ErrorKind::Timeout {
            told = client.call(&call_at(5)).await.unwrap_err().kind();
        }
        assert_eq!(told, kind, "{map:?}");
    }
}

/// Makes calls that fail, so that the client asks for the map, until the client knows it. A busy machine may let the server
/// answer after the client has given up, so that the client asks again.
async fn until(client: &Client, slot: u16, is_known: impl Fn() -> bool) {
    crate::until("the client knows the map", async || {
        assert!(client.call(&call_at(slot)).await.is_err());
        is_known()
    })
    .await;
}

/// Each node that holds slots is a part. A node without a known name is called at the host of the seed.
#[tokio::test]
async fn slot_map_gives_holder_and_part() {
    let nodes: [Fake; 4] = std::array::from_fn(|_| Fake::start("EVALSHA", "-OOM none\r\n"));
    let at = |node: usize| nodes[node].port;
    // The client may ask any node for the map, if the seed is late. A call about a key goes to its holder.
    let called = || nodes.each_ref().map(|node| node.named.load(Ordering::SeqCst));
    let local = text("127.0.0.1");
    let low = range([0, 9], &[(NIL, at(0)), (&text("?"), at(3))]);
    let seed = Fake::start("SLOTS", &array([range([100, 16_383], &[(&local, at(1))]), low]));
    let client = Client::cluster([&*seed.url()]).unwrap();
    let part = |slot: u16| client.part(&call_at(slot));
    until(&client, 0, || called()[0] > 0).await;
    for (slot, kind, holder) in [
        (0, ErrorKind::Refused, Some(0)),
        (9, ErrorKind::Refused, Some(0)),
        (10, ErrorKind::Unreachable, None),
        (99, ErrorKind::Unreachable, None),
        (100, ErrorKind::Refused, Some(1)),
        (16_383, ErrorKind::Refused, Some(1)),
    ] {
        let before = called();
        let error = client.call(&call_at(slot)).await.unwrap_err();
        let after = called();
        assert_eq!(error.kind(), kind, "slot {slot}: {error}");
        let asked: [bool; 4] = std::array::from_fn(|node| after[node] > before[node]);
        assert_eq!(asked, std::array::from_fn(|node| holder == Some(node)), "slot {slot}");
    }
    assert_eq!([100, 0, 9_999, 10].map(part), [1, 0, 1, 0]);
    let map = |first| array([range([0, 9], &[(&local, at(first))]), range([10, 16_383], &[(&local, at(1))])]);
    for (first, expected, why) in [
        (2, 0, "the new node takes the part of the node without slots"),
        (1, 1, "one node holds all slots"),
        (3, 0, "a node keeps its part"),
    ] {
        *seed.reply.lock().unwrap() = map(first);
        until(&client, 0, || called()[first] > 0 && part(0) == expected).await;
        assert_eq!([0, 100].map(part), [expected, 1], "{why}");
    }
}

#[tokio::test]
async fn sixteen_nodes_are_sixteen_parts() {
    let node = |node: u16| range([node * 900; 2], &[(&text("127.0.0.1"), node + 1)]);
    let seed = Fake::start("SLOTS", &array((0..18).map(node)));
    let client = Client::cluster([&*seed.url()]).unwrap();
    let parts = || (0..18).map(|node| client.part(&call_at(node * 900))).collect::<Vec<_>>();
    until(&client, 900, || parts()[15] == 15).await;
    let parts = parts();
    assert_eq!(parts[..16], (0..16).collect::<Vec<_>>());
    assert_eq!(parts[16..], [14, 14], "further nodes share the parts of their slot ranges");
}
