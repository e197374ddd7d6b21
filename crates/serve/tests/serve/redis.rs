//! The Redis server as companies run it: a password file that changes, Sentinels, and the variables of the Go service.

#![allow(clippy::disallowed_methods, reason = "real servers take real time")]

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rcgen::SanType;
use tokio::time::sleep;

use crate::client::{Grpc, LIMIT, bytes, comes_true, get};
use crate::server::{PATIENCE, Place, SHARED, Server, limit, run};
use crate::tls::{Authority, install};
use tollgate_testing::redis::{Sentinels, Server as Redis};

/// Asks for (a, x) of the domain `rl`. Returns the overall code.
async fn ask(grpc: &mut Grpc) -> u8 {
    grpc.ok(LIMIT, &bytes("0a02726c12080a060a01611201781801")).await[1]
}

fn replace(file: &Path, text: &str) {
    let next = file.with_extension("next");
    std::fs::write(&next, text).unwrap();
    std::fs::rename(next, file).unwrap();
}

// G144
#[test]
fn password_file_is_read_again_under_load() {
    let Some(redis) = Redis::start() else { return };
    for user in ["one", "two"] {
        let secret = format!(">{user}-secret");
        redis.command::<()>(&["ACL", "SETUSER", user, "on", &secret, "~shop:*", "+@all"]);
    }
    redis.command::<()>(&["ACL", "SETUSER", "default", "-evalsha", "-eval"]);
    let place = Place::with(limit(SHARED, "a", 1_000_000));
    let file = place.path("password");
    std::fs::write(&file, "one-secret\n").unwrap();
    let args = format!(
        "--redis {} --redis-password-file {} --redis-user one --redis-prefix shop --redis-connection-age 2s \
         --deadline 60s --metrics 127.0.0.1:0 --log info",
        redis.url(),
        file.display()
    );
    place.serve(&args, async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let mut asked = 0;
        // The numbers of the connections of the user.
        let connections = || {
            let list: String = redis.command(&["CLIENT", "LIST"]);
            let of_user = list.lines().filter(|line| line.contains(" user=one "));
            of_user.map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let are_replaced = |before: &[String]| {
            let now = connections();
            !now.is_empty() && !now.iter().any(|connection| before.contains(connection))
        };
        let refusals = || redis.command::<Vec<redis::Value>>(&["ACL", "LOG"]).len();
        let mut until = async |what: &str, is: &dyn Fn() -> bool| {
            let began = Instant::now();
            while !is() {
                assert!(began.elapsed() < PATIENCE, "{what}");
                for _ in 0..10 {
                    assert_eq!(ask(&mut grpc).await, 1, "request {asked} while {what}");
                    asked += 1;
                }
                sleep(Duration::from_millis(10)).await;
            }
        };
        until("the connection is made", &|| !connections().is_empty()).await;
        // Both passwords are valid. Then the earlier one is not.
        redis.command::<()>(&["ACL", "SETUSER", "one", ">next-secret"]);
        replace(&file, "next-secret\n");
        let before = connections();
        until("the connection has its age", &|| are_replaced(&before)).await;
        redis.command::<()>(&["ACL", "SETUSER", "one", "<one-secret"]);
        let before = connections();
        until("the earlier password is not valid", &|| are_replaced(&before)).await;
        // The server does not know this password yet, and the connection is not replaced meanwhile.
        let known = refusals();
        replace(&file, "late-secret\n");
        until("the password is refused", &|| refusals() > known).await;
        let metrics = server.address("metrics");
        let is_counted = comes_true(async || {
            get(&metrics, "/metrics").await.body.contains("tollgate_credentials_refused_total ")
        });
        assert!(is_counted.await, "{}", get(&metrics, "/metrics").await.body);
        redis.command::<()>(&["ACL", "SETUSER", "one", ">late-secret"]);
        let before = connections();
        until("the server learns the password", &|| are_replaced(&before)).await;
        let line = server.wait_for_line("are not in use");
        assert!(line.contains(&file.display().to_string()) && !line.contains("secret"), "{line}");
        let keys: Vec<String> = redis.command(&["KEYS", "*"]);
        assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("shop:v1:{")), "{keys:?}");
    });
}

// G144
#[test]
fn password_files_with_mistakes_end_the_start() {
    let place = Place::new();
    let file = place.path("password");
    std::fs::write(&file, "user\nhidden\n").unwrap();
    let url = "--redis redis://127.0.0.1:1";
    let check = |more: &str| run(&format!("{url} --check {more} {}", place.rules().display()), &[]);
    let with_file = format!("--redis-password-file {}", file.display());
    assert_eq!(check(&with_file).code, 0);
    let both = check(&format!("{with_file} --redis-user other"));
    both.fails(1, &["--redis-password-file", "name one"]);
    assert!(!both.stderr.contains("hidden"), "{both:?}");
    check("--redis-password-file /no/such/file").fails(1, &["/no/such/file", "does not exist"]);
    check("--redis-user u").fails(2, &["--redis-password-file"]);
    run("--redis-prefix a", &[]).fails(2, &["--redis"]);
    run("--redis redis-sentinel://a:1 --check", &[]).fails(2, &["redis-sentinel://[[user]:password@]"]);
}

/// The variables of the Go service lead to the master, and to the next one.
// G145
#[test]
fn sentinel_variables_lead_to_each_master() {
    let Some(mut all) = Sentinels::start() else { return };
    let place = Place::with(limit(SHARED, "a", 200));
    let hosts: Vec<String> = all.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
    let url = format!("mymaster,{}", hosts.join(","));
    let variables = [
        ("REDIS_TYPE", "sentinel"),
        ("REDIS_URL", &*url),
        ("REDIS_AUTH", "default:data"),
        ("REDIS_SENTINEL_AUTH", "watch"),
        ("CACHE_KEY_PREFIX", "shop"),
    ];
    let explained = run("--explain-env", &variables);
    let shown = format!("--redis=redis-sentinel://:***@{}/mymaster?auth=:***", hosts.join(","));
    assert!(
        explained.stdout.replace("--redis '", "--redis=").replace('\'', "").contains(&shown),
        "{explained:?}"
    );
    assert!(!explained.stdout.contains("data@") && !explained.stdout.contains("watch"), "{explained:?}");
    let args = format!("{} --deadline 60s", crate::server::FREE);
    Server::start_with(&[&place.rules()], &args, &variables).during(async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let mut admitted = 0;
        while admitted < 100 {
            admitted += u32::from(ask(&mut grpc).await == 1);
        }
        all.master.kill();
        let began = Instant::now();
        let mut denied = 0;
        // Denials while no server decides are mixed with those of the limit: 200 in a row are those of the limit.
        while admitted < 200 || denied < 200 {
            assert!(began.elapsed() < 2 * PATIENCE, "{admitted} admitted");
            let is_admitted = ask(&mut grpc).await == 1;
            admitted += u32::from(is_admitted);
            denied = if is_admitted { 0 } else { denied + 1 };
            sleep(Duration::from_millis(2)).await;
        }
        // All 100 were admitted in the last second of the first master, so all may be missing.
        assert!(admitted <= 300, "{admitted}");
        let keys: Vec<String> = all.replica.ask("data", &["KEYS", "*"]).unwrap();
        assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with("shop:v1:{")), "{keys:?}");
    });
}

/// The authority of the flags applies to the Sentinels and to the master.
// G145
#[test]
fn sentinels_and_master_are_called_by_tls() {
    let place = Place::with(limit(SHARED, "a", 10));
    let authority = Authority::new();
    install(&place, &authority.issue(&[SanType::IpAddress([127, 0, 0, 1].into())]));
    place.write("ca.crt", authority.pem());
    let [cert, key, ca] = ["tls.crt", "tls.key", "ca.crt"].map(|name| place.name(name));
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [of_master, of_sentinel] = ports.map(|port| port.local_addr().unwrap().port());
    let files = [("tls-cert-file", &cert), ("tls-key-file", &key), ("tls-ca-cert-file", &ca)];
    let mut options = vec!["--tls-auth-clients".to_owned(), "no".to_owned()];
    let mut settings = format!("tls-port {of_sentinel}\ntls-auth-clients no\ntls-replication yes\n");
    for (name, file) in files {
        options.extend([format!("--{name}"), file.clone()]);
        settings.push_str(&format!("{name} {file}\n"));
    }
    options.extend(["--tls-port".to_owned(), of_master.to_string()]);
    settings.push_str(&format!("sentinel monitor mymaster 127.0.0.1 {of_master} 1\n"));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let Some(master) = Redis::start_with(&options) else { return };
    let _sentinel = Redis::start_sentinel(&settings);
    let url = format!("mymaster,127.0.0.1:{of_sentinel}");
    let variables =
        [("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", &*url), ("REDIS_TLS", "true"), ("REDIS_TLS_CACERT", &*ca)];
    let args = format!("{} --deadline 60s", crate::server::FREE);
    Server::start_with(&[&place.rules()], &args, &variables).during(async |server| {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        // The first attempt to connect may take longer than a Sentinel may.
        let is_decided = comes_true(async || ask(&mut grpc).await == 1).await;
        assert!(is_decided, "no server decides: {}", server.log());
        assert!(master.command::<i64>(&["DBSIZE"]) > 0);
    });
}
