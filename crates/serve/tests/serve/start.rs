//! The start: flags, variables, checks, and errors that name the remedy.

use crate::client::{block_on, get, http};
use crate::server::{FREE, Place, Server, run};

#[test]
fn example_starts_without_files() {
    Server::start(&[], "").during(async |server| {
        let line = server.start_line();
        assert!(line.contains("serves 1 rule of 1 domain from the built-in example"), "{line}");
        server.wait_for_line("WARN this is an example on loopback");
        let ask = server.wait_for_line("ask it: curl http://127.0.0.1:");
        let body = ask.split('\'').nth(1).unwrap().to_owned();
        let address = server.address("http");
        // A minute may end within the test. Then up to ten requests are admitted.
        let mut admitted = 0;
        let status = loop {
            match http(&address, "POST", "/json", &body).await.status {
                200 if admitted < 10 => admitted += 1,
                status => break status,
            }
        };
        assert!(status == 429 && admitted >= 5, "{status} after {admitted}");
        let home = get(&server.address("debug"), "/").await.body;
        assert!(home.contains(", serving, 1 rule\n"), "{home}");
    });
}

#[test]
fn example_refuses_open_addresses() {
    run("--grpc 0.0.0.0:0", &[]).fails(2, &["loopback only", "0.0.0.0:0", "name a file or folder"]);
    run("--metrics :0", &[]).fails(2, &["loopback only"]);
    run("--check --http :0", &[]).fails(2, &["loopback only", "(from --http)"]);
    run("", &[("PORT", "3000")]).fails(2, &["loopback only", "(from PORT)"]);
}

/// One rule for all flags of addresses: a port alone is on loopback, and a colon before it opens all interfaces.
#[test]
fn port_alone_is_on_loopback_for_every_flag() {
    let place = Place::new();
    place.write("token", "ops:0123456789abcdef\n");
    let all = |port: &str| {
        let endpoints =
            ["grpc", "http", "debug", "metrics"].map(|endpoint| format!("--{endpoint} {port}")).join(" ");
        place.fill(&format!("{endpoints} --admin {port} --admin-token-file $/token"))
    };
    let server = Server::start_with(&[&place.rules()], &all("0"), &[]);
    for endpoint in ["grpc", "http", "debug", "metrics", "admin"] {
        assert!(
            server.start_line().contains(&format!("{endpoint} on 127.0.0.1:")),
            "{}",
            server.start_line()
        );
    }
    server.stop();
    // The program refuses this before it listens: the network could read the tokens.
    place.run(&all(":0")).fails(2, &["--admin 0.0.0.0:0: without TLS"]);
}

/// Variables of other commands have their effect there.
#[test]
fn variables_of_other_commands_are_known() {
    let variables = [("TOLLGATE_AT", "unix:/a"), ("TOLLGATE_REDIS_URL", "redis://a"), ("TOLLGATE_NONE", "1")];
    let mut server = Server::start_with(&[], FREE, &variables);
    let line = server.wait_for_line("no flag has these variables");
    assert!(line.contains("effect: TOLLGATE_NONE;"), "{line}");
}

#[test]
fn missing_paths_are_errors() {
    run("/no/such/limits.yaml", &[]).fails(1, &["/no/such/limits.yaml"]);
    run("", &[("RUNTIME_ROOT", "/no/such/root")]).fails(1, &["/no/such/root/config"]);
    run("", &[("TOLLGATE_RULES", "/no/such/limits.yaml")]).fails(1, &["/no/such/limits.yaml"]);
    // The name of a folder has no extension, so the error must not be about that.
    run("/no/such/folder", &[])
        .fails(1, &["/no/such/folder: cannot be read: no such file or directory; check the path"]);
    // An empty variable is as none.
    let example = run("--check", &[("TOLLGATE_RULES", "")]);
    assert!(example.code == 0 && example.stdout.contains("name a file or folder"), "{example:?}");
}

#[test]
fn check_reports_line_and_column() {
    let place = Place::new();
    // The same file twice is read once, as at the start.
    let good = place.run("$/limits.yaml --check");
    assert_eq!((good.code, &*good.stdout), (0, "2 rules of 1 domain and the flags can be used\n"));
    place.write("bad.yaml", "domain: rl\ndescriptors:\n  - key: a\n    rate_limit: { unit: fortnight }\n");
    run(&format!("{} --check", place.name("bad.yaml")), &[]).fails(1, &["bad.yaml:4:", "fortnight"]);
    let tls = "--check --tls-cert /no/cert --tls-key /no/key";
    let both = place.run(&format!("{tls} --http :1 --grpc :1"));
    both.fails(1, &["cannot read /no/cert", "--grpc and --http have the same address, 0.0.0.0:1"]);
    assert_eq!(both.stderr.matches("error: ").count(), 2, "{both:?}");
}

#[test]
fn rule_warnings_are_logged_at_start() {
    let place = Place::new();
    let hidden = "domain: rl\ndescriptors:\n  - { key: a, value: '*', rate_limit: { unit: day, requests_per_unit: 1 } }\n  \
                  - { key: a, value: 'x*', rate_limit: { unit: day, requests_per_unit: 1 } }\n";
    place.write("limits.yaml", hidden);
    let checked = place.run("--check");
    assert_eq!(checked.code, 0, "{checked:?}");
    assert_eq!(checked.stderr.matches("limits.yaml:4:").count(), 1, "{checked:?}");
    assert!(checked.stderr.contains("is never used"), "{checked:?}");
    let mut server = place.start("");
    let line = server.wait_for_line("is never used");
    assert!(line.contains(" WARN ") && line.contains("limits.yaml:4:"), "{line}");
}

#[test]
fn start_without_rules_warns() {
    let place = Place::new();
    std::fs::remove_file(place.rules()).unwrap();
    let folder = place.path("");
    run(&place.name(""), &[]).fails(1, &["there are no files with rules; check the path"]);
    let mut server = Server::start(&[&folder], "--start-without-rules");
    server.wait_for_line("no rules are in force, so every request passes");
    place.write("limits.yaml", "domain: [");
    server.wait_for_line("the earlier rules stay in force");
    server.stop();
    // Nothing was ever loaded, so there are no earlier rules.
    let mut server = Server::start(&[&folder], "--start-without-rules");
    server.wait_for_line("no rules yet, so all answers are UNAVAILABLE");
    place.write("limits.yaml", "domain: {");
    server.signal("HUP");
    assert!(
        crate::server::eventually(|| server.log().matches("no rules yet").count() >= 2),
        "{}",
        server.log()
    );
    assert!(!server.log().contains("earlier rules"), "{}", server.log());
    for page in ["/", "/rlconfig"] {
        let page = block_on(get(&server.address("debug"), page)).body;
        assert!(page.contains("# There are no rules yet") && !page.contains("earlier rules"), "{page}");
    }
}

#[test]
fn taken_ports_name_their_flag() {
    let place = Place::new();
    let server = place.start("");
    for (endpoint, flag) in [("grpc", "--grpc"), ("http", "--http"), ("debug", "--debug")] {
        let taken = server.address(endpoint);
        let others: String = FREE
            .split(" --")
            .map(|flag| format!("--{} ", flag.trim_start_matches("--")))
            .filter(|other| !other.starts_with(flag))
            .collect();
        place
            .run(&format!("{flag} {taken} {others}"))
            .fails(1, &[&taken, "another process listens there", flag]);
    }
    run("--grpc off --http off", &[]).fails(2, &["no client could ask"]);
}

#[test]
fn version_and_usage_are_those_of_the_command() {
    let version = run("--version", &[]);
    assert_eq!(
        (version.code, version.stdout),
        (0, format!("tollgate-serve {}\n", env!("CARGO_PKG_VERSION")))
    );
    // Also if a file was given, the usage shows it as optional.
    for (args, usage) in [
        ("--bogus limits.yaml", "[OPTIONS]"),
        ("limits.yaml --check --bogus", "--check"),
        ("limits.yaml --tls-cert x", "--tls-cert <FILE> --tls-key <FILE>"),
    ] {
        run(args, &[]).fails(2, &[&format!("Usage: tollgate serve {usage} [FILE|FOLDER]...\n")]);
    }
}

#[test]
fn wrong_flags_end_with_code_two() {
    for args in
        ["--deadline 0", "--grpc here", "--client-ca ca", "--near-limit 2", "--max-message 0", "--log loud"]
    {
        run(args, &[]).fails(2, &[args.split(' ').next().unwrap()]);
    }
    // With 0, no request could be decided, or none would be counted.
    for args in ["--max-in-flight 0", "--max-descriptors 0", "--max-entries 0", "--max-hits 0"] {
        run(args, &[]).fails(2, &[args.split(' ').next().unwrap()]);
    }
    run("--metrics-path metrics", &[]).fails(2, &["begins with /"]);
    run("--redis-ca ca.crt", &[]).fails(2, &["--redis <URL>"]);
    let place = Place::with(crate::server::RULES.replace("tollgate: {}", "tollgate: { store: redis }"));
    place.run("").fails(1, &["limits.yaml:7:", "store: redis", "--redis"]);
    // A check starts no connection, so no server needs to be there.
    for scheme in ["redis", "rediss"] {
        let checked = place.run(&format!("--check --redis {scheme}://127.0.0.1:1"));
        assert_eq!((checked.code, &*checked.stderr), (0, ""), "{checked:?}");
    }
    run("--limit-header-names a,b", &[]).fails(2, &["--limit-header-names", "three names"]);
}

#[test]
fn go_variables_are_explained_as_flags() {
    let variables = [
        ("PORT", "80"),
        ("REDIS_URL", "redis:6379"),
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_AUTH", "secret"),
        ("RUNTIME_ROOT", "/srv"),
        ("GRPC_MAX_CONNECTION_AGE", "1h30m"),
        ("USE_STATSD", "true"),
        ("SHADOW_MODE", "true"),
    ];
    let explained = run("--explain-env --http off", &variables);
    assert_eq!(explained.code, 0, "{explained:?}");
    for part in
        ["--connection-age 1h30m", "--redis redis://:***@redis:6379", "/srv/config", "--shadow", "USE_STATSD"]
    {
        assert!(explained.stdout.contains(part), "{part}: {explained:?}");
    }
    assert!(!explained.stdout.contains("secret"), "{explained:?}");
    assert!(explained.stdout.contains("# *** stands for the password"), "{explained:?}");
    // The flag has priority over PORT.
    assert!(!explained.stdout.contains("--http"), "{explained:?}");
}

#[test]
fn go_variables_start_the_service() {
    let place = Place::new();
    std::fs::create_dir(place.path("config")).unwrap();
    std::fs::rename(place.rules(), place.path("config/limits.yaml")).unwrap();
    let root = place.name("");
    let variables = [
        ("RUNTIME_ROOT", &*root),
        ("GRPC_HOST", "127.0.0.1"),
        ("GRPC_PORT", "0"),
        ("HOST", "127.0.0.1"),
        ("PORT", "0"),
        ("DEBUG_PORT", "0"),
        ("LOG_LEVEL", "INFO"),
        ("LOG_FORMAT", "json"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "1"),
        ("TRACING_SAMPLING_RATE", "1"),
        ("REDIS_URL", "127.0.0.1:1"),
    ];
    let mut server = Server::start_with(&[], "--drain 0s", &variables);
    let line: serde_json::Value = serde_json::from_str(server.start_line()).unwrap();
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("serves 2 rules") && message.contains("RUNTIME_ROOT"), "{message}");
    assert_eq!(line["level"], "INFO");
    let unused = server.wait_for_line("have no effect");
    assert!(unused.contains("LOCAL_CACHE_SIZE_IN_BYTES, TRACING_SAMPLING_RATE"), "{unused}");
    server.wait_for_line("no rule has `store: redis`");
    block_on(async { assert_eq!(get(&server.address("http"), "/healthcheck").await.body, "OK") });
}

/// An error names the variable that a value is from, and only that one.
#[test]
fn wrong_variables_are_named() {
    for (variable, wrong, part) in [
        ("PORT", "abc", "0.0.0.0:abc"),
        ("GRPC_PORT", "70000", "0.0.0.0:70000"),
        ("GRPC_MAX_CONNECTION_AGE", "1x", "1h30m"),
        ("GRPC_MAX_CONNECTION_AGE", "-1s", "1h30m"),
        ("LOG_LEVEL", "chatty", "warn, info, debug"),
        ("LOG_FORMAT", "xml", "text, json"),
        ("NEAR_LIMIT_RATIO", "2", "from 0 to 1"),
    ] {
        let ended = run("", &[(variable, wrong), ("DEBUG_PORT", "0")]);
        ended.fails(2, &[part, &format!("(from {variable})")]);
    }
    run("", &[("BACKEND_TYPE", "memcache")]).fails(2, &["BACKEND_TYPE=memcache"]);
    // A flag has priority.
    assert_eq!(run("--check --log info", &[("LOG_LEVEL", "chatty")]).code, 0);
    for (variable, wrong) in [("TOLLGATE_GRPC", "here"), ("TOLLGATE_SHADOW", "maybe"), ("TOLLGATE_LOG", "")] {
        run("", &[(variable, wrong)]).fails(2, &[&format!("the value is from the variable {variable}")]);
    }
    let typed = run("--grpc there", &[("TOLLGATE_GRPC", "here")]);
    assert!(typed.code == 2 && !typed.stderr.contains("TOLLGATE_GRPC"), "{typed:?}");
    let variables =
        [("TOLLGATE_GRCP", "off"), ("TOLLGATE_PORT_8081_TCP", "x"), ("TOLLGATE_SERVICE_HOST", "x")];
    let misspelt = run("--check", &variables);
    assert!(misspelt.stderr.contains("have no effect: TOLLGATE_GRCP;"), "{misspelt:?}");
}

#[test]
fn variables_complete_paths_after_dashes() {
    let place = Place::new();
    let rules = place.rules().display().to_string();
    for variables in [&[("PORT", "0")][..], &[("TOLLGATE_RULES", &rules), ("PORT", "0")]] {
        let args = if variables.len() == 1 { format!("--check -- {rules}") } else { "--check --".to_owned() };
        let ended = run(&args, variables);
        assert!(ended.stdout.contains("2 rules"), "{ended:?}");
    }
    // A socket replaces the port, which may be in a variable that was forgotten.
    let socket = place.name("socket");
    let args = format!("{rules} --http off --debug off --drain 0s --grpc-socket {socket}");
    let server = Server::start_with(&[], &args, &[("GRPC_HOST", "127.0.0.1"), ("GRPC_PORT", "0")]);
    assert!(!server.start_line().contains("127.0.0.1"), "{}", server.start_line());
}

#[test]
fn own_variables_override_those_of_go() {
    let place = Place::new();
    let rules = place.rules().display().to_string();
    let variables = [
        ("TOLLGATE_RULES", &*rules),
        ("RUNTIME_ROOT", "/no/such/root"),
        ("TOLLGATE_GRPC", "127.0.0.1:0"),
        ("GRPC_PORT", "1"),
        ("TOLLGATE_HTTP", "off"),
        ("TOLLGATE_DEBUG", "off"),
        ("TOLLGATE_DRAIN", "0s"),
        ("TOLLGATE_REFLECTION", "true"),
    ];
    let server = Server::start_with(&[], "", &variables);
    let line = server.start_line();
    assert!(
        line.contains("serves 2 rules") && !line.contains("http on") && !line.contains("GRPC_PORT"),
        "{line}"
    );
}
