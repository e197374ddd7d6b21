//! Loads while requests are answered.

use crate::client::{ASK, Grpc, LIMIT, Load, bytes, comes_true, get, wait_for_stat};
use crate::server::{Place, Server};

const ERRORS: &str = "tollgate_reload_total{result=\"error\"}";
const SUCCESSES: &str = "tollgate_reload_total{result=\"success\"}";

fn rules(limit: u64) -> String {
    format!(
        "domain: rl\ntollgate: {{}}\ndescriptors:\n  - key: generic_key\n    value: v\n    rate_limit: {{ unit: year, every: 70, requests_per_unit: {limit} }}\n"
    )
}

// G108
#[test]
fn reloads_under_load_lose_no_call() {
    let place = Place::new();
    place.serve("", async |server| {
        let load = Load::start(&[server.address("grpc")], 2);
        for round in 1..=5 {
            place.write("limits.yaml", rules(1_000_000 + round));
            wait_for_stat(&server.address("debug"), SUCCESSES, round + 1).await;
        }
        load.end().await;
    });
}

#[test]
fn bad_file_changes_nothing_and_is_shown() {
    let place = Place::new();
    place.serve("", async |server| {
        let debug = server.address("debug");
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        let before = grpc.ok(LIMIT, &bytes(ASK)).await;
        // A file may come from others, and its errors are read in a terminal.
        place.write("limits.yaml", "domain: rl\ndescriptors: [ { \"keys\\r\\e[31m\": a } ]\n");
        wait_for_stat(&debug, ERRORS, 1).await;
        assert_eq!(grpc.ok(LIMIT, &bytes(ASK)).await.len(), before.len());
        let home = get(&debug, "/").await.body;
        assert!(home.contains("The last load failed") && home.contains("limits.yaml:2:"), "{home}");
        let config = get(&debug, "/rlconfig").await.body;
        assert!(config.contains("rl.generic_key_v: "));
        server.wait_for_line("the earlier rules stay in force");
        place.write("limits.yaml", rules(7));
        wait_for_stat(&debug, SUCCESSES, 2).await;
        assert!(!get(&debug, "/").await.body.contains("failed"));
        let log = server.log();
        assert_eq!(log.matches("the earlier rules stay in force").count(), 1, "{log}");
        assert!(![home, config, log].iter().any(|text| text.contains(['\r', '\u{1b}'])));
    });
}

#[test]
fn hang_up_reads_the_rules_again() {
    let place = Place::new();
    let mut server = place.start("--log info");
    server.signal("HUP");
    server.wait_for_line("the rules changed: nothing has changed");
}

// G108
#[test]
fn mounted_config_map_swaps_at_once() {
    use std::os::unix::fs::symlink;

    let place = Place::new();
    // As Kubernetes lays out a volume: the folder has links into ..data, which is a link to the present folder.
    let folder = place.path("config");
    std::fs::create_dir_all(folder.join("..1")).unwrap();
    std::fs::write(folder.join("..1/limits.yaml"), rules(1)).unwrap();
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/limits.yaml", folder.join("limits.yaml")).unwrap();
    Server::start(&[&folder], "").during(async |server| {
        let load = Load::start(&[server.address("grpc")], 1);
        let debug = server.address("debug");
        std::fs::create_dir(folder.join("..2")).unwrap();
        std::fs::write(folder.join("..2/limits.yaml"), rules(77)).unwrap();
        symlink("..2", folder.join("..next")).unwrap();
        std::fs::rename(folder.join("..next"), folder.join("..data")).unwrap();
        std::fs::remove_dir_all(folder.join("..1")).unwrap();
        wait_for_stat(&debug, SUCCESSES, 2).await;
        assert!(get(&debug, "/rlconfig").await.body.contains("requests_per_unit=77"));
        load.end().await;
    });
}

#[test]
fn removed_file_removes_its_domain() {
    let place = Place::new();
    let folder = place.path("config");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.yaml"), rules(1)).unwrap();
    let other =
        "{ domain: other, descriptors: [ { key: a, rate_limit: { unit: day, requests_per_unit: 1 } } ] }";
    std::fs::write(folder.join("b.yaml"), other).unwrap();
    Server::start(&[&folder], "").during(async |server| {
        assert!(server.start_line().contains("2 rules of 2 domains"), "{}", server.start_line());
        std::fs::remove_file(folder.join("a.yaml")).unwrap();
        server.wait_for_line("the domain \"rl\" has no rules any more");
        assert!(!get(&server.address("debug"), "/rlconfig").await.body.contains("rl."));
    });
}

#[test]
fn service_starts_without_rules_on_request() {
    let place = Place::new();
    let folder = place.path("config");
    Server::start(&[&folder], "--start-without-rules").during(async |server| {
        server.wait_for_line("no rules yet");
        let mut grpc = Grpc::connect(&server.address("grpc")).await;
        assert_eq!(grpc.call(LIMIT, &bytes(ASK)).await.status, 14);
        assert_eq!(grpc.health("ratelimit").await, crate::client::SERVING);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("limits.yaml"), rules(5)).unwrap();
        let is_loaded = comes_true(async || grpc.call(LIMIT, &bytes(ASK)).await.status == 0).await;
        assert!(is_loaded, "{}", server.log());
    });
}
