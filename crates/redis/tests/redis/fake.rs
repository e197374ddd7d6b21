//! Servers that send the replies of a test, when the test says.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use tokio::sync::Notify;

/// A server that sends one reply to commands of one name, and `OK` to all others. Each connection has its answers in the order of its
/// commands.
#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) port: u16,
    pub(crate) reply: Arc<Mutex<String>>,
    /// The number of connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
    /// The number of commands of that name so far.
    pub(crate) named: Arc<AtomicUsize>,
    pending: Arc<Mutex<Pending>>,
}

/// The commands without an answer.
#[derive(Default)]
struct Pending {
    /// How many commands of that name are answered, those that are still to come included.
    permits: usize,
    /// For each connection, whether its commands have that name.
    commands: Vec<(TcpStream, VecDeque<bool>)>,
}

impl Fake {
    /// Starts a server that answers at once. It ends with the test program.
    pub(crate) fn start(name: &'static str, reply: &str) -> Self {
        let fake = Self::start_slow(name, reply, Arc::default());
        fake.answer(usize::MAX);
        fake
    }

    /// Starts a server that answers the commands of that name when the test says: see [`answer`](Self::answer). It notifies `arrived`
    /// of each command.
    pub(crate) fn start_slow(name: &'static str, reply: &str, arrived: Arc<Notify>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let reply = Arc::new(Mutex::new(reply.to_owned()));
        let (connections, named, pending) = (Arc::default(), Arc::default(), Arc::default());
        let fake = Self { port, reply, connections, named, pending };
        let server = fake.clone();
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let number = server.connections.fetch_add(1, Ordering::SeqCst);
                // A client acknowledges a small answer late, and the next one would wait for that.
                connection.set_nodelay(true).unwrap();
                let back = connection.try_clone().unwrap();
                server.pending.lock().unwrap().commands.push((back, VecDeque::new()));
                let (server, arrived) = (server.clone(), Arc::clone(&arrived));
                thread::spawn(move || {
                    let mut calls = BufReader::new(connection);
                    while let Some(call) = read_call(&mut calls) {
                        let is_named = String::from_utf8_lossy(&call).contains(name);
                        server.named.fetch_add(is_named.into(), Ordering::SeqCst);
                        server.pending.lock().unwrap().commands[number].1.push_back(is_named);
                        server.answer(0);
                        arrived.notify_one();
                    }
                });
            }
        });
        fake
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Answers this many commands of that name, now or when they arrive. `usize::MAX` answers all.
    pub(crate) fn answer(&self, more: usize) {
        let (reply, mut pending) = (self.reply.lock().unwrap().clone(), self.pending.lock().unwrap());
        let Pending { permits, commands } = &mut *pending;
        *permits = permits.saturating_add(more);
        for (back, commands) in commands {
            while let Some(&is_named) = commands.front().filter(|&&is_named| !is_named || *permits > 0) {
                commands.pop_front();
                // If all are answered, they are not counted.
                if is_named && *permits < usize::MAX {
                    *permits -= 1;
                }
                let _ = back.write_all(if is_named { reply.as_bytes() } else { b"+OK\r\n" });
            }
        }
    }

    /// Answers no more commands of that name, until the next [`answer`](Self::answer).
    pub(crate) fn hold(&self) {
        self.pending.lock().unwrap().permits = 0;
    }

    /// Returns how many commands of that name wait for an answer.
    pub(crate) fn waiting(&self) -> usize {
        let pending = self.pending.lock().unwrap();
        pending.commands.iter().flat_map(|(_, commands)| commands).filter(|is_named| **is_named).count()
    }
}

/// Reads one call: an array of strings, each with its length.
fn read_call(calls: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
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
