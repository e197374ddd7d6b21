//! Messages of a control plane, from their bytes to rules in force.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::value::Kind;
use prost_types::{Any, Struct, Value};
use tollgate_rules::{Descriptor, Rules};
use tollgate_serve::proto::{
    DiscoveryRequest, DiscoveryResponse, Node, RateLimitConfig, RateLimitPolicy, RateLimitReplace,
    ResourceError, ResourceName, RuleDescriptor, Status, Unit,
};
use tollgate_serve::xds::take::{TYPE_URL, Taken, Taker};

use crate::messages::of_hex;

/// What go-control-plane sends for `FILE`.
const SENT: &str = "0a01371291010a41747970652e676f6f676c65617069732e636f6d2f726174656c696d69742e636f6e6669672e726174656c696d69742e76332e526174654c696d6974436f6e666967124c0a04656467651204656467651a160a0e72656d6f74655f616464726573731a04080210051a260a047061746812062f6c6f67696e22140a04757365721a0c0803100222066c6f67696e7328012241747970652e676f6f676c65617069732e636f6d2f726174656c696d69742e636f6e6669672e726174656c696d69742e76332e526174654c696d6974436f6e6669672a0133";

/// The same with an identifier of the control plane, and fields of later versions.
const SENT_LATER: &str = "0a01371298010a41747970652e676f6f676c65617069732e636f6d2f726174656c696d69742e636f6e6669672e726174656c696d69742e76332e526174654c696d6974436f6e66696712530a04656467651204656467651a160a0e72656d6f74655f616464726573731a04080210051a260a047061746812062f6c6f67696e22140a04757365721a0c0803100222066c6f67696e7328017a056c617465722241747970652e676f6f676c65617069732e636f6d2f726174656c696d69742e636f6e6669672e726174656c696d69742e76332e526174654c696d6974436f6e6669672a013332040a026567a00101";

const FILE: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: minute, requests_per_unit: 5 }
  - key: path
    value: /login
    shadow_mode: true
    descriptors:
      - key: user
        rate_limit: { name: logins, unit: hour, requests_per_unit: 2 }
";

fn taker() -> Taker {
    Taker::new(Rules::builder().allow_removals(true).pushed("test", None), false)
}

fn described(rules: &Rules) -> Vec<String> {
    let mut all = Vec::new();
    rules.for_each(|domain, rule, _| {
        let (name, identity, limit) = (&rule.name, &rule.identity, &rule.limit);
        all.push(format!("{domain} {name} {identity} {limit:?} {}", rule.shadow));
    });
    all
}

fn per_hour(requests_per_unit: u32) -> Option<RateLimitPolicy> {
    Some(RateLimitPolicy { unit: Unit::Hour as i32, requests_per_unit, ..RateLimitPolicy::default() })
}

/// A domain with one rule, for the key `user`.
fn one(domain: &str, units: u32) -> RateLimitConfig {
    let descriptor =
        RuleDescriptor { key: "user".to_owned(), rate_limit: per_hour(units), ..RuleDescriptor::default() };
    RateLimitConfig { name: domain.to_owned(), domain: domain.to_owned(), descriptors: vec![descriptor] }
}

fn set(version: &str, configs: &[RateLimitConfig]) -> DiscoveryResponse {
    let any = |config: &RateLimitConfig| Any { type_url: TYPE_URL.to_owned(), value: config.encode_to_vec() };
    DiscoveryResponse {
        version_info: version.to_owned(),
        resources: configs.iter().map(any).collect(),
        type_url: TYPE_URL.to_owned(),
        nonce: format!("nonce of {version}"),
        ..DiscoveryResponse::default()
    }
}

#[track_caller]
fn accepted(taken: &Taken, version: &str) {
    let answer = &taken.answer;
    assert_eq!((&answer.error_detail, &*answer.version_info), (&None, version));
    assert_eq!((&*answer.type_url, &answer.node), (TYPE_URL, &None));
    assert_eq!(answer.response_nonce, format!("nonce of {version}"));
}

#[track_caller]
fn refused(taken: &Taken, version: &str, good: &str, part: &str) {
    let answer = &taken.answer;
    let why = answer.error_detail.as_ref().map(|status| (status.code, &status.message));
    assert!(why.is_some_and(|(code, why)| code == 3 && why.contains(part)), "{part:?} is not in {why:?}");
    assert_eq!((&*answer.version_info, &*answer.type_url), (good, TYPE_URL));
    assert_eq!(answer.response_nonce, format!("nonce of {version}"));
}

// G138
#[test]
fn captured_sets_are_the_rules_of_a_file() {
    let file = Rules::from_yaml(FILE).expect("the file is valid");
    for sent in [SENT, SENT_LATER] {
        let mut taker = taker();
        let taken = taker.take(DiscoveryResponse::decode(&of_hex(sent)[..]).expect(sent));
        assert_eq!((&*taken.answer.version_info, &*taken.answer.response_nonce), ("7", "3"));
        assert_eq!(taken.answer.error_detail, None);
        assert_eq!(described(taker.pushed.rules()), described(&file));
        assert!(taken.loaded.is_some_and(|loaded| loaded.is_ok()));
    }
}

// G138
#[test]
fn set_replaces_all_rules() {
    let mut taker = taker();
    let rules = || Descriptor::new(&[("user", "a")]);
    accepted(&taker.take(set("1", &[one("a", 1), one("b", 1)])), "1");
    assert!(taker.pushed.rules().check("a", &[rules()]).is_allowed());
    // The order of resources has no meaning, and the counts stay. The same version again loads nothing.
    accepted(&taker.take(set("2", &[one("b", 1), one("a", 1)])), "2");
    let again = taker.take(set("2", &[one("a", 1), one("b", 1)]));
    accepted(&again, "2");
    assert!(again.loaded.is_none() && !again.is_again);
    assert_eq!(taker.pushed.rules().reloads().successes, 2);
    assert!(taker.pushed.rules().check("a", &[rules()]).is_denied());
    // A domain that was asked goes, too, and at last all do.
    accepted(&taker.take(set("3", &[one("b", 1)])), "3");
    assert_eq!(described(taker.pushed.rules()).len(), 1);
    assert!(taker.pushed.rules().check("a", &[rules()]).is_allowed());
    accepted(&taker.take(set("4", &[])), "4");
    assert_eq!(taker.pushed.rules().reloads().rules, 0);
    // A control plane that was restarted begins with the first version again.
    accepted(&taker.take(set("1", &[one("c", 1)])), "1");
    assert_eq!(described(taker.pushed.rules()).len(), 1);
}

// G138
#[test]
fn refused_sets_change_nothing() {
    let mut taker = taker();
    refused(&taker.take(set("0", &[one("", 1)])), "0", "", "the domain is missing");
    accepted(&taker.take(set("1", &[one("a", 1)])), "1");
    let before = described(taker.pushed.rules());
    let mut no_unit = one("a", 1);
    no_unit.descriptors[0].rate_limit = Some(RateLimitPolicy::default());
    let mut odd_unit = one("a", 1);
    odd_unit.descriptors[0].rate_limit = Some(RateLimitPolicy { unit: 9, ..RateLimitPolicy::default() });
    let other_url = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    let mut other_resource = set("bad", &[one("a", 1), one("b", 1)]);
    other_resource.resources[1].type_url.clone_from(&other_url);
    let mut garbage = set("bad", &[one("a", 1)]);
    garbage.resources[0].value = vec![0xff; 9];
    let mut no_text = set("bad", &[one("a", 1)]);
    no_text.resources[0].value = b"\x12\x01\xff".to_vec();
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "b".to_owned() }),
        error_detail: Some(Status { code: 13, message: "no backend".to_owned(), details: Vec::new() }),
    };
    let wrong = [
        (set("bad", &[one("a", 1), one("a", 2)]), "already has the domain \"a\""),
        (set("bad", &[no_unit]), "the unit is missing"),
        (set("bad", &[one("b", 1), odd_unit]), "test[0]:1:"),
        (DiscoveryResponse { type_url: other_url, ..set("bad", &[]) }, "the message is for the type"),
        (other_resource, "resources[1] has the type \"type.googleapis.com/envoy.config.cluster.v3.Cluster\""),
        (garbage, "resources[0] is no ratelimit.config.ratelimit.v3.RateLimitConfig"),
        (no_text, "resources[0] is no"),
        (
            DiscoveryResponse { resource_errors: vec![error], ..set("bad", &[one("a", 9)]) },
            "the resource \"b\": no backend",
        ),
    ];
    for (message, part) in wrong {
        taker.begin();
        let taken = taker.take(message.clone());
        refused(&taken, "bad", "1", part);
        assert!(!taken.is_again && matches!(taken.loaded, Some(Err(_))));
        let rules = taker.pushed.rules();
        assert_eq!(described(rules), before);
        assert!(rules.last_error().is_some_and(|error| error.to_string().contains(part)));
        // The same set again has the same answer, and nothing else happens.
        let errors = rules.reloads().errors;
        let again = taker.take(DiscoveryResponse { nonce: "nonce of again".to_owned(), ..message.clone() });
        refused(&again, "again", "1", part);
        assert!(again.is_again && again.loaded.is_none());
        assert_eq!(taker.pushed.rules().reloads().errors, errors);
        // Cause: a server that gave each refused set another version was answered at once, without end.
        let other = taker.take(DiscoveryResponse { version_info: "worse".to_owned(), ..message.clone() });
        assert!(other.is_again && matches!(other.loaded, Some(Err(_))));
        // On another stream, its reason is seen again.
        taker.pushed.push(Err("away".into()));
        taker.begin();
        assert!(!taker.take(message).is_again);
        assert!(taker.pushed.rules().last_error().is_some_and(|error| error.to_string().contains(part)));
    }
    accepted(&taker.take(set("2", &[one("a", 1)])), "2");
    assert!(taker.pushed.rules().last_error().is_none());
}

// G138
#[test]
fn type_has_any_prefix() {
    for url in [
        TYPE_URL,
        "ratelimit.config.ratelimit.v3.RateLimitConfig",
        "a/b/ratelimit.config.ratelimit.v3.RateLimitConfig",
    ] {
        let mut message = set("1", &[one("a", 1)]);
        message.resources[0].type_url = url.to_owned();
        accepted(&taker().take(DiscoveryResponse { type_url: url.to_owned(), ..message.clone() }), "1");
        accepted(&taker().take(DiscoveryResponse { type_url: String::new(), ..message }), "1");
    }
    let mut longer = set("1", &[one("a", 1)]);
    longer.resources[0].type_url.push('2');
    refused(&taker().take(longer), "1", "", "resources[0] has the type");
}

// G138
#[test]
fn all_fields_have_their_meaning() {
    let text = Value { kind: Some(Kind::StringValue("team".to_owned())) };
    let policy = RateLimitPolicy {
        unlimited: true,
        name: "free".to_owned(),
        replaces: vec![RateLimitReplace { name: "logins".to_owned() }],
        ..RateLimitPolicy::default()
    };
    let descriptor = RuleDescriptor {
        key: "user".to_owned(),
        value: "a \"b\"\n*".to_owned(),
        rate_limit: Some(policy),
        quota_mode: true,
        detailed_metric: true,
        metadata: Some(Struct { fields: [("owner".to_owned(), text)].into() }),
        ..RuleDescriptor::default()
    };
    let mut taker = taker();
    let config = RateLimitConfig { descriptors: vec![descriptor], ..one("a", 1) };
    accepted(&taker.take(set("1", &[config])), "1");
    let mut seen = 0;
    taker.pushed.rules().for_each(|_, rule, _| {
        seen += 1;
        assert!(rule.quota_mode && rule.metadata.is_some());
        assert_eq!((&*rule.name, &*rule.replaces[0]), ("free", "logins"));
    });
    assert_eq!(seen, 1);
}

/// Rules that a Redis server counts say so in the text, as a file does.
// G138
#[test]
fn shared_rules_need_a_server() {
    let builder = || Rules::builder().allow_removals(true);
    let taken = Taker::new(builder().pushed("test", None), true).take(set("1", &[one("a", 1)]));
    refused(&taken, "1", "", "store: redis");
    let mut alone = Taker::new(builder().alone(true).pushed("test", None), true);
    accepted(&alone.take(set("1", &[one("a", 1)])), "1");
    alone.pushed.rules().for_each(|_, rule, _| assert!(rule.is_shared()));
}

// G138
#[test]
fn many_rules_of_many_domains_are_in_force() {
    let configs = |units: u32| -> Vec<RateLimitConfig> {
        let descriptor = |at: u32| RuleDescriptor {
            key: "user".to_owned(),
            value: format!("user-{at}"),
            rate_limit: per_hour(units),
            ..RuleDescriptor::default()
        };
        let domain = |at: u32| RateLimitConfig {
            descriptors: (0..100).map(descriptor).collect(),
            ..one(&format!("domain-{at}"), units)
        };
        (0..100).map(domain).collect()
    };
    let mut taker = taker();
    for units in [1, 2] {
        let version = units.to_string();
        accepted(&taker.take(set(&version, &configs(units))), &version);
        assert_eq!(taker.pushed.rules().reloads().rules, 10_000);
    }
}

/// Reads a message by its description alone, as JSON. `benches/protos` compiles the description from the files `*.proto`.
#[track_caller]
fn is_described(name: &str, message: &impl Message, json: &str) {
    let pool = DescriptorPool::decode(&include_bytes!("discovery.bin")[..]).expect("it is compiled");
    let description = pool.get_message_by_name(name).expect("it is described");
    let read = DynamicMessage::decode(description, &message.encode_to_vec()[..]).expect("the types agree");
    assert_eq!(read.encode_to_vec(), message.encode_to_vec(), "{name}");
    assert_eq!(serde_json::to_string(&read).expect("it is valid"), json, "{name}");
}

// G138
#[test]
fn discovery_matches_its_description() {
    let fields =
        || Some(Struct { fields: [("k".to_owned(), Value { kind: Some(Kind::BoolValue(true)) })].into() });
    let status = Status { code: 3, message: "m".to_owned(), details: Vec::new() };
    let request = DiscoveryRequest {
        version_info: "1".to_owned(),
        node: Some(Node { id: "n".to_owned(), cluster: "c".to_owned(), metadata: fields() }),
        resource_names: vec!["r".to_owned()],
        type_url: "t".to_owned(),
        response_nonce: "o".to_owned(),
        error_detail: Some(status.clone()),
    };
    is_described(
        "envoy.service.discovery.v3.DiscoveryRequest",
        &request,
        r#"{"versionInfo":"1","node":{"id":"n","cluster":"c","metadata":{"k":true}},"resourceNames":["r"],"typeUrl":"t","responseNonce":"o","errorDetail":{"code":3,"message":"m"}}"#,
    );
    let error = ResourceError {
        resource_name: Some(ResourceName { name: "r".to_owned() }),
        error_detail: Some(status),
    };
    is_described(
        "envoy.service.discovery.v3.DiscoveryResponse",
        &DiscoveryResponse { canary: true, resource_errors: vec![error], ..set("1", &[]) },
        &r#"{"versionInfo":"1","canary":true,"typeUrl":"TYPE","nonce":"nonce of 1","resourceErrors":[{"resourceName":{"name":"r"},"errorDetail":{"code":3,"message":"m"}}]}"#.replace("TYPE", TYPE_URL),
    );
    let policy = RateLimitPolicy {
        unit: Unit::Week as i32,
        requests_per_unit: 2,
        unlimited: true,
        name: "p".to_owned(),
        replaces: vec![RateLimitReplace { name: "q".to_owned() }],
    };
    let descriptor = RuleDescriptor {
        key: "a".to_owned(),
        value: "b".to_owned(),
        rate_limit: Some(policy),
        descriptors: vec![RuleDescriptor { key: "c".to_owned(), ..RuleDescriptor::default() }],
        shadow_mode: true,
        detailed_metric: true,
        quota_mode: true,
        metadata: fields(),
    };
    is_described(
        "ratelimit.config.ratelimit.v3.RateLimitConfig",
        &RateLimitConfig { descriptors: vec![descriptor], ..one("d", 1) },
        r#"{"name":"d","domain":"d","descriptors":[{"key":"a","value":"b","rateLimit":{"unit":"WEEK","requestsPerUnit":2,"unlimited":true,"name":"p","replaces":[{"name":"q"}]},"descriptors":[{"key":"c"}],"shadowMode":true,"detailedMetric":true,"quotaMode":true,"metadata":{"k":true}}]}"#,
    );
}
