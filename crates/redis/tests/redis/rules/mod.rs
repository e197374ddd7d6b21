//! Rules whose limits several processes share. In these tests each `Rules` stands for one process, and all use one
//! server.

mod alike;
mod blocks;
mod count_denials;
mod failures;
mod long_keys;
mod modes;
mod operate;
#[cfg(feature = "watch")]
mod source;
mod together;
mod undone;

use std::cell::Cell;
use std::future::Future;
use std::sync::Arc;

use tollgate::{Clock, ManualClock, Timestamp};
use tollgate_redis::{Blocking, Client, DecidedBy, InProcess};
use tollgate_rules::{Answer, Config, Descriptor, Rules, RulesError, SharedStore};

use crate::one_thread;

/// A client of any kind.
type Server = Arc<dyn SharedStore>;

/// A time in the year 2023. `clock` starts half an hour after its hour began, so that no window ends soon.
const START: u64 = 1_700_000_000;

fn clock() -> ManualClock {
    ManualClock::new(Timestamp::from_secs(START - START % 3_600 + 1_800))
}

fn config(text: &str) -> Config {
    Config::from_yaml("test.yaml", text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Loads the rules of one process.
#[track_caller]
fn process(server: impl SharedStore, clock: &ManualClock, text: &str) -> Rules<ManualClock> {
    load(server, clock, text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn load(server: impl SharedStore, clock: &ManualClock, text: &str) -> Result<Rules<ManualClock>, RulesError> {
    Rules::builder().clock(clock.clone()).shared(server).load([config(text)])
}

fn in_process(clock: &ManualClock) -> (InProcess, Blocking<InProcess>) {
    let server = InProcess::new(clock.clone());
    (server.clone(), server.blocking())
}

fn run<R>(future: impl Future<Output = R>) -> R {
    one_thread().block_on(future)
}

/// Runs a test on the model for async code and for threads, and on a real server for both. The test receives a name, and makes
/// empty servers.
fn on_each_server(test: impl Fn(&str, &dyn Fn() -> Server)) {
    test("in process", &|| Arc::new(InProcess::default()));
    test("in process, blocking", &|| Arc::new(InProcess::default().blocking()));
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    // Each has a database of its own: a process of an earlier one may still post what it counted.
    let databases = Cell::new(0);
    let empty = || {
        let database = databases.replace(databases.get() + 1);
        Client::open(&format!("{}{database}", server.url())).unwrap()
    };
    test("a server", &|| Arc::new(empty()));
    test("a server, blocking", &|| Arc::new(empty().blocking()));
}

/// One descriptor for each entry.
fn each<'e>(entries: &'e [(&'e str, &'e str)]) -> Vec<Descriptor<'e>> {
    entries.iter().map(|entry| Descriptor::new(std::slice::from_ref(entry))).collect()
}

/// Checks one request with one descriptor for each entry.
async fn ask<C: Clock>(rules: &Rules<C>, entries: &[(&str, &str)]) -> Answer {
    ask_n(rules, entries, 1).await
}

async fn ask_n<C: Clock>(rules: &Rules<C>, entries: &[(&str, &str)], hits: u64) -> Answer {
    rules.check_n_async("d", &each(entries), hits).await
}

fn ask_now<C: Clock>(rules: &Rules<C>, entries: &[(&str, &str)]) -> Answer {
    rules.check("d", &each(entries))
}

/// Returns what decided a request of one rule.
fn decided_by(answer: &Answer) -> Option<DecidedBy> {
    answer.limits().next().unwrap().decided_by()
}

/// Returns how many of `of` requests are admitted.
async fn admitted<C: Clock>(rules: &Rules<C>, entries: &[(&str, &str)], of: u32) -> u32 {
    let mut admitted = 0;
    for _ in 0..of {
        admitted += u32::from(ask(rules, entries).await.is_allowed());
    }
    admitted
}

/// Returns the SHA-256 of a text, by another program.
fn sha256(text: &str) -> String {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let mut child = Command::new("sha256sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Returns the YAML text of one descriptor with this key and limit, for [`file`].
fn rule(key: &str, limit: &str) -> String {
    format!("  - {{ key: {key}, rate_limit: {{ unit: hour, {limit} }} }}\n")
}

fn file(settings: &str, rules: &[String]) -> String {
    format!("domain: d\ntollgate: {{ {settings} }}\ndescriptors:\n{}", rules.concat())
}
