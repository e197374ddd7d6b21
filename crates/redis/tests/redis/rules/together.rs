//! Local and shared rules decide one request together, in one process or two.

use tollgate_rules::Verdict;

use super::*;

const ATOMIC: &str = "mode: atomic, store: redis";

#[test]
fn domains_and_rules_count_separately() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let text = file(ATOMIC, &[rule("a", "requests_per_unit: 1"), rule("b", "requests_per_unit: 1")]);
    let one = process(server.clone(), &clock, &text);
    let other = process(server.clone(), &clock, &text.replace("domain: d", "domain: d2"));
    run(async {
        assert_eq!(admitted(&one, &[("a", "x")], 3).await, 1);
        assert_eq!(admitted(&one, &[("b", "x")], 3).await, 1);
        assert!(other.check_async("d2", &each(&[("a", "x")])).await.is_allowed());
        assert_eq!(server.keys(), 3);
    });
}

#[test]
fn local_denial_skips_server_and_charges_nothing() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let rules = [rule("far", "requests_per_unit: 10"), rule("near", "requests_per_unit: 2, store: keyed")];
    let one = process(server.clone(), &clock, &file(ATOMIC, &rules));
    run(async {
        let both = [("far", "x"), ("near", "x")];
        assert_eq!(admitted(&one, &both, 9).await, 2);
        let answer = ask(&one, &both).await;
        let verdicts: Vec<_> = answer.limits().map(|limit| limit.verdict()).collect();
        assert_eq!(verdicts, [Verdict::NotAsked, Verdict::Denied]);
        let far = answer.limits().next().unwrap();
        assert_eq!((far.decision().is_none(), far.remaining(), far.decided_by()), (true, 0, None));
        // Two of the ten units were charged before.
        assert_eq!(admitted(&one, &[("far", "x")], 99).await, 8);
        // A rule that was not asked counts no request.
        let mut counted = Vec::new();
        one.for_each(|_, rule, counts| counted.push((rule.name.to_string(), counts.requests())));
        assert_eq!(counted, [("d.far".to_owned(), 2 + 99), ("d.near".to_owned(), 10)]);
    });
}

#[test]
fn refund_restores_local_and_shared_units() {
    let clock = clock();
    let (server, blocking) = in_process(&clock);
    let rules = [rule("a", "requests_per_unit: 2"), rule("near", "requests_per_unit: 2, store: keyed")];
    let text = file(ATOMIC, &rules);
    let one = process(server.clone(), &clock, &text);
    let other = process(blocking, &clock, &text);
    let both = [("a", "x"), ("near", "x")];
    let descriptors = each(&both);
    run(async {
        for _ in 0..20 {
            let answer = one.check_async("d", &descriptors).await;
            assert!(answer.is_allowed());
            one.refund_async(&descriptors, &answer).await;
            let answer = other.check("d", &descriptors);
            assert!(answer.is_allowed());
            other.refund(&descriptors, &answer);
        }
        assert_eq!(admitted(&one, &both, 9).await, 2);
        // A denied request has no units to refund.
        let answer = one.check_async("d", &descriptors).await;
        assert!(answer.is_denied());
        one.refund_async(&descriptors, &answer).await;
        assert_eq!(admitted(&one, &both[..1], 9).await, 0);
    });
}

#[test]
fn zero_cost_and_unknown_domain_skip_server() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let one = process(server.clone(), &clock, &file(ATOMIC, &[rule("a", "requests_per_unit: 1")]));
    run(async {
        let entries = [("a", "x")];
        let look = ask_n(&one, &entries, 0).await;
        assert!(look.is_allowed());
        assert_eq!(look.limits().next().unwrap().verdict(), Verdict::NotAsked);
        assert!(!one.check_async("other", &each(&entries)).await.has_domain());
        assert_eq!(server.keys(), 0);
        assert!(ask_n(&one, &entries, 2).await.is_never());
        assert_eq!(admitted(&one, &entries, 9).await, 1);
    });
}

#[test]
fn rule_moves_between_local_and_shared_store() {
    let clock = clock();
    let (server, _) = in_process(&clock);
    let text = |store: &str| file("", &[rule("a", &format!("requests_per_unit: 3, store: {store}"))]);
    let one = process(server.clone(), &clock, &text("keyed"));
    run(async {
        assert_eq!(admitted(&one, &[("a", "x")], 2).await, 2);
        // The local store and the server do not share counts, and the server keeps its count.
        for (store, more) in [("redis, mode: atomic", 3), ("keyed", 3), ("redis, mode: atomic", 0)] {
            one.replace([config(&text(store))]).unwrap();
            assert_eq!(admitted(&one, &[("a", "x")], 9).await, more, "{store}");
        }
    });
}

#[test]
fn limit_beyond_script_range_names_line() {
    let limit = "requests_per_unit: 1, every: 700000, algorithm: gcra, burst: 3";
    let text = file("store: redis", &[rule("a", limit)]);
    let checked = tollgate_redis::check_config(&config(&text)).unwrap_err().to_string();
    let loaded = run(async { load(InProcess::default(), &clock(), &text).unwrap_err().to_string() });
    for error in [checked, loaded] {
        assert!(error.contains("test.yaml:4: ") && error.contains("exact only below 2^53"), "{error}");
    }
}
