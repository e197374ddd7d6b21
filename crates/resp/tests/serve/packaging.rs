//! The files in `packaging/`: what they say about the program is true. `ci/packaging.py` checks them by the tools of their kinds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tollgate_testing::redis::Server as Redis;
use tollgate_testing::service::client::{ASK, Grpc, LIMIT, block_on, bytes, get};

use super::{Place, Server, run};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Returns the words of a text that begin with one of these.
fn words<'t>(text: &'t str, begins: &[&str]) -> BTreeSet<&'t str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| begins.iter().any(|begin| word.starts_with(begin))).collect()
}

/// Returns the names of the metrics that a server has after some requests. Metrics of Redis are among them if it can be used.
fn names() -> (BTreeSet<String>, bool) {
    let place = Place::new();
    let redis = Redis::start();
    if redis.is_some() {
        let shared = "domain: shared\ntollgate: { store: redis, mode: lease }\ndescriptors:\n  - key: a\n    \
                      rate_limit: { unit: day, requests_per_unit: 10 }\n";
        place.write("shared.yaml", shared);
    }
    let address = redis.as_ref().map_or_else(String::new, |redis| format!("--redis {}", redis.url()));
    let server = Server::start(&[&place.path("")], &format!("--metrics 127.0.0.1:0 {address}"));
    let mut page = String::new();
    block_on(async {
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        grpc.ok(LIMIT, &bytes(ASK)).await;
        grpc.ok(LIMIT, &bytes("0a0673686172656412080a060a0161120178")).await;
        page = get(&server.address("metrics"), "/metrics").await.body;
    });
    server.stop();
    // Those of the control plane exist only with one, which may be away, and those of the state with its file.
    let state = place.path("state");
    let flags = "--xds 127.0.0.1:1 --start-without-rules --metrics 127.0.0.1:0 --state";
    let server = Server::start(&[], &format!("{flags} {}", state.display()));
    block_on(async { page += &get(&server.address("metrics"), "/metrics").await.body });
    server.stop();
    // The names of samples, and those of histograms without `_bucket`.
    let name = |line: &str| line.trim_start_matches("# TYPE ").split(['{', ' ']).next().map(str::to_owned);
    let names = page.lines().filter_map(name);
    (names.collect(), redis.is_some())
}

#[test]
fn dashboard_and_alerts_name_existing_metrics() {
    let (names, has_redis) = names();
    // These exist only with rules that a Redis server counts.
    let of_redis = ["tollgate_sync_", "tollgate_failure_", "tollgate_breaker_", "tollgate_server_"];
    for file in ["packaging/grafana/dashboard.json", "packaging/prometheus/alerts.yaml"] {
        let text = read(file);
        let used = words(&text, &["tollgate_", "process_"]);
        assert!(used.len() > 15, "{file}: {used:?}");
        for name in used {
            let is_of_redis = of_redis.iter().any(|begin| name.starts_with(begin));
            assert!(
                names.contains(name) || is_of_redis && !has_redis,
                "{file}: no metric has the name {name}"
            );
        }
    }
}

#[test]
fn dashboard_has_valid_panels() {
    let board: serde_json::Value = serde_json::from_str(&read("packaging/grafana/dashboard.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        let targets = panel["targets"].as_array().unwrap();
        let selects = |target: &serde_json::Value| target["expr"].as_str().unwrap().contains("job=~\"$job\"");
        assert!(!targets.is_empty() && targets.iter().all(selects), "{}", panel["title"]);
    }
}

#[test]
fn variables_in_packaging_are_flags() {
    let help = run("--help", &[]).stdout;
    let known = words(&help, &["TOLLGATE_"]);
    let mut count = 0;
    for file in files(&Path::new(ROOT).join("packaging")) {
        let text = std::fs::read_to_string(&file).unwrap();
        for name in words(&text, &["TOLLGATE_"]) {
            count += 1;
            assert!(name == "TOLLGATE_RULES" || known.contains(name), "{}: {name}", file.display());
        }
    }
    assert!(count > 20, "{count}");
}

/// The paths in the metadata for `cargo deb` exist, or `packaging/deb.sh` writes them.
#[test]
fn debian_package_names_existing_files() {
    let manifest = read("crates/cli/Cargo.toml");
    let (_, metadata) = manifest.split_once("[package.metadata.deb]").unwrap();
    let (_, assets) = metadata.split_once("assets = [").unwrap();
    let sources: Vec<&str> = assets
        .lines()
        .take_while(|line| *line != "]")
        .filter_map(|line| line.trim().strip_prefix("[\"")?.split('"').next())
        .collect();
    assert!(sources.len() > 6, "{sources:?}");
    let script = read("packaging/deb.sh");
    for source in sources {
        match source.split_once("target/") {
            Some((_, "release/tollgate")) => assert!(script.contains("cargo build --release"), "{source}"),
            Some((_, built)) => {
                let folder = built.rsplit_once('/').unwrap().0;
                assert!(script.contains(&format!("target/{folder}")), "{source}");
            }
            None => assert!(Path::new(ROOT).join("crates/cli").join(source).exists(), "{source}"),
        }
    }
}

/// The service starts with the rules and the variables that the packages install.
#[test]
fn installed_rules_and_variables_serve() {
    let limits = Path::new(ROOT).join("examples/envoy/limits.yaml");
    let unit = read("packaging/systemd/tollgate.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tollgate ")).unwrap();
    assert_eq!(start, "serve");
    let defaults = read("packaging/systemd/tollgate.default");
    let pair = |line: &'_ str| {
        line.trim_start_matches('#').split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let variables: Vec<_> = defaults
        .lines()
        .filter(|line| line.trim_start_matches('#').starts_with("TOLLGATE_"))
        .filter_map(pair)
        .collect();
    assert!(variables.len() > 4);
    // The files and the server of the examples do not exist here.
    let off = ["TOLLGATE_TLS_CERT", "TOLLGATE_TLS_KEY", "TOLLGATE_REDIS", "TOLLGATE_STATE"];
    let given: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .filter(|(name, _)| !off.contains(name))
        .collect();
    let checked = run(&format!("{} --check", limits.display()), &given);
    assert!(checked.code == 0 && checked.stderr.is_empty(), "{checked:?}");
}
