//! Fuzzes the endpoint for Redis clients from bytes to bytes. No bytes cause a panic, every answer is one of the protocol, and the answers
//! do not depend on where reads split the stream.

#![no_main]

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use libfuzzer_sys::fuzz_target;
use tollgate::{Capacity, ManualClock, Timestamp};
use tollgate_resp::internals::{Limits, Quotas, RespShared, Session, Step};
use tollgate_rules::{Config, Rules};
use tollgate_serve::answer::{Answerer, Settings};

const RULES: &str = "
domain: d
tollgate: {}
descriptors:
  - { key: k, rate_limit: { name: n, unit: minute, requests_per_unit: 2, algorithm: gcra } }
  - { key: f, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: u, rate_limit: { unlimited: true } }
";

/// Sends the parts of a stream on a new connection to a new server. Returns the answers, and whether the connection goes on.
fn told<'a>(parts: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, bool) {
    let clock = ManualClock::new(Timestamp::from_secs(1_000_000));
    let config = Config::from_yaml("rules", RULES).unwrap_or_else(|error| panic!("{error}"));
    let rules =
        Rules::builder().clock(clock.clone()).load([config]).unwrap_or_else(|error| panic!("{error}"));
    let shared = RespShared::new(
        Arc::new(Answerer::new(Arc::new(rules), Settings::default())),
        Quotas::new(clock, 4, Capacity::memory(64 << 10)).into(),
        None,
        Limits { args: 20, bytes: 2_000 },
        Duration::from_secs(1),
        Arc::default(),
    );
    let mut session = Session::new(Arc::new(shared), "127.0.0.1:1".to_owned());
    let (mut input, mut replies) = (Vec::new(), Vec::new());
    for part in parts {
        input.extend_from_slice(part);
        loop {
            let step = session.answer(&mut input).now_or_never().expect("rules of this process do not wait");
            replies.extend_from_slice(session.replies());
            session.sent();
            match step {
                Step::GoOn => {}
                Step::Read => break,
                Step::End => return (replies, false),
            }
        }
    }
    (replies, true)
}

/// Reads an answer, and returns what follows it.
fn after(answer: &[u8]) -> Option<&[u8]> {
    let end = answer.windows(2).position(|end| end == b"\r\n")?;
    let (line, mut rest) = (&answer[..end], &answer[end + 2..]);
    let number = || str::from_utf8(&line[1..]).ok()?.parse::<i64>().ok();
    match line.first()? {
        b'+' | b'-' | b'_' => {}
        b',' => _ = str::from_utf8(&line[1..]).ok()?.parse::<f64>().ok()?,
        b':' => _ = number()?,
        b'$' => match usize::try_from(number()?) {
            Ok(length) => rest = rest.get(length..)?.strip_prefix(b"\r\n")?,
            Err(_) => assert_eq!(line, b"$-1"),
        },
        kind @ (b'*' | b'%') => {
            for _ in 0..number()? * if *kind == b'%' { 2 } else { 1 } {
                rest = after(rest)?;
            }
        }
        _ => return None,
    }
    Some(rest)
}

// G141
fuzz_target!(|input: &[u8]| {
    let Some((&split, stream)) = input.split_first() else { return };
    let whole = told([stream].into_iter());
    let parts = told(stream.chunks(usize::from(split % 32) + 1));
    assert_eq!(whole, parts);
    let mut rest = &whole.0[..];
    while !rest.is_empty() {
        rest = after(rest).unwrap_or_else(|| panic!("no answer: {:?}", rest.escape_ascii().to_string()));
    }
});
