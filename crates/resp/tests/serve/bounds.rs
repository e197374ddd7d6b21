//! Clients that break rules, floods, and the end of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate_testing::service::client::{block_on, stat, wait_for_stat};
use tollgate_testing::service::tls::{Authority, install};
use tollgate_testing::service::{RULES, eventually};

use super::{Client, Place, Server, run, start};

/// A pipeline of ten questions, whose answers have 60 lines.
fn ten() -> Vec<u8> {
    b"CL.THROTTLE drain 1000000 1 60\r\n".repeat(10)
}

// G141
#[test]
fn drain_answers_all_commands_that_were_read() {
    let place = Place::new();
    let mut server = start(&place, "--drain 100ms");
    let answered = Arc::new(AtomicU64::new(0));
    let ask = |mut client: Client| {
        let answered = Arc::clone(&answered);
        move || {
            loop {
                if client.send(&ten()).is_err() {
                    return 0;
                }
                match client.lines(60).matches("*5|").count() {
                    10 => answered.fetch_add(10, Ordering::Relaxed),
                    left => return left,
                };
            }
        }
    };
    let clients: Vec<_> = (0..4).map(|_| thread::spawn(ask(Client::connect(&server)))).collect();
    // One that is idle, and one that has sent half of a command.
    let (idle, mut half) = (Client::connect(&server), Client::connect(&server));
    half.send(b"*2\r\n$4\r\nECHO\r\n").unwrap();
    assert!(eventually(|| answered.load(Ordering::Relaxed) > 1_000));
    server.signal("TERM");
    for client in clients {
        assert_eq!(client.join().unwrap(), 0, "a pipeline was answered in part");
    }
    assert_eq!((idle.end(), half.end()), (String::new(), String::new()));
    assert_eq!(server.wait(), 0, "{}", server.log());
}

// G141
#[test]
fn reloads_under_load_fail_no_command() {
    let place = Place::new();
    let server = start(&place, "");
    let (ends, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let ask = |mut client: Client| {
        let (ends, answered) = (Arc::clone(&ends), Arc::clone(&answered));
        move || {
            while !ends.load(Ordering::Relaxed) {
                let answer = client.say("TOLLGATE.CHECK rl generic_key v", 8);
                assert!(answer.starts_with("*6|:0|"), "{answer}");
                answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let clients: Vec<_> = (0..2).map(|_| thread::spawn(ask(Client::connect(&server)))).collect();
    for load in 1..=5 {
        place.write(
            "limits.yaml",
            format!("{RULES}  - key: new{load}\n    rate_limit: {{ unit: year, every: 70, requests_per_unit: 1 }}\n"),
        );
        let mut client = Client::connect(&server);
        let asks = format!("TOLLGATE.PEEK rl new{load} x");
        assert!(eventually(|| client.say(&asks, 8).starts_with("*6|:0|:1|")), "{}", server.log());
        let enough = answered.load(Ordering::Relaxed) + 20;
        assert!(eventually(|| answered.load(Ordering::Relaxed) >= enough), "{}", server.log());
    }
    ends.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
}

// G141
#[test]
fn clients_that_break_rules_cost_only_themselves() {
    let place = Place::new();
    let server = start(&place, "--max-connections 50");
    let mut good = Client::connect(&server);
    let mut deaf = Client::connect(&server);
    // It sends questions and takes no answer, until nothing more fits.
    deaf.0.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    let echo = [&b"*2\r\n$4\r\nECHO\r\n$30000\r\n"[..], &[b'e'; 30_000], b"\r\n"].concat();
    assert!((0..10_000).any(|_| deaf.send(&echo).is_err()));
    for bytes in [
        &b"\x16\x03\x01\x02\x00"[..],
        b"*1\r\n$99999999\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"*9999999\r\n",
    ] {
        let mut bad = Client::connect(&server);
        bad.send(bytes).unwrap();
        bad.send(b"\r\nPING\r\n").unwrap();
        let answer = bad.end();
        assert!(!answer.contains("PONG") || bytes[0] == 0x16, "{answer}");
        assert_eq!(good.say("PING", 1), "+PONG|");
    }
    let mut many: Vec<_> = (0..60).map(|_| Client::connect(&server)).collect();
    assert_eq!(many[59].lines(usize::MAX), "-ERR max number of clients reached|");
    assert_eq!(good.say("CL.THROTTLE a 0 1 60", 6), "*5|:0|:1|:0|:-1|:60|");
    block_on(wait_for_stat(&server.address("debug"), "tollgate_service_connections_refused_total", 1));
    drop((many, deaf));
}

// G140
#[test]
fn floods_of_keys_and_quotas_keep_memory_flat() {
    const EACH: u64 = 50_000;
    let place = Place::new();
    let server = start(&place, "--resp-quotas 8");
    let mut client = Client::connect(&server);
    let mut flood = |from: u64| {
        for first in (from..from + EACH).step_by(500) {
            let mut lines = String::new();
            for number in first..first + 500 {
                lines +=
                    &format!("CL.THROTTLE key:{number} 0 1 60\r\nCL.THROTTLE a 0 {} 86400\r\n", number + 2);
            }
            client.send(lines.as_bytes()).unwrap();
            // An answer has six lines, and the refusal of a quota has one. Seven quotas are admitted beside the first one.
            let refused = if first == 0 { 7 * 5 } else { 0 };
            let answers = client.lines(500 * 7 + refused);
            assert_eq!(
                answers.matches("-ERR 8 other quotas are in use").count(),
                if first == 0 { 493 } else { 500 }
            );
        }
        server.resident_bytes()
    };
    let first = flood(0);
    flood(EACH);
    let most = (64 << 20).min(first + (4 << 20));
    let is_flat = eventually(|| server.resident_bytes() < most);
    assert!(is_flat, "{first} bytes, then {}", server.resident_bytes());
}

// G141
#[test]
fn users_of_a_file_log_in_and_the_file_is_read_again() {
    let place = Place::new();
    place.write("users.acl", "user shop on >secret +@all ~rl\n");
    let users = place.name("users.acl");
    let mut server = start(&place, &format!("--resp-users {users} --log info"));
    let address = server.address("resp");
    let ask = |credentials: &str| -> redis::RedisResult<Vec<redis::Value>> {
        let client = redis::Client::open(format!("redis://{credentials}{address}/?protocol=resp3"))?;
        redis::cmd("TOLLGATE.CHECK").arg(&["rl", "generic_key", "v"]).query(&mut client.get_connection()?)
    };
    assert_eq!(ask("shop:secret@").unwrap().len(), 6);
    for credentials in ["", "shop:secre@", "other:secret@", ":secret@"] {
        assert!(ask(credentials).is_err(), "{credentials}");
    }
    let mut open = Client::connect(&server);
    assert_eq!(open.say("AUTH shop secret", 1), "+OK|");
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let hash_and_more = format!("user shop on #{hash}0zz +@all ~rl\n");
    for (part, why) in [
        ("user shop on >sec", "line 1 has no end"),
        ("", "there is no user"),
        (&*hash_and_more, "line 1: after # comes the SHA-256 of the password: 64 hexadecimal digits"),
    ] {
        place.write("users.acl", part);
        let line = server.wait_for_line(why);
        assert!(line.contains("users.acl") && line.contains("the earlier users stay in force"), "{line}");
        assert_eq!(open.say("PING", 1), "+PONG|");
    }
    place.write("users.acl", "user shop on >another +@all ~rl\n");
    assert!(eventually(|| ask("shop:another@").is_ok()), "{}", server.log());
    assert!(ask("shop:secret@").is_err());
    assert_eq!(open.say("PING", 1), "-NOAUTH Authentication required.|");
    assert!(
        block_on(async { stat(&server.address("debug"), "tollgate_resp_wrong_passwords_total").await }) >= 3
    );
    assert!(!server.log().contains("secret") && !server.log().contains("another"), "{}", server.log());
    server.stop();
    // A file that cannot be used ends the start, and `--check` finds it.
    place.write("users.acl", "user shop on secret\n");
    let rules = place.rules().display().to_string();
    for more in ["--check", ""] {
        run(&format!("{rules} --grpc 127.0.0.1:0 --http 127.0.0.1:0 --debug off --resp 0 --resp-users {users} {more}"), &[])
            .fails(1, &["users.acl: line 1: a word is none of"]);
    }
}

fn tls_client(server: &Server, authority: &Authority) -> redis::Client {
    let url = format!("rediss://localhost:{}", server.address("resp").rsplit_once(':').unwrap().1);
    let certificates =
        redis::TlsCertificates { client_tls: None, root_cert: Some(authority.pem().into_bytes()) };
    redis::Client::build_with_tls(url, certificates).unwrap()
}

// G141
#[test]
fn tls_covers_redis_clients_unless_a_flag_says_otherwise() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (place, authority) = (Place::new(), Authority::new());
    install(&place, &authority.server());
    let [cert, key] = ["tls.crt", "tls.key"].map(|name| place.name(name));
    let tls = format!("--tls-cert {cert} --tls-key {key}");
    let server = start(&place, &tls);
    assert!(server.start_line().contains(&format!("resp on {} with TLS", server.address("resp"))));
    let mut connection = tls_client(&server, &authority).get_connection().unwrap();
    let answer: [i64; 5] =
        redis::cmd("CL.THROTTLE").arg(&["a", "0", "1", "60"]).query(&mut connection).unwrap();
    assert_eq!(answer, [0, 1, 0, -1, 60]);
    assert!(tls_client(&server, &Authority::new()).get_connection().is_err());
    let mut plain = Client::connect(&server);
    plain.send(b"PING\r\n").unwrap();
    assert!(!plain.end().contains("PONG"));
    drop(connection);
    server.stop();
    let server = start(&place, &format!("{tls} --resp-plain"));
    assert_eq!(Client::connect(&server).say("PING", 1), "+PONG|");
}

#[test]
fn open_endpoint_without_users_is_warned_of() {
    let place = Place::new();
    let server = place.start("--resp 0.0.0.0:0");
    assert!(server.log().contains("can use and exhaust the limits of Redis clients"), "{}", server.log());
    server.stop();
    run("--resp 0.0.0.0:0 --grpc off --http off", &[]).fails(2, &["loopback only"]);
    let server = start(&place, "");
    assert!(!server.log().contains("WARN"), "{}", server.log());
}
