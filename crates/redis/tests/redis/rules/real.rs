//! Rules on a real server.

use tollgate_redis::Client;
use tollgate_rules::Descriptor;

use super::*;

#[test]
fn shared_rules_survive_server_outage() {
    let Some(mut server) = tollgate_testing::redis::Server::start() else { return };
    let text = "
domain: d
tollgate: { store: redis, mode: atomic, timeout: 2s, on_failure: closed }
descriptors:
  - { key: a, rate_limit: { unit: year, requests_per_unit: 20 } }
  - { key: b, rate_limit: { unit: year, requests_per_unit: 1000 } }
";
    let process = |server: Server| Arc::new(Rules::builder().shared(server).load([config(text)]).unwrap());
    let rules = [
        process(Arc::new(Client::open(&server.url()).unwrap())),
        process(Arc::new(Client::open(&server.url()).unwrap())),
        process(Arc::new(Client::open(&server.url()).unwrap().blocking())),
    ];
    run(async {
        let requests = (0..60).map(|at| {
            let rules = Arc::clone(&rules[at % 3]);
            async move {
                let (a, b) = ([("a", "x")], [("b", "x")]);
                rules.check_async("d", &[Descriptor::new(&a), Descriptor::new(&b)]).await.is_allowed()
            }
        });
        let admitted = futures_util::future::join_all(requests).await;
        assert_eq!(admitted.into_iter().filter(|admitted| *admitted).count(), 20);
        // Requests that `a` denied took no units of `b` on the server.
        let b = [("b", "x")];
        let left = rules[1].check_n_async("d", &[Descriptor::new(&b)], 980).await;
        assert!(left.is_allowed(), "{left:?}");
        assert!(rules[0].check_async("d", &[Descriptor::new(&b)]).await.is_denied());
        let keys: Vec<String> = server.command(&["KEYS", "*"]);
        assert_eq!(keys.len(), 2, "{keys:?}");
        assert!(keys.iter().all(|key| key.starts_with("tollgate:v1:{d%7c")), "{keys:?}");
        server.kill();
        let answer = rules[0].check_async("d", &[Descriptor::new(&b)]).await;
        let by = answer.limits().next().unwrap().decided_by();
        assert_eq!((answer.is_denied(), by), (true, Some(tollgate_redis::DecidedBy::Closed)));
    });
}

/// One key of a rule holds a value of another type in Redis. The rule still limits its other keys.
// G84
#[test]
#[expect(clippy::disallowed_methods, reason = "a real server takes real time")]
fn wrong_type_key_affects_one_rule_key() {
    let Some(server) = tollgate_testing::redis::Server::start() else { return };
    let text = "
domain: d
tollgate: { store: redis, mode: write-back, processes: 4, on_failure: open }
descriptors:
  - { key: a, rate_limit: { unit: second, requests_per_unit: 200 } }
";
    run(async {
        let process =
            || Rules::builder().shared(Client::open(&server.url()).unwrap()).load([config(text)]).unwrap();
        let rules: Vec<_> = (0..4).map(|_| process()).collect();
        let ask =
            async |rules: &Rules<_>, value| rules.check_async("d", &[Descriptor::new(&[("a", value)])]).await;
        assert!(ask(&rules[0], "bad").await.is_allowed());
        let key = loop {
            let keys: Vec<String> = server.command(&["KEYS", "*bad*:f0:1s"]);
            match keys.into_iter().next() {
                Some(key) => break key,
                None => {
                    // The key of an ended window may have expired before the test saw it.
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    let _ = ask(&rules[0], "bad").await;
                }
            }
        };
        server.command::<()>(&["DEL", &key]);
        server.command::<()>(&["LPUSH", &key, "x"]);
        let began = std::time::Instant::now();
        // The units that were asked for and admitted in each second.
        let mut seconds = std::collections::BTreeMap::<u64, (u64, u64)>::new();
        while began.elapsed().as_secs() < 4 {
            for rules in &rules {
                for _ in 0..5 {
                    let _ = ask(rules, "bad").await;
                    let units = u64::from(ask(rules, "good").await.is_allowed());
                    let (asked, admitted) = seconds.entry(began.elapsed().as_secs()).or_default();
                    (*asked, *admitted) = (*asked + 1, *admitted + units);
                }
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        // Any second overlaps two windows.
        let bound = 2 * (200 + tollgate_redis::internals::over_at_most(200, 4));
        // The last round may enter a fifth second.
        seconds.remove(&4);
        for (asked, admitted) in seconds.values() {
            // On a busy machine, the test asks for less.
            let least = 100.min(asked / 2);
            assert!((least..=bound).contains(admitted), "{seconds:?}, bound {bound}");
        }
    });
}
