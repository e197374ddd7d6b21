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
