//! Users and passwords that change while limiters are in use, and connections that are replaced by age.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::operations::newer;
use crate::until;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use proptest::prelude::{ProptestConfig, prop_assert, proptest};
use redis::{BasicAuth, ErrorKind, RedisResult, StreamingCredentialsProvider};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tollgate::Quota;
use tollgate_redis::{AtomicLimiter, Client, CredentialsFile, DecidedBy, Limit, OnFailure};
use tollgate_testing::redis::{Cluster, Server};

const MINUTE: Duration = Duration::from_secs(60);
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

fn limiter(client: &Client, name: &str) -> AtomicLimiter {
    let builder = client.limiter(name, Limit::gcra(Quota::per_day(10_000_000)));
    builder.timeout(MINUTE).on_failure(OnFailure::Closed).atomic().unwrap()
}

/// Checks all the time, until it is stopped.
struct Load {
    done: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<u64>>,
}

impl Load {
    fn start(client: &Client, name: &str) -> Self {
        let (done, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = (0..4).map(|task| {
            let (limiter, done, asked) = (limiter(client, name), Arc::clone(&done), Arc::clone(&asked));
            tokio::spawn(async move {
                let mut others = 0;
                while !done.load(Ordering::SeqCst) {
                    let turn = asked.fetch_add(1, Ordering::SeqCst);
                    let answer = limiter.check(&format!("{task}-{}", turn % 40)).await;
                    others += u64::from(answer.by() != DecidedBy::Server || answer.is_denied());
                    sleep(Duration::from_millis(1)).await;
                }
                others
            })
        });
        Self { tasks: tasks.collect(), done, asked }
    }

    /// Returns the checks, and those that the server did not decide or that were denied.
    async fn stop(self) -> (u64, u64) {
        self.done.store(true, Ordering::SeqCst);
        let mut others = 0;
        for task in self.tasks {
            others += task.await.unwrap();
        }
        (self.asked.load(Ordering::SeqCst), others)
    }
}

/// Checks until the server decides: an attempt to connect has one second.
async fn connect(client: &Client) {
    let limiter = limiter(client, "api");
    until("the server decides", async || limiter.check("a").await.by() == DecidedBy::Server).await;
}

/// The ids of the connections of a user that have sent calls.
fn connections(server: &Server, user: &str) -> Vec<String> {
    let list: String = server.command(&["CLIENT", "LIST"]);
    let of_user = list.lines().filter(|line| line.contains(&format!(" user={user} ")));
    of_user.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_fails_no_request() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret\n");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    connect(&client).await;
    let before = connections(&server, "one");
    let load = Load::start(&client, "api");
    sleep(Duration::from_millis(100)).await;
    // Another password of the same user.
    set_user(&server, "one", &[">next-secret"]);
    secret.set("one\r\nnext-secret\r\n");
    sleep(Duration::from_millis(200)).await;
    set_user(&server, "one", &["<one-secret"]);
    sleep(Duration::from_millis(100)).await;
    // Another user, on the same connection.
    secret.set("two\ntwo-secret");
    until("the connection becomes the other user's", async || connections(&server, "two") == before).await;
    set_user(&server, "one", &["off"]);
    sleep(Duration::from_millis(100)).await;
    until("the load asks", async || load.asked.load(Ordering::SeqCst) > 100).await;
    let (asked, others) = load.stop().await;
    assert_eq!(others, 0, "of {asked}");
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
    let load = Load::start(&client, "api");
    secret.set("two\nfuture-secret");
    until("the refusal is counted", async || client.refused_credentials() > 1).await;
    assert_eq!(connections(&server, "one"), before);
    // An empty or absent file changes nothing either.
    let counted = client.refused_credentials();
    secret.set("");
    until("the empty file is counted", async || client.refused_credentials() > counted).await;
    fs::remove_file(secret.0.path().join("secret")).unwrap();
    sleep(Duration::from_millis(100)).await;
    secret.set("two\nfuture-secret");
    assert_eq!(connections(&server, "one"), before);
    // The server learns the password later than the file.
    set_user(&server, "two", &[">future-secret"]);
    until("AUTH is sent again", async || connections(&server, "two") == before).await;
    let (asked, others) = load.stop().await;
    assert_eq!(others, 0, "of {asked}");
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
    let limiter = limiter(&client, "api");
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
    let client = Client::open("redis://127.0.0.1:1").unwrap().credentials(provider.clone());
    assert_eq!(limiter(&client, "api").check("a").await.by(), DecidedBy::Closed);
    assert_eq!((provider.0.load(Ordering::SeqCst), client.refused_credentials()), (1, 1));
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_that_reaches_its_age_is_replaced_without_a_failure() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file().user("one"));
    let client = client.max_connection_age(Duration::from_millis(500));
    let load = Load::start(&client, "api");
    let mut seen = std::collections::BTreeSet::new();
    until("the connection is replaced twice", async || {
        seen.extend(connections(&server, "one"));
        seen.len() >= 3
    })
    .await;
    let (asked, others) = load.stop().await;
    assert_eq!(others, 0, "of {asked}");
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
    let urls = cluster.urls();
    // The other nodes are found by the first one.
    let client = Client::cluster([&*urls[0]]).unwrap().credentials(secret.file());
    let load = Load::start(&client, "api");
    until("all nodes are called", async || {
        cluster.nodes.iter().all(|node| !connections(node, "one").is_empty())
    })
    .await;
    secret.set("two\ntwo-secret");
    until("all nodes are called as the other user", async || {
        cluster
            .nodes
            .iter()
            .all(|node| connections(node, "one").is_empty() && !connections(node, "two").is_empty())
    })
    .await;
    let (asked, others) = load.stop().await;
    assert_eq!(others, 0, "of {asked}");
}

// G144
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_uses_the_provider() {
    let Some(server) = guarded() else { return };
    let secret = Secret::new("one\none-secret");
    let client = Client::open(&server.url()).unwrap().credentials(secret.file());
    connect(&client).await;
    let builder = |name: &str| {
        let builder = client.limiter(name, Limit::fixed_window(Quota::per_day(1_000)));
        builder.timeout(MINUTE).on_failure(OnFailure::Closed)
    };
    let leases = builder("leases").leases().build().unwrap();
    let write_back = builder("write-back").write_back().build().unwrap();
    let peer = client.blocking();
    let regional = builder("regions").write_back();
    let regional = regional.regions("eu", [("us", client.clone())]).build().unwrap();
    assert!(leases.check_async("a").await.is_allowed());
    assert!(write_back.check("a").is_allowed() && regional.check("a").is_allowed());
    let decided = tokio::task::spawn_blocking(move || {
        let limiter = peer.limiter("threads", Limit::gcra(Quota::per_day(10))).timeout(MINUTE);
        limiter.on_failure(OnFailure::Closed).atomic().unwrap().check("a").by()
    });
    assert_eq!(decided.await.unwrap(), DecidedBy::Server);
    until("the limiters post", async || write_back.health().answered > 0 && regional.health().answered > 0)
        .await;
    let healths =
        [("leases", leases.health()), ("write-back", write_back.health()), ("regions", regional.health())];
    for (name, health) in healths {
        assert!(health.answered > 0 && health.failed() == 0, "{name}: {health:?}");
    }
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
    let subscribed = || -> Vec<String> {
        let list: String = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        list.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    wait_until("the reader subscribes", || !subscribed().is_empty());
    let before = subscribed();
    secret.set("");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(subscribed(), before);
    secret.set("two\ntwo-secret");
    std::thread::sleep(Duration::from_millis(1_500));
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
