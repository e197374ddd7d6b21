//! The three forms of the messages agree: the Rust types, the files `*.proto`, and the compiled descriptors. `benches/protos` compiles
//! the files again.

use std::fmt::Debug;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Deserializer, Value};
use tollgate_serve::proto::{
    CommitRequest, CommitResponse, DESCRIPTORS, RateLimitDescriptor, RateLimitRequest, RateLimitResponse,
    ReserveRequest, ReserveResponse, Unit,
};

use crate::answer::{of, request, shown, with_hits, with_limit};

pub(crate) fn of_hex(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// Bytes that Envoy 1.40 sent.
// G105
#[test]
fn captured_requests_decode_and_encode() {
    let foo = || of([("foo", "bar")]);
    let generic = || of([("generic_key", "v")]);
    let address = of([("remote_address", "127.0.0.1"), ("generic_key", "v")]);
    let refund = RateLimitDescriptor { is_negative_hits: true, ..with_hits(foo(), 5) };
    let other = request([of([("foo", "x"), ("empty", "")])]);
    let rows = [
        ("0a02726c12120a100a0b67656e657269635f6b6579120176", request([generic()])),
        (
            "0a02726c122f0a1b0a0e72656d6f74655f6164647265737312093132372e302e302e310a100a0b67656e657269635f6b6579120176",
            request([address]),
        ),
        ("0a02726c120e0a0a0a03666f6f12036261721a00", request([with_hits(foo(), 0)])),
        ("0a02726c12110a0a0a03666f6f12036261721a0308ac02", request([with_hits(foo(), 300)])),
        ("0a02726c12120a0a0a03666f6f12036261721a0208052001", request([refund])),
        (
            "0a02726c12180a100a0b67656e657269635f6b65791201761204082a1003",
            request([with_limit(generic(), 42, Unit::Hour as i32)]),
        ),
        (
            "0a056f7468657212130a080a03666f6f1201780a070a05656d707479",
            RateLimitRequest { domain: "other".into(), ..other },
        ),
        ("0a02726c120c0a0a0a03666f6f12036261721807", RateLimitRequest { hits_addend: 7, ..request([foo()]) }),
    ];
    for (hex, message) in rows {
        let bytes = of_hex(hex);
        assert_eq!(RateLimitRequest::decode(&bytes[..]).as_ref(), Ok(&message), "{hex}");
        assert_eq!(message.encode_to_vec(), bytes, "{hex}");
    }
}

// G105
#[test]
fn answers_encode_as_documented() {
    for (hex, answer) in [
        ("0801120e08011204080a100218092202083a", "OK: OK 10/MINUTE 9 58s"),
        (
            "080212140802120c080a10021a067065722d69702202083a",
            "OVER_LIMIT: OVER_LIMIT 10/MINUTE \"per-ip\" 0 58s",
        ),
        ("08011208080118ffffffff0f", "OK: OK 4294967295"),
        ("080112020801", "OK: OK 0"),
    ] {
        let bytes = of_hex(hex);
        let message = RateLimitResponse::decode(&bytes[..]).expect(hex);
        assert_eq!((shown(&message), message.encode_to_vec()), (answer.to_owned(), bytes));
    }
}

/// Reads JSON by the compiled description alone, as an independent reader of proto3 JSON.
pub(crate) fn described(name: &str, json: &str) -> Option<DynamicMessage> {
    let pool = DescriptorPool::decode(DESCRIPTORS).expect("the descriptors are valid");
    let description = pool.get_message_by_name(name).unwrap_or_else(|| panic!("{name} is described"));
    let mut reader = Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(description, &mut reader).ok()?;
    reader.end().ok()?;
    Some(message)
}

/// Returns a message in JSON as one of our types. The description finds the same fields in its bytes.
fn translated<T: Message + Default>(name: &str, json: &str) -> T {
    let theirs = described(name, json).unwrap_or_else(|| panic!("{json} is a {name}"));
    let ours = T::decode(&theirs.encode_to_vec()[..]).expect("the types agree");
    let again = DynamicMessage::decode(theirs.descriptor(), &ours.encode_to_vec()[..]);
    assert_eq!(again, Ok(theirs), "{name}");
    ours
}

const REQUEST_NAME: &str = "envoy.service.ratelimit.v3.RateLimitRequest";

/// A request with every field set.
const REQUEST: &str = r#"{
    "domain": "rl",
    "descriptors": [{
        "entries": [{ "key": "foo", "value": "bär" }],
        "limit": { "requestsPerUnit": 42, "unit": "YEAR" },
        "hitsAddend": "18446744073709551615",
        "isNegativeHits": true
    }],
    "hitsAddend": 7
}"#;

/// An answer with every field set. No answer has a quota, so JSON is not written with one.
const ANSWER: &str = r#"{
    "overallCode": "OVER_LIMIT",
    "statuses": [{
        "code": "OVER_LIMIT",
        "currentLimit": { "requestsPerUnit": 10, "unit": "WEEK", "name": "per-ip" },
        "limitRemaining": 3,
        "durationUntilReset": "58s"
    }],
    "responseHeadersToAdd": [{ "key": "a", "value": "b", "rawValue": "/wA=" }],
    "requestHeadersToAdd": [{ "key": "c", "value": "d", "rawValue": "/wA=" }],
    "rawBody": "Ym9keQ==",
    "dynamicMetadata": { "text": "v", "7": 7, "half": -0.5, "no": false, "nothing": null, "list": [null], "map": {} }
}"#;

const QUOTA: &str = r#"{ "requests": 5, "validUntil": "2026-09-21T14:13:20Z", "id": "q" }"#;

// G105
#[test]
fn messages_match_their_description() {
    fn is_read<T: Message + Default + Debug + PartialEq + DeserializeOwned>(name: &str, json: &str) {
        assert_eq!(serde_json::from_str::<T>(json).expect(json), translated(name, json), "{name}");
    }
    fn is_written<T: Message + Default + Serialize>(name: &str, json: &str) {
        let ours = serde_json::to_value(translated::<T>(name, json)).expect(name);
        assert_eq!(ours, serde_json::from_str::<Value>(json).expect(json), "{name}");
    }
    is_read::<RateLimitRequest>(REQUEST_NAME, REQUEST);
    let answer = "envoy.service.ratelimit.v3.RateLimitResponse";
    for json in [ANSWER, r#"{"overallCode":"OK"}"#, "{}"] {
        is_written::<RateLimitResponse>(answer, json);
    }
    let quotas = format!(r#"{{"statuses":[{{"quota":{QUOTA}}}],"quota":{QUOTA}}}"#);
    translated::<RateLimitResponse>(answer, &quotas);
    let hold = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"foo","value":"x"}]}],"#;
    let reserve = format!(r#"{hold}"amount":"9","ttl":"60s"}}"#);
    is_read::<ReserveRequest>("kuadrant.service.ratelimit.v1.ReserveRequest", &reserve);
    let commit = format!(r#"{hold}"reservationId":"id","actualAmount":"7"}}"#);
    is_read::<CommitRequest>("kuadrant.service.ratelimit.v1.CommitRequest", &commit);
    let reserved = r#"{"code":"OK","reservationId":"id"}"#;
    is_written::<ReserveResponse>("kuadrant.service.ratelimit.v1.ReserveResponse", reserved);
    let committed = r#"{"reservationReleased":true}"#;
    is_written::<CommitResponse>("kuadrant.service.ratelimit.v1.CommitResponse", committed);
}

#[test]
fn request_texts_may_be_any_bytes() {
    let bytes = of_hex("0a01ff12080a060a01fe1201ff");
    let message = RateLimitRequest::decode(&bytes[..]).expect("texts are bytes");
    assert_eq!(message.domain, &b"\xff"[..]);
    assert_eq!(message.descriptors[0].entries[0].value, &b"\xff"[..]);
}

#[test]
fn unknown_fields_are_skipped() {
    let request: RateLimitRequest = translated(REQUEST_NAME, REQUEST);
    let mut bytes = request.encode_to_vec();
    bytes.extend(of_hex("a20603616263")); // field 100
    assert_eq!(RateLimitRequest::decode(&bytes[..]), Ok(request));
}
