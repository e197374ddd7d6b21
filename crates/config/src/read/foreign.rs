//! Names files that are the objects of other programs, and says how to get rules out of them.

use super::node::{FileNode, Value, quoted};
use super::scalar::BadValue;

/// The kinds of objects that hold limits, or texts with rules: the beginning of their `apiVersion`, their `kind`, what they
/// are, and how to get the rules.
const KINDS: [(&str, &str, &str, &str); 11] = [
    ("gateway.envoyproxy.io/", "BackendTrafficPolicy", "a policy of Envoy Gateway", ENVOY_GATEWAY),
    ("gateway.envoyproxy.io/", "", "an object of Envoy Gateway", ENVOY_GATEWAY),
    ("limitador.kuadrant.io/", "", "an object of Limitador", LIMITADOR),
    ("kuadrant.io/", "RateLimitPolicy", "a policy of Kuadrant, for Limitador", LIMITADOR),
    ("ratelimit.solo.io/", "RateLimitConfig", "a RateLimitConfig of Gloo", GLOO),
    ("gloo.solo.io/", "", "an object of Gloo", GLOO),
    ("gateway.solo.io/", "", "an object of Gloo", GLOO),
    ("ratelimit.policy.gloo.solo.io/", "", "an object of Gloo", GLOO),
    ("admin.gloo.solo.io/", "", "an object of Gloo", GLOO),
    ("networking.istio.io/", "", "an object of Istio", ISTIO),
    ("", "", "an object of Kubernetes", KUBERNETES),
];

const ENVOY_GATEWAY: &str = "Envoy Gateway makes rules of it, which `tollgate serve --xds` follows; to check them, save \
    the answer of its rate limit service at /rlconfig (port 6070)";
const LIMITADOR: &str = "write each of its limits as a descriptor: its namespace is the domain, its variables are keys without \
    a value, its conditions are keys with one, and max_value in seconds is requests_per_unit in a unit";
const GLOO: &str = "copy its descriptors (spec.raw.descriptors, or spec.ratelimit.descriptors of the settings) below \
    `domain: NAME`, and write rate_limit, unit and requests_per_unit for rateLimit, unit and requestsPerUnit";
const KUBERNETES: &str = "save the text with `domain:` and `descriptors:` as a file of its own";
const ISTIO: &str = "it says which descriptors Envoy sends; the rules are in the configuration of the rate limit service, often \
    in a ConfigMap";

/// Returns the problem of a file that is the object of another program. `None` if it is not known to be one.
pub(super) fn foreign(root: &FileNode) -> Option<BadValue> {
    let limitador =
        |what: &str| Some(BadValue::new(format!("this is {what}, not a file of rules"), LIMITADOR));
    match &root.kind {
        Value::List(items) => {
            let first = items.first()?;
            let is_limit = first.has_key("max_value") && first.has_key("namespace");
            if is_limit { limitador("a list of limits of Limitador") } else { None }
        }
        Value::Map(_) => {
            let (version, kind) = (text_of(root, "apiVersion")?, text_of(root, "kind")?);
            if kind == "ConfigMap" {
                return Some(config_map(root));
            }
            let (_, _, what, remedy) = KINDS.iter().find(|(versions, kinds, ..)| {
                version.starts_with(versions) && (kinds.is_empty() || *kinds == kind)
            })?;
            let kind = if is_name(kind) { kind.to_owned() } else { quoted(kind) };
            Some(BadValue::new(format!("this is {what} ({kind}), not a file of rules"), *remedy))
        }
        _ => None,
    }
}

fn value_of<'n>(node: &'n FileNode, name: &str) -> Option<&'n FileNode> {
    let Value::Map(entries) = &node.kind else { return None };
    entries.iter().find(|(key, _)| key.as_key() == Some(name)).map(|(_, value)| value)
}

fn text_of<'n>(node: &'n FileNode, name: &str) -> Option<&'n str> {
    value_of(node, name)?.as_key()
}

/// Whether a text can be the name of an object of Kubernetes, or a key of its data. No shell reads anything else in such a name.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    (1..=253).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_part)
}

/// Returns the problem of a ConfigMap, with the command that prints its text. The user may copy that command into a shell, so a name
/// that Kubernetes does not permit is left out of it.
fn config_map(root: &FileNode) -> BadValue {
    // The first text with a domain, or else the first one.
    let texts = |data: &'static str| {
        let entries = match value_of(root, data).map(|data| &data.kind) {
            Some(Value::Map(entries)) => &entries[..],
            _ => &[],
        };
        entries
            .iter()
            .filter_map(move |(key, text)| Some((data, key.as_key()?, text.as_key().unwrap_or_default())))
    };
    let is_rules = |text: &str| text.lines().any(|line| line.trim_start().starts_with("domain:"));
    let plain = || texts("data");
    let found =
        plain().find(|&(.., text)| is_rules(text)).or_else(|| plain().chain(texts("binaryData")).next());
    let (data, key, _) = found.filter(|(_, key, _)| is_name(key)).unwrap_or(("data", "KEY", ""));
    let metadata = |name| {
        let text = value_of(root, "metadata").and_then(|metadata| text_of(metadata, name));
        text.filter(|text| is_name(text))
    };
    let name = metadata("name").unwrap_or("NAME");
    let namespace = metadata("namespace").map_or_else(String::new, |namespace| format!(" -n {namespace}"));
    let decode = if data == "data" { "" } else { " | base64 -d" };
    let remedy = format!(
        "the rules are the text of {key:?} in its data: kubectl get configmap {name}{namespace} -o \
         jsonpath='{{.{data}.{}}}'{decode} | tollgate rules check -",
        key.replace('.', r"\.")
    );
    BadValue::new("this is a ConfigMap of Kubernetes, not a file of rules", remedy)
}
