//! Users and passwords that change while limiters are in use, and connections that are replaced by age.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::modes::AnyMode;
use crate::operations::newer;
use crate::{absent, strict, until};
use futures_util::stream::{self, BoxStream, StreamExt as _};
use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use redis::{BasicAuth, ErrorKind, RedisResult, StreamingCredentialsProvider};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tollgate::Quota;
use tollgate_redis::{AtomicLimiter, Client, CredentialsFile, DecidedBy, Limit};
use tollgate_testing::redis::{Cluster, Server};

/// The rights of a user of limiters, and the two with which the tests look at connections.
const RIGHTS: [&str; 8] = ["on", "resetpass", "~*", "&*", "+@all", "-@dangerous", "+info", "+cluster|slots"];

/// A file of credentials, which is replaced in one step.
struct Secret(tempfile::TempDir);

impl Secret {
    fn new(text: &str) -> Self {
        let secret = Self(tempfile::tempdir().unwrap());
        secret.set(text);
        secret
    }

    fn set(&self, text: &str) {
        let next = self.0.path().join("next");
        fs::write(&next, text).unwrap();
        fs::rename(next, self.0.path().join("secret")).unwrap();
    }

    fn file(&self) -> CredentialsFile {
        CredentialsFile::new(self.0.path().join("secret")).every(Duration::from_millis(20))
    }
}

fn set_user(server: &Server, user: &str, words: &[&str]) {
    let () = server.command(&[&["ACL", "SETUSER", user], words].concat());
}

/// Starts a server that asks users for a password, except the tests' own user.
fn guarded() -> Option<Server> {
    let server = Server::start()?;
    let () = newer(&server, &["ACL", "SETUSER", "one", "resetchannels"])?;
    for user in ["one", "two"] {
        set_user(&server, user, &[&RIGHTS[..], &[&format!(">{user}-secret")]].concat());
    }
    // The limiters' commands are refused for the default user.
    set_user(&server, "default", &["-evalsha", "-eval", "-hmget"]);
    Some(server)
}

fn limiter(client: &Client) -> AtomicLimiter {
    strict(client.limiter("api", Limit::gcra(Quota::per_day(10_000_000))), &[]).atomic().unwrap()
}

/// Checks all the time, until it is stopped.
struct Load {
    asked: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let (asked, mut tasks) = (Arc::<AtomicU64>::default(), JoinSet::new());
        for task in 0..4 {
            let (limiter, asked) = (limiter(client), Arc::clone(&asked));
            tasks.spawn(async move {
                loop {
                    let turn = asked.fetch_add(1, Ordering::SeqCst);
                    let answer = limiter.check(&format!("{task}-{}", turn % 40)).await;
                    assert!(answer.by() == DecidedBy::Server && answer.is_allowed(), "{turn}: {answer:?}");
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Self { tasks, asked }
    }

    /// Waits for a hundred more checks of what was changed.
    async fn goes_on(&self) {
        let before = self.asked.load(Ordering::SeqCst);
        until("the load asks", async || self.asked.load(Ordering::SeqCst) >= before + 100).await;
    }

    /// Asserts that the server decided and admitted each check.
    async fn stop(mut self) {
        self.goes_on().await;
        assert!(self.tasks.try_join_next().is_none(), "a check failed");
        self.tasks.shutdown().await;
    }
}

/// Checks until the server decides: an attempt to connect has one second.
async fn connect(client: &Client) {
    let limiter = limiter(client);
    until("the server decides", async || limiter.check("a").await.by() == DecidedBy::Server).await;
}

/// The ids of the connections of a user that have sent calls.
fn connections(server: &Server, user: &str) -> Vec<String> {
    connections_of(server, &["CLIENT", "LIST"], &format!(" user={user} "))
}

/// The ids of the connections in a list whose lines have this part.
fn connections_of(server: &Server, list: &[&str], part: &str) -> Vec<String> {
    let list: String = server.command(list);
    let found = list.lines().filter(|line| line.contains(part));
    found.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// The number of times that clients have sent credentials after they connected.
fn auths(server: &Server) -> Option<u64> {
    let stats: String = server.command(&["INFO", "commandstats"]);
    let auth = stats.lines().find_map(|line| line.strip_prefix("cmdstat_auth:calls="))?;
    auth.split(',').next()?.parse().ok()
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_fails_no_request() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret\n");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    connect(&client).await;
    let before = connections(&server, "one");
    let load = Load::start(&client);
    load.goes_on().await;
    // Another password of the same user.
    set_user(&server, "one", &[">next-secret"]);
    let calls = auths(&server);
    secret.set("one\r\nnext-secret\r\n");
    until("the new password is sent", async || auths(&server) > calls).await;
    set_user(&server, "one", &["<one-secret"]);
    load.goes_on().await;
    // Another user, on the same connection.
    secret.set("two\ntwo-secret");
    until("the connection becomes the other user's", async || connections(&server, "two") == before).await;
    set_user(&server, "one", &["off"]);
    load.stop().await;
    assert_eq!(client.refused_credentials(), 0);
    // A new connection uses the present credentials.
    let () = server.command(&["CLIENT", "KILL", "USER", "two"]);
    connect(&client).await;
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_credentials_leave_the_connection_in_use() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret");
    let (told, began) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let heard = Arc::clone(&told);
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    let client = client.on_refused_credentials(move |error| heard.lock().unwrap().push(error.to_string()));
    connect(&client).await;
    let before = connections(&server, "one");
    let load = Load::start(&client);
    secret.set("two\nfuture-secret");
    until("the refusal is counted", async || client.refused_credentials() > 1).await;
    assert_eq!(connections(&server, "one"), before);
    // An empty or absent file changes nothing either.
    let counted = client.refused_credentials();
    secret.set("");
    until("the empty file is counted", async || client.refused_credentials() > counted).await;
    let counted = client.refused_credentials();
    fs::remove_file(secret.0.path().join("secret")).unwrap();
    until("the absent file is counted", async || client.refused_credentials() > counted).await;
    secret.set("two\nfuture-secret");
    assert_eq!(connections(&server, "one"), before);
    // The server learns the password later than the file.
    set_user(&server, "two", &[">future-secret"]);
    until("AUTH is sent again", async || connections(&server, "two") == before).await;
    load.stop().await;
    let told = told.lock().unwrap();
    assert!(told[0].contains("WRONGPASS") || told[0].contains("refused"), "{told:?}");
    assert!(!told.iter().any(|report| report.contains("secret")), "{told:?}");
    assert!(told.len() as u64 <= 1 + began.elapsed().as_secs() / 10, "one report in ten seconds: {told:?}");
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_at_first_are_an_error() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\nwrong-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    let limiter = limiter(&client);
    let answer = limiter.check("a").await;
    assert_eq!(answer.by(), DecidedBy::Closed);
    let text = format!("{answer:?} {limiter:?} {client:?}");
    assert!(!text.contains("secret"), "{text}");
    // An attempt that takes more than a second ends before the server has refused it.
    until("the refusal is counted", async || {
        assert_eq!(limiter.check("a").await.by(), DecidedBy::Closed);
        client.refused_credentials() > 0
    })
    .await;
    secret.set("one\none-secret");
    connect(&client).await;
}

/// A provider without credentials, which answers at once and counts the attempts to connect.
#[derive(Clone, Default)]
struct Nothing(Arc<AtomicU64>);

impl StreamingCredentialsProvider for Nothing {
    fn subscribe(&self) -> BoxStream<'static, RedisResult<BasicAuth>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        stream::iter([Err((ErrorKind::AuthenticationFailed, "none").into())]).boxed()
    }
}

/// Cause: an attempt without credentials was counted twice, as missing and as refused by the server. Later, a call made a
/// second attempt if it ran again only after the pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempt_without_credentials_is_counted_once() {
    let provider = Nothing::default();
    let client = absent().credentials(provider.clone());
    assert_eq!(limiter(&client).check("a").await.by(), DecidedBy::Closed);
    assert_eq!((provider.0.load(Ordering::SeqCst), client.refused_credentials()), (1, 1));
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_reaches_its_age_is_replaced_without_a_failure() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file().user("one"));
    let client = client.max_connection_age(Duration::from_millis(500));
    let load = Load::start(&client);
    let mut seen = std::collections::BTreeSet::new();
    until("the connection is replaced twice", async || {
        seen.extend(connections(&server, "one"));
        seen.len() >= 3
    })
    .await;
    load.stop().await;
    until("the old connections are closed", async || connections(&server, "one").len() == 1).await;
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_reaches_every_node_of_a_cluster() {
    let Some(cluster) = Cluster::start() else { return };
    let Some(()) = newer(&cluster.nodes[0], &["ACL", "SETUSER", "one", "resetchannels"]) else { return };
    for node in &cluster.nodes {
        set_user(node, "one", &[&RIGHTS[..], &[">one-secret"]].concat());
        set_user(node, "two", &[&RIGHTS[..], &[">two-secret"]].concat());
        set_user(node, "default", &["-evalsha", "-eval"]);
    }
    let secret = Secret::new("one\none-secret");
    // The other nodes are found by the first one.
    let client = Client::cluster([&*cluster.nodes[0].url()]).unwrap().credentials(secret.file());
    let load = Load::start(&client);
    let all_called_by = |user| cluster.nodes.iter().all(|node| !connections(node, user).is_empty());
    until("all nodes are called", async || all_called_by("one")).await;
    secret.set("two\ntwo-secret");
    until("all nodes are called as the other user", async || all_called_by("two")).await;
    let none = |node| connections(node, "one").is_empty();
    until("no node is called as the first user", async || cluster.nodes.iter().all(none)).await;
    load.stop().await;
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_uses_the_provider() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    connect(&client).await;
    let limit = Limit::fixed_window(Quota::per_day(1_000));
    let builder = |name: &str| strict(client.limiter(name, limit), &[]);
    let regional = builder("regions").write_back().regions("eu", [("us", client.clone())]);
    let regional = AnyMode::WriteBack(regional.build().unwrap());
    for mode in AnyMode::all(builder).into_iter().chain([regional]) {
        assert!(mode.check("a").await.is_allowed());
        until("the server answers", async || mode.health().answered > 0).await;
        assert_eq!(mode.health().failed(), 0, "{}: {:?}", mode.name(), mode.health());
    }
    let peer = client.blocking();
    let decided = tokio::task::spawn_blocking(move || {
        strict(peer.limiter("threads", limit), &[]).atomic().unwrap().check("a").by()
    });
    assert_eq!(decided.await.unwrap(), DecidedBy::Server);
    assert_eq!(client.refused_credentials(), 0);
}

// G144
#[cfg(feature = "watch")]
#[test]
fn rules_source_uses_the_provider() {
    use crate::{PATIENCE, wait_until};
    use tollgate_redis::RedisRules;
    use tollgate_rules::{Follow, Format, Rules};

    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    let open = || RedisRules::of_client(&client, "limits").unwrap();
    let push = |limit| open().push(Format::Yaml, &crate::one_rule::text(limit), "test", None).unwrap();
    push(1);
    let (sender, told) = std::sync::mpsc::channel();
    let follow = Follow::new(open()).every(Duration::from_secs(600));
    let (_rules, _watcher) = Rules::builder()
        .follow(follow, move |loaded| sender.send(loaded.unwrap().version().as_number()).unwrap())
        .unwrap();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(1));
    // An error of the provider ends no subscription.
    let subscribed = || connections_of(&server, &["CLIENT", "LIST", "TYPE", "pubsub"], "");
    wait_until("the reader subscribes", || !subscribed().is_empty());
    let before = subscribed();
    for text in ["", "three\nlines\n.", ""] {
        let counted = client.refused_credentials();
        secret.set(text);
        wait_until("the mistake is counted", || client.refused_credentials() > counted);
    }
    assert_eq!(subscribed(), before);
    secret.set("two\ntwo-secret");
    wait_until("the reader subscribes again", || !subscribed().is_empty() && subscribed() != before);
    set_user(&server, "one", &["off"]);
    push(2);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(2), "the message of the push arrives");
}

#[test]
fn files_with_mistakes_are_named() {
    let secret = Secret::new("\n");
    let long = "x".repeat(65 * 1_024);
    for (text, user, part) in [
        ("\n", "", "is empty"),
        ("a\nb\nc", "", "more than two lines"),
        ("a\nb", "c", "name one"),
        (&*long, "", "larger than 64 KiB"),
    ] {
        secret.set(text);
        let file = if user.is_empty() { secret.file() } else { secret.file().user(user) };
        let error = file.read().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    fs::write(secret.0.path().join("secret"), [0xff, 0xfe]).unwrap();
    assert!(secret.file().read().unwrap_err().to_string().contains("UTF-8"));
    let absent = CredentialsFile::new(secret.0.path().join("absent"));
    assert!(absent.read().unwrap_err().to_string().contains("does not exist"));
    for (text, user) in [("p w: \n", ""), ("u\np w: \r\n\n", "u")] {
        secret.set(text);
        let auth = secret.file().read().unwrap();
        assert_eq!((auth.username(), auth.password()), (user, "p w: "));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No secret is in the output of `Debug` or in an error, whether it is in an address or in a file.
    // G144
    #[test]
    fn secrets_are_in_no_output(secret in "[a-zA-Z0-9]{12,40}") {
        let stored = Secret::new(&format!("limits\n{secret}"));
        let file = stored.file();
        let urls = [
            format!("redis://u:{secret}@127.0.0.1:1/"),
            format!("redis-sentinel://u:{secret}@127.0.0.1:1,127.0.0.1:2/name?auth={secret}"),
        ];
        let mut texts = vec![format!("{file:?} {:?}", file.read().unwrap())];
        for url in &urls {
            let client = Client::open(url).unwrap().credentials(file.clone());
            texts.push(format!("{client:?} {:?}", client.blocking()));
            let bad = [url.replace("127.0.0.1:1", "127.0.0.1:x"), url.replace("/name", ""), format!("{url}%")];
            for bad in bad {
                if let Err(error) = Client::open(&bad) {
                    texts.push(format!("{error} {error:?}"));
                }
            }
        }
        for text in texts {
            prop_assert!(!text.contains(&secret), "{}", text);
        }
    }
}
