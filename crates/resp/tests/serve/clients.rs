//! Real clients, and the examples of the guide.

use std::path::Path;
use std::process::{Command, Output};

use tollgate_testing::service::client::{block_on, stat};
use tollgate_testing::skipped::skip;

use super::{Place, Server, start};

/// The root of the repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn port(server: &Server) -> String {
    server.address("resp").rsplit_once(':').unwrap().1.to_owned()
}

/// Runs a program. `None` if it does not exist.
fn run(command: &mut Command) -> Option<Output> {
    command.output().ok()
}

/// Runs a program of Redis. Skips if there is none.
#[track_caller]
fn redis_program(name: &str, server: &Server, args: &[&str]) -> Option<String> {
    let Some(output) = run(Command::new(name).args(["-p", &port(server)]).args(args)) else {
        skip(&format!("no {name} could be run; install it (apt-get install redis-server)"));
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Some(text)
}

// G141
#[test]
fn redis_cli_asks_and_is_answered() {
    let place = Place::new();
    let server = start(&place, "");
    for (args, expected) in [
        (&["CL.THROTTLE", "a", "4", "1", "4000"][..], "0\n5\n4\n-1\n4000\n"),
        // A later program reads what is left of the 4,000 seconds.
        (&["-3", "GCRA", "a", "4", "1", "4000", "TOKENS", "0"], "0\n5\n4\n-1\n39"),
        (&["TOLLGATE.CHECK", "rl", "once", "x"], "0\n1\n0\n-1\n"),
        (&["TOLLGATE.CHECK", "rl", "once", "x"], "1\n1\n0\n"),
        (&["GET", "a"], "ERR unknown command 'GET'"),
        (&["COMMAND", "COUNT"], "22\n"),
        (&["PING"], "PONG\n"),
    ] {
        let Some(text) = redis_program("redis-cli", &server, args) else { return };
        assert!(text.starts_with(expected), "{args:?}: {text}");
    }
}

// G141
#[test]
fn redis_benchmark_runs_with_and_without_pipelines() {
    let place = Place::new();
    let server = start(&place, "");
    let throttle = ["CL.THROTTLE", "key:__rand_int__", "9", "100", "60"];
    for pipeline in ["1", "16"] {
        let args = [&["-n", "3200", "-c", "8", "-r", "1000", "-q", "-P", pipeline][..], &throttle].concat();
        let Some(text) = redis_program("redis-benchmark", &server, &args) else { return };
        assert!(text.contains("requests per second") && !text.contains("rror"), "{text}");
    }
    let commands = block_on(async { stat(&server.address("debug"), "tollgate_resp_commands_total").await });
    assert!(commands >= 6_400, "{commands}");
}

// G141
#[test]
fn redis_crate_asks_in_both_versions() {
    let place = Place::new();
    let server = start(&place, "");
    let mut left = 99;
    for parameters in ["", "/?protocol=resp3"] {
        let client = redis::Client::open(format!("redis://{}{parameters}", server.address("resp"))).unwrap();
        let mut connection = client.get_connection().unwrap();
        let throttle = || redis::cmd("CL.THROTTLE").arg("crate").arg(99).arg(1).arg(86_400).clone();
        let answer: [i64; 5] = throttle().query(&mut connection).unwrap();
        assert_eq!(answer[..4], [0, 100, left, -1]);
        let mut pipeline = redis::pipe();
        (0..10).for_each(|_| _ = pipeline.add_command(throttle()));
        let answers: Vec<[i64; 5]> = pipeline.query(&mut connection).unwrap();
        assert_eq!(
            answers.iter().map(|answer| answer[2]).collect::<Vec<_>>(),
            Vec::from_iter((left - 10..left).rev())
        );
        left -= 11;
        let wrong = redis::cmd("GET").arg("a").query::<String>(&mut connection).unwrap_err();
        assert!(wrong.to_string().contains("unknown command"), "{wrong}");
        let waits: (i64, i64, i64, f64, f64) =
            redis::cmd("GCRA").arg("f").arg(0).arg(2).arg(7_201).query(&mut connection).unwrap();
        assert!(waits.0 == i64::from(!parameters.is_empty()) && waits.4 <= 3_600.5, "{waits:?}");
    }
}

/// Returns the example of the guide in a language, for the server's port. Its limit refills so slowly that no busy machine
/// lets a unit come back.
fn example(language: &str, server: &Server) -> String {
    let guide = std::fs::read_to_string(Path::new(ROOT).join("docs/redis_clients.md")).unwrap();
    let (_, example) = guide.split_once(&format!("```{language}\n")).expect("the guide has an example");
    let example = example.split("```").next().unwrap();
    assert!(example.contains(", 4, 100, 60)"), "{example}");
    example.replace("6379", &port(server)).replace(", 4, 100, 60)", ", 4, 100, 600000)")
}

/// Asserts that the example waits for nothing five times, and then for up to 6,000 seconds.
fn assert_denies_the_sixth(output: &Output) {
    let told = String::from_utf8_lossy(&output.stdout);
    let waits: Vec<u32> = told.lines().map(|line| line.parse().expect(line)).collect();
    assert!(waits.len() == 6 && waits[..5] == [0; 5] && (1..=6_000).contains(&waits[5]), "{output:?}");
}

// G141
#[test]
fn example_for_python_denies_the_sixth_request() {
    let python = |text: &str| run(Command::new("python3").args(["-B", "-c", text]));
    if !python("import redis").is_some_and(|output| output.status.success()) {
        return skip("Python has no redis-py; install it (python3 -m pip install redis)");
    }
    let place = Place::new();
    let server = start(&place, "");
    assert_denies_the_sixth(&python(&example("python", &server)).unwrap());
    // Both versions of the protocol, pipelines, a pool, and a name of the client.
    let more = format!(
        "import redis\nfor version in (2, 3):\n    r = redis.Redis(port={}, protocol=version, client_name='test')\n    \
         with r.pipeline(transaction=False) as p:\n        for _ in range(3): p.execute_command('CL.THROTTLE', b'\\xff', 1, 1, 3600)\n        \
         print([a[0] for a in p.execute()])\n    print(r.ping(), r.client_getname(), r.execute_command('GCRA', 'g', 0, 2, 3)[3])\n    \
         try: r.get('x')\n    except redis.ResponseError as e: print(str(e)[:15])\n",
        port(&server)
    );
    let output = python(&more).unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 6, "{output:?}");
    assert_eq!((lines[0], lines[3]), ("[0, 0, 1]", "[1, 1, 1]"), "{told}");
    assert!(lines[1].starts_with("True test b'-1'") || lines[1].starts_with("True b'test' b'-1'"), "{told}");
    assert_eq!((lines[2], lines[5]), ("unknown command", "unknown command"), "{told}");
    // The default pipeline is a transaction, and a wrong command in it charges nothing.
    let transactions = format!(
        "import redis\nfor version in (2, 3):\n    r = redis.Redis(port={}, protocol=version)\n    p = r.pipeline()\n    \
         for _ in range(3): p.execute_command('CL.THROTTLE', f'm{{version}}', 1, 1, 3600)\n    print([a[:3] for a in p.execute()])\n    \
         p = r.pipeline()\n    p.execute_command('CL.THROTTLE', f'n{{version}}', 1, 1, 3600)\n    p.get('x')\n    \
         try: p.execute()\n    except redis.ResponseError as e: print('unknown command' in str(e))\n    \
         print(r.execute_command('CL.THROTTLE', f'n{{version}}', 1, 1, 3600, 0)[2])\n",
        port(&server)
    );
    let output = python(&transactions).unwrap();
    let each = "[[0, 2, 1], [0, 2, 0], [1, 2, 0]]\nTrue\n2\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), each.repeat(2), "{output:?}");
}

// G141
#[test]
fn examples_for_node_deny_the_sixth_request() {
    let modules =
        std::env::var("TOLLGATE_NODE_MODULES").unwrap_or(format!("{ROOT}/target/clients/node_modules"));
    let node = |text: &str| run(Command::new("node").env("NODE_PATH", &modules).args(["-e", text]));
    for library in ["ioredis", "redis"] {
        if !node(&format!("require('{library}')")).is_some_and(|output| output.status.success()) {
            return skip(
                "Node has no ioredis and no node-redis; install them (npm install --prefix target/clients ioredis redis)",
            );
        }
    }
    let place = Place::new();
    let server = start(&place, "");
    assert_denies_the_sixth(&node(&example("js", &server)).unwrap());
    let other = format!(
        "const {{ createClient }} = require('redis');\n(async () => {{\n for (const RESP of [2, 3]) {{\n  const c = createClient({{ url: \
         'redis://127.0.0.1:{}', RESP }});\n  await c.connect();\n  const all = await Promise.all([1, 2, 3].map(() => \
         c.sendCommand(['CL.THROTTLE', 'n', '1', '1', '3600'])));\n  console.log(all.map((a) => a[0]).join());\n  await c.close();\n }}\n}})();",
        port(&server)
    );
    let output = node(&other).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0,0,1\n1,1,1\n", "{output:?}");
}
