//! Fuzzes the rules of a control plane, from the bytes of a message to rules in force or a refusal. No bytes cause a panic.
//! An accepted set is in force as a whole, and a refused one changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use prost_types::Any;
use tollgate_rules::Rules;
use tollgate_serve::proto::{DiscoveryResponse, RateLimitConfig};
use tollgate_serve::xds::take::{TYPE_URL, Taker};

fn rules_of(rules: &Rules) -> Vec<String> {
    let mut all = Vec::new();
    rules.for_each(|domain, rule, _| all.push(format!("{domain} {} {:?}", rule.identity, rule.limit)));
    all
}

fn take(taker: &mut Taker, message: DiscoveryResponse) {
    let before = (rules_of(taker.pushed.rules()), taker.pushed.rules().reloads().successes);
    let taken = taker.take(message.clone());
    assert_eq!(taken.answer.response_nonce, message.nonce);
    let rules = taker.pushed.rules();
    if let Some(refusal) = taken.answer.error_detail {
        assert!(!refusal.message.is_empty() && rules.last_error().is_some());
        assert_eq!((rules_of(rules), rules.reloads().successes), before);
        return;
    }
    assert_eq!(taken.answer.version_info, message.version_info);
    assert!(rules.last_error().is_none() && !taken.is_again);
    let domains = message.resources.iter().map(|any| RateLimitConfig::decode(&*any.value));
    let domains: Vec<String> = domains.map(|config| config.expect("it was accepted").domain).collect();
    rules.for_each(|domain, _, _| assert!(domains.iter().any(|sent| sent == domain)));
}

// G138
fuzz_target!(|bytes: &[u8]| {
    let mut taker = Taker::new(Rules::builder().allow_removals(true).pushed("fuzz", None), false);
    if let Ok(message) = DiscoveryResponse::decode(bytes) {
        take(&mut taker, message);
    }
    // The rules of one domain, and those of several with their lengths before them.
    let any = |value: &[u8]| Any { type_url: TYPE_URL.to_owned(), value: value.to_vec() };
    let mut parts = Vec::new();
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let (part, after) = after.split_at(usize::from(length).min(after.len()));
        parts.push(any(part));
        rest = after;
    }
    for resources in [vec![any(bytes)], parts.clone(), parts] {
        take(
            &mut taker,
            DiscoveryResponse { resources, nonce: "n".to_owned(), ..DiscoveryResponse::default() },
        );
    }
});
