//! `MULTI`, `EXEC` and `DISCARD`. Cause: `MULTI` was an unknown command, and the commands after it were obeyed. Symptom: the default
//! pipeline of redis-py was charged, and then told that `EXEC` does not exist.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use tollgate_resp::internals::{FULL, MOST_BYTES, MOST_COMMANDS};
use tollgate_testing::redis::Server as Redis;

use super::users::UserFile;
use super::*;

// G141
#[test]
fn exec_answers_all_commands_as_one_array() {
    let endpoint = endpoint();
    for (hello, minus_one) in [("PING", "$2|-1|"), ("HELLO 3", ",-1|")] {
        let mut client = endpoint.connect();
        client.say(hello);
        assert_eq!(client.say("MULTI"), "+OK|");
        let key = hello.len();
        for line in [
            &*format!("CL.THROTTLE {key} 1 6 60"),
            &format!("GCRA {key} 1 6 60"),
            &format!("CL.THROTTLE {key} 1 6 60"),
            &format!("CL.THROTTLE {key} x 6 60"),
            &format!("TOLLGATE.CHECK shop user {key}"),
            "ECHO done",
        ] {
            assert_eq!(client.say(line), "+QUEUED|", "{line}");
        }
        // Nothing was charged until now.
        assert_eq!(endpoint.say(&format!("CL.THROTTLE {key} 1 6 60 0")), "*5|:0|:2|:2|:-1|:0|");
        let twenty = if hello == "PING" { "$2|20|" } else { ",20|" };
        let answers = [
            "*6|".to_owned(),
            "*5|:0|:2|:1|:-1|:10|".to_owned(),
            format!("*5|:0|:2|:0|{minus_one}{twenty}"),
            "*5|:1|:2|:0|:10|:20|".to_owned(),
            // An error in the array is one command's; the others were obeyed.
            "-ERR max_burst is 'x'; expected a whole number of 0 or more, below 2^63|".to_owned(),
            "*6|:0|:3|:2|:-1|:20|$8|per-user|".to_owned(),
            "$4|done|".to_owned(),
        ];
        assert_eq!(client.say("EXEC"), answers.concat());
        assert_eq!(client.say("EXEC"), "-ERR EXEC without MULTI|");
    }
}

// G141
#[test]
fn spoilt_transactions_charge_nothing() {
    let endpoint = endpoint();
    for wrong in ["GET a", "CL.THROTTLE a", "ECHO", "MULTI now"] {
        let mut client = endpoint.connect();
        let lines =
            format!("MULTI\r\nCL.THROTTLE a 1 6 60\r\n{wrong}\r\nCL.THROTTLE a 1 6 60\r\nEXEC\r\nPING");
        let answer = client.say(&lines);
        let parts = answer.split('|').collect::<Vec<_>>();
        let [ok, queued, error, again, abort, pong, ""] = parts[..] else { panic!("{answer}") };
        assert_eq!([ok, queued, again, pong], ["+OK", "+QUEUED", "+QUEUED", "+PONG"]);
        assert!(error.starts_with("-ERR "), "{answer}");
        assert_eq!(abort, "-EXECABORT Transaction discarded because of previous errors.");
    }
    // Dropped by DISCARD, RESET, and the end of the connection.
    for end in ["DISCARD\r\nEXEC", "RESET\r\nEXEC", "QUIT\r\nEXEC", "PING"] {
        let answer = endpoint.say(&format!("MULTI\r\nCL.THROTTLE a 1 6 60\r\n{end}"));
        assert!(answer.starts_with("+OK|+QUEUED|+") && !answer.contains('*'), "{end}: {answer}");
    }
    assert_eq!(endpoint.say("CL.THROTTLE a 1 6 60 0"), "*5|:0|:2|:2|:-1|:0|");
    assert_eq!(endpoint.shared.counts.denied.get(), 0);
}

/// A user is checked when a command is queued, and again when it runs.
#[test]
fn transactions_follow_permissions() {
    let file = UserFile::new(8, "user api on >secret +gcra ~shop");
    let endpoint = &file.endpoint;
    assert_eq!(endpoint.say("MULTI\r\nEXEC"), "-NOAUTH Authentication required.|".repeat(2));
    let mut client = endpoint.connect();
    assert_eq!(client.say("AUTH api secret\r\nMULTI\r\nGCRA a 1 1 9"), "+OK|+OK|+QUEUED|");
    assert!(client.say("CL.THROTTLE a 1 1 9").starts_with("-NOPERM"));
    assert!(client.say("EXEC").starts_with("-EXECABORT"));
    assert_eq!(client.say("MULTI\r\nGCRA a 1 1 9"), "+OK|+QUEUED|");
    file.change("user api on >secret +cl.throttle ~shop");
    assert_eq!(client.say("EXEC"), "*1|-NOPERM User api has no permissions to run the 'gcra' command|");
}

// G141
#[test]
fn long_transactions_have_bounds_and_turns() {
    let endpoint = endpoint();
    let mut client = endpoint.connect();
    let many =
        |count: usize| [b"MULTI\r\n".to_vec(), b"PING\r\n".repeat(count), b"EXEC\r\n".to_vec()].concat();
    let (replies, _) = client.send(&many(MOST_COMMANDS));
    let answers = String::from_utf8(replies).unwrap();
    assert!(answers.ends_with(&format!("*{MOST_COMMANDS}\r\n{}", "+PONG\r\n".repeat(MOST_COMMANDS))));
    let (replies, _) = client.send(&many(MOST_COMMANDS + 1));
    let answers = String::from_utf8(replies).unwrap();
    assert!(answers.contains("-ERR a transaction has at most 4096 commands and 1048576 bytes"), "{answers}");
    assert!(answers.contains("-EXECABORT") && !answers.contains("PONG"), "{answers}");
    // The answers are sent in parts, and other connections have turns between them.
    let long = "x".repeat(MOST_BYTES / 8);
    let echo = command(&["ECHO", &*long]);
    client.input = [b"MULTI\r\n".to_vec(), echo.repeat(7), b"EXEC\r\n".to_vec()].concat();
    let (mut steps, mut bytes) = (0, 0);
    loop {
        let step = run(client.session.answer(&mut client.input));
        let part = client.session.replies().len();
        assert!(part <= FULL + long.len() + 64, "{part}");
        (steps, bytes) = (steps + 1, bytes + part);
        client.session.sent();
        if step == Step::Read {
            break;
        }
        assert_eq!(step, Step::GoOn);
    }
    assert!(steps >= 7 && bytes > 7 * long.len(), "{steps} {bytes}");
    let echo = command(&["ECHO", &*"x".repeat(MOST_BYTES / 8)]);
    let (replies, _) = client.send(&[b"MULTI\r\n".to_vec(), echo.repeat(9), b"EXEC\r\n".to_vec()].concat());
    assert!(replies.ends_with(b"-EXECABORT Transaction discarded because of previous errors.\r\n"));
}

/// Returns what a Redis server answers to lines.
fn of_redis(port: u16, lines: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(format!("{lines}\r\n").as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.replace("\r\n", "|")
}

/// Shortens errors to their code, because their texts differ.
fn shortened(answers: &str) -> String {
    let code = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    let lines =
        answers.split('|').map(|line| if line.starts_with('-') { code(line) } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("|")
}

// G141
#[test]
fn transactions_answer_as_redis_does() {
    let Some(redis) = Redis::start() else { return };
    let endpoint = endpoint();
    for lines in [
        "MULTI|PING|ECHO a|EXEC|PING",
        "MULTI|EXEC|EXEC|DISCARD|PING",
        "MULTI|PING|MULTI|PING|EXEC",
        "MULTI|NOSUCH|PING|EXEC|EXEC|PING",
        "MULTI|ECHO|EXEC|PING",
        "MULTI|PING|DISCARD|EXEC|MULTI|PING|EXEC",
        "MULTI|WATCH a|PING|EXEC",
        "MULTI|UNWATCH|PING|EXEC|UNWATCH",
        "MULTI|SELECT 99|PING|EXEC",
        "MULTI|PING|RESET|EXEC|PING",
        "MULTI|PING|QUIT|EXEC",
        "MULTI|MULTI x|PING|EXEC|PING",
        "MULTI|DISCARD x|PING|EXEC",
        "MULTI|AUTH x|CLIENT GETNAME|EXEC",
        "MULTI|CLIENT SETNAME me|CLIENT GETNAME|EXEC|CLIENT GETNAME",
        "HELLO 3|MULTI|CLIENT GETNAME|PING|EXEC",
        "DISCARD|EXEC|MULTI|DISCARD|DISCARD",
    ] {
        let lines = lines.replace('|', "\r\n");
        let (ours, theirs) = (endpoint.say(&lines), of_redis(redis.port(), &lines));
        let after_hello =
            |text: &str| text.split_once("modules|*0|").map_or(text, |(_, rest)| rest).to_owned();
        assert_eq!(shortened(&after_hello(&ours)), shortened(&after_hello(&theirs)), "{lines}");
    }
    assert!(endpoint.say("WATCH a").starts_with("-ERR there is nothing to watch"));
}
