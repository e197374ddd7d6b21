//! Prefixes of addresses that processes share.

use tollgate::ManualClock;
use tollgate::rules::Rules;

use super::{ask, clock, in_process, process, run};

async fn admitted(rules: &Rules<ManualClock>, address: &str) -> bool {
    ask(rules, &[("ip", address)]).await.is_allowed()
}

/// All processes count the addresses of one network together, whatever the text of an address is.
#[test]
fn processes_count_one_prefix_together() {
    let limit = |n: u32| format!("{{ unit: hour, requests_per_unit: {n} }}");
    let text = format!(
        "
domain: d
tollgate: {{ store: redis, mode: atomic }}
descriptors:
  - key: ip
    prefixes:
      ipv4: {{ 32: {} }}
      ipv6: {{ 64: {}, 48: {} }}
",
        limit(2),
        limit(2),
        limit(3)
    );
    let clock = clock();
    let (server, _) = in_process(&clock);
    let [one, other] = [(); 2].map(|()| process(server.clone(), &clock, &text));
    run(async {
        assert!(admitted(&one, "2001:db8:7:1::1").await);
        assert!(admitted(&other, "2001:DB8:7:1::2").await);
        assert!(!admitted(&one, "2001:db8:7:1::3").await, "the /64");
        assert!(admitted(&other, "2001:db8:7:2::1").await, "the denial charged no step");
        assert!(!admitted(&one, "2001:db8:7:3::1").await, "the /48");
        assert!(admitted(&one, "2001:db8:8::1").await);
        assert!(admitted(&one, "::ffff:192.0.2.1").await && admitted(&other, "192.0.2.1").await);
        assert!(!admitted(&one, "192.0.2.1").await);
    });
}
