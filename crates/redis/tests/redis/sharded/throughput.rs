//! Three servers decide more requests than one, if the server is the bottleneck.
//!
//! A proxy in front of each server forwards one call in each half millisecond. So a server serves 2,000 calls a second,
//! and neither the client nor the machine limits the throughput.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tollgate::Quota;
use tollgate_redis::{Client, DecidedBy, Limit};

use super::named;
use crate::{busy, one_thread};
use tollgate_testing::redis::Server;

/// The time that a proxy takes for each call.
const CALL: Duration = Duration::from_micros(500);

/// Starts a proxy and returns its address. It ends with the test program.
fn slow_proxy(server: u16) -> String {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("a bound listener has an address");
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.expect("a connection");
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).expect("the server listens");
            let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            std::thread::spawn(move || forward(BufReader::new(client), server));
        }
    });
    format!("redis://{address}/")
}

/// Forwards calls at the proxy's rate until the connection ends.
fn forward(mut calls: BufReader<TcpStream>, mut server: TcpStream) -> Option<()> {
    let mut free = Instant::now();
    loop {
        let call = read_call(&mut calls)?;
        let now = Instant::now();
        // A sleep that ends late by less than 20 ms does not lower the rate.
        free = (free + CALL).max(now - Duration::from_millis(20));
        std::thread::sleep(free.saturating_duration_since(now));
        server.write_all(&call).ok()?;
    }
}

/// Reads one call: an array of strings, each with its length.
pub(crate) fn read_call(calls: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut call = Vec::new();
    let number = |calls: &mut BufReader<TcpStream>, call: &mut Vec<u8>| {
        let begin = call.len();
        calls.read_until(b'\n', call).ok().filter(|read| *read > 0)?;
        std::str::from_utf8(&call[begin + 1..]).ok()?.trim_end().parse::<usize>().ok()
    };
    for _ in 0..number(calls, &mut call)? {
        let length = number(calls, &mut call)? + 2;
        let begin = call.len();
        call.resize(begin + length, 0);
        calls.read_exact(&mut call[begin..]).ok()?;
    }
    Some(call)
}

/// The calls per second that 96 callers make.
async fn rate(client: Client) -> f64 {
    let limiter = client.limiter("rate", Limit::gcra(Quota::per_hour(1_000_000)));
    let limiter = &limiter.timeout(Duration::from_secs(10)).atomic().unwrap();
    let began = Instant::now();
    let each = (0..96_u32).map(|caller| async move {
        let mut calls = 0_u32;
        while began.elapsed() < Duration::from_secs(3) {
            assert_eq!(limiter.check(&(caller * 1_000_000 + calls)).await.by(), DecidedBy::Server);
            calls += 1;
        }
        calls
    });
    f64::from(join_all(each).await.into_iter().sum::<u32>()) / began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "six seconds, and needs a third of a core; .ci/run runs it"]
fn three_servers_decide_more_than_one() {
    let _busy = busy();
    let Some(servers) = (0..3).map(|_| Server::start()).collect::<Option<Vec<_>>>() else { return };
    let client = |server: &Server| Client::open(&slow_proxy(server.port())).unwrap();
    let (clients, runtime) = (servers.iter().map(client).collect::<Vec<_>>(), one_thread());
    let one = runtime.block_on(rate(clients[0].clone()));
    let three = runtime.block_on(rate(Client::sharded(named(&clients)).unwrap()));
    println!("one server: {one:.0} calls a second, three servers: {three:.0}");
    assert!(three >= 2.5 * one, "{three} of three servers, {one} of one");
}
