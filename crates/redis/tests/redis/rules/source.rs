//! Rules that a real server holds: pushes, readers, and what readers do with bad or lost data.

#![allow(clippy::disallowed_methods, reason = "a real server takes real time")]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use tollgate_redis::RedisRules;
use tollgate_rules::{Follow, Followed, Format, Rules, Watcher};

use super::sha256;
use crate::one_rule::{quota, text};
use crate::{PATIENCE, in_threads, wait_until};
use tollgate_testing::redis::Server;

const KEY: &str = "tollgate:rules:{limits}";
const HISTORY: &str = "tollgate:rules:{limits}:history";

fn open(server: &Server) -> RedisRules {
    RedisRules::open(&server.url(), "limits").unwrap()
}

fn push(server: &Server, limit: u32) -> u64 {
    open(server).push(Format::Yaml, &text(limit), "test", None).unwrap()
}

/// A process that follows the rules, and the results that its callback received.
struct Reader {
    rules: Arc<Rules>,
    told: Receiver<Result<Followed, String>>,
    _watcher: Watcher,
}

impl Reader {
    fn try_start(follow: Follow<RedisRules>) -> Result<Self, String> {
        let (tell, told) = channel();
        let loaded = move |loaded: Result<Followed, tollgate_rules::RulesError>| {
            let _ = tell.send(loaded.map_err(|error| error.to_string()));
        };
        let (rules, watcher) = Rules::builder().follow(follow, loaded).map_err(|error| error.to_string())?;
        Ok(Self { rules, told, _watcher: watcher })
    }

    /// Starts a reader that polls ten times each second.
    fn start(source: RedisRules) -> Self {
        Self::try_start(Follow::new(source).every(Duration::from_millis(100))).unwrap()
    }

    #[track_caller]
    fn next(&self) -> Result<Followed, String> {
        self.told.recv_timeout(PATIENCE).expect("the callback is called")
    }

    /// Returns the number of the next version that is loaded.
    #[track_caller]
    fn version(&self) -> u64 {
        self.next().unwrap().version().as_number()
    }

    #[track_caller]
    fn fails(&self, parts: &[&str]) {
        let error = self.next().unwrap_err();
        assert_names(&error, parts);
        assert_eq!(self.rules.last_error().unwrap().to_string(), error);
        assert!(self.rules.reloads().source_fails);
    }

    /// Asserts that the callback is not called during several polls.
    #[track_caller]
    fn silent(&self) {
        let told = self.told.recv_timeout(Duration::from_millis(700));
        assert!(told.is_err(), "{told:?}");
    }
}

/// Asserts that a text has these parts.
#[track_caller]
fn assert_names(text: impl ToString, parts: &[&str]) {
    let text = text.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// A server that holds a first version, with the limit 5, and a reader that has loaded it.
fn followed() -> Option<(Server, Reader)> {
    let server = Server::start()?;
    push(&server, 5);
    let reader = Reader::start(open(&server));
    assert_eq!(reader.version(), 1);
    Some((server, reader))
}

fn subscribed(server: &Server) -> i64 {
    server.command::<(String, i64)>(&["PUBSUB", "NUMSUB", KEY]).1
}

fn store(server: &Server) -> String {
    server.command(&["HGET", KEY, "store"])
}

/// Writes a version by hand, without a message.
fn write(server: &Server, version: u64, store: &str, text: &str) {
    let (version, sha256) = (version.to_string(), sha256(text));
    let fields = ["HSET", KEY, "version", &version, "store", store, "sha256", &sha256, "format", "yaml"];
    let () = server.command(&[&fields[..], &["text", text]].concat());
}

// G92
#[test]
fn push_reaches_followers_by_message() {
    let Some(server) = Server::start() else { return };
    assert_eq!(push(&server, 5), 1);
    // Without messages, the next poll would come after an hour.
    let slow = || Follow::new(open(&server)).every(Duration::from_secs(3_600));
    let readers = [Reader::try_start(slow()).unwrap(), Reader::try_start(slow()).unwrap()];
    for reader in &readers {
        let first = reader.next().unwrap();
        assert_eq!((first.version().as_number(), quota(&reader.rules)), (1, 5));
        assert!(first.warnings().is_empty());
    }
    // A message before the subscription would be lost.
    wait_until("both readers subscribe", || subscribed(&server) == 2);
    assert_eq!(push(&server, 7), 2);
    for reader in &readers {
        let next = reader.next().unwrap();
        assert_eq!((next.version().as_number(), quota(&reader.rules)), (2, 7));
        assert!(next.report().to_string().contains("limit 5/d to 7/d"), "{next}");
        let counts = reader.rules.reloads();
        assert_eq!((counts.version, counts.source_fails), (2, false));
        assert!(counts.source_answer.is_some() && counts.version_time.is_some());
        assert!(reader.rules.last_error().is_none());
    }
}

// G92
#[test]
fn message_before_password_changes_nothing() {
    let Some((server, reader)) = followed() else { return };
    let () = server.command(&["PUBLISH", KEY, &text(9)]);
    let () = server.command(&["PUBLISH", KEY, "99"]);
    reader.silent();
    assert_eq!(quota(&reader.rules), 5);
}

// G92
#[test]
fn lost_message_is_replaced_by_poll() {
    let Some((server, reader)) = followed() else { return };
    let store = store(&server);
    write(&server, 2, &store, &text(8));
    assert_eq!((reader.version(), quota(&reader.rules)), (2, 8));
}

// G92
#[test]
fn reader_without_channel_permission_polls() {
    let Some(server) = Server::start() else { return };
    let open = |user: &str, rights: &[&str]| {
        let acl = ["ACL", "SETUSER", user, "on", ">sekret", "~tollgate:rules:*", "resetchannels"];
        let () = server.command(&[&acl[..], rights].concat());
        let url = server.url().replace("redis://", &format!("redis://{user}:sekret@"));
        RedisRules::open(&url, "limits").unwrap()
    };
    let reads = ["+hmget", "+hstrlen", "+ping", "+info", "+subscribe"];
    // The writer has no permission for the message. It writes the rules anyway.
    let writer = open("writer", &["+@all"]);
    assert_eq!(writer.push(Format::Yaml, &text(5), "test", Some(0)).unwrap(), 1);
    let reader = Reader::start(open("reader", &reads));
    assert_eq!(reader.version(), 1);
    assert_eq!(writer.push(Format::Yaml, &text(6), "test", Some(1)).unwrap(), 2);
    assert_eq!((reader.version(), quota(&reader.rules)), (2, 6));
    let error = open("reader", &reads).push(Format::Yaml, &text(7), "test", Some(2));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("NOPERM") && !error.contains("sekret"), "{error}");
}

// G94
#[test]
fn bad_push_writes_nothing() {
    let Some(server) = Server::start() else { return };
    let rules = open(&server);
    let long = format!("{}{}", text(5), " ".repeat(1 << 20));
    for (text, part) in [
        ("domain: [", "rules:2:1"),
        (&*text(5).replace("day", "fortnight"), "fortnight"),
        ("", "domain"),
        (&*long, "the maximum is 1048576"),
    ] {
        assert_names(rules.push(Format::Yaml, text, "test", None).unwrap_err(), &[part]);
    }
    assert_eq!(server.command::<Vec<String>>(&["KEYS", "*"]), Vec::<String>::new());
    // The format is part of the push.
    assert!(rules.push(Format::Toml, &text(5), "test", None).is_err());
    assert_eq!(rules.push(Format::Json, &text(5), "test", None).ok(), None, "JSON needs quotes");
}

// G94
#[test]
fn push_over_unseen_version_fails() {
    let Some(server) = Server::start() else { return };
    let rules = open(&server);
    let push = |limit, by, seen| rules.push(Format::Yaml, &text(limit), by, seen);
    assert!(rules.pull().unwrap().is_none());
    assert_eq!(push(1, "ann", Some(0)).unwrap(), 1);
    let already = "there are rules already: version 1, pushed by \"ann\"";
    assert_names(push(2, "bob", Some(0)).unwrap_err(), &[already]);
    assert_eq!(push(2, "bob", Some(1)).unwrap(), 2);
    assert_names(push(3, "ann", Some(1)).unwrap_err(), &["\"bob\" pushed version 2", "version 1"]);
    assert_eq!(rules.pull().unwrap().unwrap().text(), text(2));
    assert_eq!(push(3, "ann\n", None).unwrap(), 3);
    let pulled = rules.pull().unwrap().unwrap();
    assert_eq!((pulled.by(), pulled.format(), pulled.version().as_number()), ("ann ", Format::Yaml, 3));
    assert!(pulled.pushed_at().elapsed().unwrap() < Duration::from_secs(60));
    // The store stays the same as long as the data do.
    let stores = [1, 2, 3].map(|at| rules.pull_version(at).unwrap().unwrap().version().store().to_owned());
    assert!(stores.iter().all(|store| store.len() == 32 && *store == stores[0]), "{stores:?}");
    let () = server.command(&["DEL", KEY]);
    assert_names(push(4, "ann", Some(3)).unwrap_err(), &["version 3 is gone"]);
}

// G94
#[test]
fn racing_pushes_have_one_winner() {
    let Some(server) = Server::start() else { return };
    push(&server, 1);
    let won = in_threads(8, |at| {
        let text = text(100 + u32::try_from(at).unwrap());
        open(&server).push(Format::Yaml, &text, "test", Some(1)).is_ok()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    assert_eq!(open(&server).pull().unwrap().unwrap().version().as_number(), 2);
}

// G94
#[test]
fn history_keeps_five_versions() {
    let Some(server) = Server::start() else { return };
    for limit in 1..=8 {
        push(&server, limit);
    }
    let rules = open(&server);
    let kept: Vec<u64> = (0..=9).filter(|version| rules.pull_version(*version).unwrap().is_some()).collect();
    assert_eq!(kept, [3, 4, 5, 6, 7, 8]);
    assert_eq!(rules.pull_version(5).unwrap().unwrap().text(), text(5));
    assert_eq!(server.command::<i64>(&["LLEN", HISTORY]), 5);
    // A roll-back is a new version.
    let old = rules.pull_version(6).unwrap().unwrap();
    assert_eq!(rules.push(old.format(), old.text(), "test", Some(8)).unwrap(), 9);
}

// G91
#[test]
fn bad_text_on_server_is_refused_once() {
    let Some((server, reader)) = followed() else { return };
    let store = store(&server);

    write(&server, 2, &store, &text(6).replace("day", "fortnight"));
    reader.fails(&[KEY, "fortnight"]);
    let errors = reader.rules.reloads().errors;
    reader.silent();
    assert_eq!((reader.rules.reloads().errors, quota(&reader.rules)), (errors, 5), "it is not tried again");
    assert!(reader.rules.reloads().source_fails, "the metrics still show it");

    let () = server.command(&["HSET", KEY, "version", "3", "text", &text(6)]);
    reader.fails(&["the SHA-256 of version 3 does not match"]);
    let () = server.command(&["HSET", KEY, "version", "4", "text", &"x".repeat((1 << 20) + 1)]);
    reader.fails(&["version 4 has 1048577 bytes, and the maximum is 1048576"]);
    let () = server.command(&["HSET", KEY, "version", "many"]);
    reader.fails(&["the field `version` or `store` is invalid"]);
    let () = server.command(&["HSET", KEY, "version", "5", "format", "xml", "text", ""]);
    write(&server, 6, &store, &text(6).replace("domain: d", "domain: e"));
    // Version 5 may be skipped, because polls are apart.
    let errors = std::iter::repeat_with(|| reader.next().unwrap_err());
    let error = errors.into_iter().find(|error| !error.contains("version 5") && !error.contains("SHA-256"));
    assert_names(error.unwrap(), &["\"d\" is in use"]);
    assert_eq!((quota(&reader.rules), reader.rules.reloads().version), (5, 1));

    // A push replaces all of this.
    assert_eq!(push(&server, 7), 7);
    assert_eq!((reader.version(), quota(&reader.rules)), (7, 7));
    assert!(reader.rules.last_error().is_none() && !reader.rules.reloads().source_fails);
}

// G91
#[test]
fn lost_data_keep_rules() {
    let Some(mut server) = Server::start() else { return };
    push(&server, 5);
    push(&server, 6);
    let reader = Reader::start(open(&server));
    assert_eq!(reader.version(), 2);
    let () = server.command(&["FLUSHALL"]);
    reader.fails(&["there are no rules", KEY]);
    reader.silent();
    assert_eq!(quota(&reader.rules), 6);

    // Other data under the key.
    let () = server.command(&["SET", KEY, "1"]);
    reader.fails(&["this key holds data that tollgate did not write"]);
    let () = server.command(&["DEL", KEY]);
    reader.fails(&["there are no rules"]);

    // A push makes another store, whose version 1 is loaded with a warning.
    assert_eq!(push(&server, 8), 1);
    let next = reader.next().unwrap();
    assert_eq!((next.version().as_number(), quota(&reader.rules)), (1, 8));
    assert!(next.warnings()[0].contains("the data were lost or replaced"), "{next}");

    server.kill();
    reader.fails(&["the server cannot be reached"]);
    assert_eq!(quota(&reader.rules), 8);
    server.restart();
    reader.fails(&["there are no rules"]);
    push(&server, 9);
    assert_eq!((reader.version(), quota(&reader.rules)), (1, 9));
}

// G91
#[test]
fn bad_text_of_other_store_keeps_rules() {
    let Some((server, reader)) = followed() else { return };
    write(&server, 9, "other", "domain: [");
    reader.fails(&[KEY]);
    assert_eq!((quota(&reader.rules), reader.rules.reloads().version), (5, 1));
}

// G91
#[test]
fn lower_version_keeps_rules() {
    let Some(server) = Server::start() else { return };
    for limit in 1..=3 {
        push(&server, limit);
    }
    let reader = Reader::start(open(&server));
    assert_eq!(reader.version(), 3);
    let store = store(&server);
    // A backup is restored.
    write(&server, 1, &store, &text(1));
    reader.fails(&["version 1 is older than version 3", "delete the data"]);
    reader.silent();
    // The next pushes get numbers that readers have seen with other texts.
    assert_eq!(push(&server, 20), 2);
    reader.fails(&["version 2 is older than version 3"]);
    assert_eq!(push(&server, 30), 3);
    reader.fails(&["version 3 has another text than the version 3"]);
    assert_eq!(quota(&reader.rules), 3);
    assert_eq!(push(&server, 40), 4);
    assert_eq!((reader.version(), quota(&reader.rules)), (4, 40));
}

fn with_copy(url: &str, copy: &Path) -> Follow<RedisRules> {
    let source = RedisRules::open(url, "limits").unwrap();
    Follow::new(source).copy(copy).every(Duration::from_millis(100))
}

// G93
#[test]
fn copy_replaces_absent_server_at_start() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("limits.copy");
    push(&server, 5);
    let reader = Reader::try_start(with_copy(&server.url(), &copy)).unwrap();
    assert_eq!(reader.version(), 1);
    push(&server, 6);
    assert_eq!(reader.version(), 2);
    // A text that is refused does not replace the copy.
    let before = std::fs::read_to_string(&copy).unwrap();
    assert!(before.contains("\nversion: 2\n") && before.ends_with(&text(6)), "{before}");
    let store = store(&server);
    write(&server, 3, &store, "domain: [");
    reader.fails(&[KEY]);
    assert_eq!(std::fs::read_to_string(&copy).unwrap(), before);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    drop(reader);

    // The server has a text that is refused.
    let reader = Reader::try_start(with_copy(&server.url(), &copy)).unwrap();
    let first = reader.next().unwrap();
    assert_eq!((first.version().as_number(), quota(&reader.rules)), (2, 6));
    assert!(first.warnings()[0].contains("limits.copy"), "{first}");
    reader.silent();
    drop(reader);

    // The server is away, and comes back without data, and then with data.
    server.kill();
    let reader = Reader::try_start(with_copy(&server.url(), &copy)).unwrap();
    let first = reader.next().unwrap();
    assert_names(&first.warnings()[0], &[" s old, because", "the server cannot be reached"]);
    let counts = reader.rules.reloads();
    assert_eq!((counts.version, counts.source_fails, counts.source_answer), (2, true, None));
    // The warning has reported this error.
    reader.silent();
    server.restart();
    reader.fails(&["there are no rules"]);
    push(&server, 7);
    assert_eq!((reader.version(), quota(&reader.rules)), (1, 7));
    assert!(std::fs::read_to_string(&copy).unwrap().ends_with(&text(7)));
}

// G93
#[test]
fn start_without_server_or_copy_fails() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("limits.copy");
    let url = "redis://user:sekret@127.0.0.1:1/";
    let began = Instant::now();
    let error = Reader::try_start(Follow::new(RedisRules::open(url, "limits").unwrap())).err().unwrap();
    assert_names(&error, &["127.0.0.1:1", KEY, "the server cannot be reached", "Follow::copy"]);
    assert!(!error.contains("sekret") && !error.contains("user"), "{error}");
    let error = Reader::try_start(with_copy(url, &copy)).err().unwrap();
    assert!(error.contains("limits.copy does not exist") && !error.contains("sekret"), "{error}");
    assert!(began.elapsed() < PATIENCE);

    let Some(server) = Server::start() else { return };
    let none = "there are no rules; write them with `tollgate rules push`";
    assert_names(Reader::try_start(with_copy(&server.url(), &copy)).err().unwrap(), &[none]);
}

// G93
#[test]
fn unusable_copies_are_refused() {
    let Some(mut server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("limits.copy");
    push(&server, 5);
    drop(Reader::try_start(with_copy(&server.url(), &copy)).unwrap());
    server.kill();
    let good = std::fs::read_to_string(&copy).unwrap();
    let try_start = || Reader::try_start(with_copy(&server.url(), &copy));
    assert!(try_start().is_ok());
    for (from, to, part) in [
        ("requests_per_unit: 5", "requests_per_unit: 6", "the SHA-256 does not match"),
        ("\nformat: yaml", "\nformat: xml", "its format is invalid"),
        ("tollgate rules copy 2", "something else", "is missing"),
        ("{limits}", "{others}", "the SHA-256 does not match"),
        ("\nversion: 1", "\nversion: -1", "its version is invalid"),
        ("\nversion: 1", "\nversion: 2", "the SHA-256 does not match"),
        ("\ntime: 1", "\ntime: 0", "the SHA-256 does not match"),
        ("\ntime: 1", "\ntime: x1", "its time is invalid"),
        ("} ] }", "", "the SHA-256 does not match"),
    ] {
        assert!(good.contains(from), "{from:?} is not in {good:?}");
        std::fs::write(&copy, good.replacen(from, to, 1)).unwrap();
        assert_names(try_start().err().unwrap(), &[part, "limits.copy"]);
    }
    for end in (0..good.len()).step_by(11) {
        std::fs::write(&copy, &good[..end]).unwrap();
        assert!(try_start().is_err(), "{end}");
    }
    std::fs::write(&copy, &good).unwrap();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert_names(try_start().err().unwrap(), &["other users can write it: use `chmod 600`"]);
    }
}

// G93
#[test]
fn unwritable_copy_is_a_warning() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    push(&server, 5);
    let reader = Reader::try_start(with_copy(&server.url(), &folder.path().join("no/limits.copy"))).unwrap();
    let first = reader.next().unwrap();
    assert!(first.warnings()[0].contains("no/limits.copy cannot be written"), "{first}");
    assert_eq!(quota(&reader.rules), 5);
}

// G94
#[test]
fn invalid_names_are_refused() {
    for name in ["", "a b", "{a}", "ü", "a:history", &"x".repeat(101)] {
        assert_names(RedisRules::open("redis://127.0.0.1/", name).unwrap_err(), &["cannot be used"]);
    }
    let error = RedisRules::open("http://:sekret@host/", "limits").unwrap_err().to_string();
    assert!(error.contains("invalid server address") && !error.contains("sekret"), "{error}");
}

/// A reader that is dropped ends its threads and its subscription.
// G92
#[test]
fn dropped_reader_unsubscribes() {
    let Some(server) = Server::start() else { return };
    push(&server, 5);
    let reader = Reader::start(open(&server));
    wait_until("the reader subscribes", || subscribed(&server) > 0);
    drop(reader);
    wait_until("the subscription ends", || subscribed(&server) == 0);
}
