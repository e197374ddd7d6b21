//! What the service says of the endpoint: its help, its messages at the start, and its metrics.

use std::net::TcpListener;

use tollgate_testing::service::FREE;
use tollgate_testing::service::client::{block_on, get};

use super::{Client, Place, Server, run, start};

#[test]
fn help_has_the_flags_in_their_places() {
    let short = run("-h", &[]).stdout;
    let at = |text: &str, line: &str| text.find(line).unwrap_or_else(|| panic!("no {line:?} in {text}"));
    let lines = ["  --metrics ADDRESS  ", "  --resp ADDRESS     Redis clients: ", "  --admin ADDRESS    "];
    assert!(lines.map(|line| at(&short, line)).is_sorted(), "{short}");
    assert!(at(&short, "  --client-ca FILE") < at(&short, "  --resp-users FILE   "), "{short}");
    let long = run("--help", &[]).stdout;
    let titles = ["\nMetrics:\n", "\nRedis clients:\n", "\nOperators:\n"];
    assert!(titles.map(|title| at(&long, title)).is_sorted(), "{long}");
    assert!(long.contains("[env: TOLLGATE_RESP_QUOTAS=]"), "{long}");
}

#[test]
fn address_is_on_loopback_and_is_named_if_it_is_taken() {
    let place = Place::new();
    let server = start(&place, "");
    assert!(server.start_line().contains(", resp on 127.0.0.1:"), "{}", server.start_line());
    server.stop();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    place.run(&format!("{FREE} --resp {address}")).fails(1, &["another process listens there", "--resp"]);
    run("--grpc off --http off", &[])
        .fails(2, &["--grpc, --http and --resp are off, so no client could ask"]);
}

#[test]
fn only_this_endpoint_is_enough() {
    let place = Place::new();
    let rules = place.rules();
    let server = Server::start_with(&[&rules], "--grpc off --http off --debug off --drain 0s --resp 0", &[]);
    assert_eq!(Client::connect(&server).say("PING", 1), "+PONG|");
}

#[test]
fn counts_are_on_the_pages_with_and_without_the_endpoint() {
    let place = Place::new();
    for (flag, commands) in [("--resp 0", 3), ("", 0)] {
        let server = place.start(&format!("--metrics 127.0.0.1:0 {flag}"));
        if commands > 0 {
            Client::connect(&server).say("PING\r\nECHO there\r\nTOLLGATE.CHECK rl once x", 3 + 8);
        }
        let line = |what: &str| format!("tollgate_resp_commands_total{what}{commands}\n");
        let page = block_on(get(&server.address("metrics"), "/metrics")).body;
        let described = "# HELP tollgate_resp_commands_total Commands of Redis clients\n# TYPE tollgate_resp_commands_total counter\n";
        assert!(page.contains(&format!("{described}{}", line(" "))), "{page}");
        let check = "tollgate_service_requests_total{method=\"TOLLGATE.CHECK\"}";
        assert_eq!(page.contains(&format!("{check} 1\n")), commands > 0, "{page}");
        assert_eq!(page.contains(check), commands > 0, "{page}");
        let stats = block_on(get(&server.address("debug"), "/stats")).body;
        assert!(stats.contains(&line(": ")) && stats.contains("tollgate_resp_slow_total: 0\n"), "{stats}");
    }
}

/// No rules are loaded yet.
// G139
#[test]
fn commands_about_rules_fail_before_the_first_rules() {
    let place = Place::with("domain: [");
    let server = start(&place, "--start-without-rules");
    let mut client = Client::connect(&server);
    for command in ["CHECK rl once x", "PEEK rl once x", "HOLD rl once x", "COMMIT rl id 1 once x"] {
        let told = client.say(&format!("TOLLGATE.{command}"), 1);
        assert_eq!(told, "-UNAVAILABLE no rules are loaded yet|", "{command}");
    }
    assert!(client.say("CL.THROTTLE alice 4 100 60", 6).starts_with("*5|:0|"));
}
