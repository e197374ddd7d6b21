//! The three forms of the messages agree: the Rust types, the files `*.proto`, and the compiled descriptors. `benches/protos` compiles
//! the files again.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage};
use prost_types::value::Kind;
use prost_types::{Struct, Timestamp, Value};
use tollgate_serve::proto::{
    Code, CommitRequest, CommitResponse, DESCRIPTORS, DescriptorStatus, Entry, ExpirationSpecifier,
    HeaderValue, Quota, RateLimit, RateLimitDescriptor, RateLimitOverride, RateLimitRequest,
    RateLimitResponse, RateLimitUnit, ReserveRequest, ReserveResponse, Unit,
};

fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: Bytes::copy_from_slice(domain.as_bytes()), descriptors, hits_addend: 0 }
}

fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let entries = entries.iter().map(|(key, value)| Entry { key: bytes(key), value: bytes(value) });
    RateLimitDescriptor { entries: entries.collect(), ..RateLimitDescriptor::default() }
}

fn of_hex(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal")).collect()
}

/// Bytes that Envoy 1.40 sent.
// G105
#[test]
fn captured_requests_decode_and_encode() {
    let foo = || descriptor(&[("foo", "bar")]);
    let with_hits = |hits, is_negative_hits| {
        vec![RateLimitDescriptor { hits_addend: Some(hits), is_negative_hits, ..foo() }]
    };
    let hourly = RateLimitOverride { requests_per_unit: 42, unit: RateLimitUnit::Hour as i32 };
    let rows = [
        (
            "0a02726c12120a100a0b67656e657269635f6b6579120176",
            request("rl", vec![descriptor(&[("generic_key", "v")])]),
        ),
        (
            "0a02726c122f0a1b0a0e72656d6f74655f6164647265737312093132372e302e302e310a100a0b67656e657269635f6b6579120176",
            request("rl", vec![descriptor(&[("remote_address", "127.0.0.1"), ("generic_key", "v")])]),
        ),
        ("0a02726c120e0a0a0a03666f6f12036261721a00", request("rl", with_hits(0, false))),
        ("0a02726c12110a0a0a03666f6f12036261721a0308ac02", request("rl", with_hits(300, false))),
        ("0a02726c12120a0a0a03666f6f12036261721a0208052001", request("rl", with_hits(5, true))),
        (
            "0a02726c12180a100a0b67656e657269635f6b65791201761204082a1003",
            request(
                "rl",
                vec![RateLimitDescriptor { limit: Some(hourly), ..descriptor(&[("generic_key", "v")]) }],
            ),
        ),
        (
            "0a056f7468657212130a080a03666f6f1201780a070a05656d707479",
            request("other", vec![descriptor(&[("foo", "x"), ("empty", "")])]),
        ),
        (
            "0a02726c120c0a0a0a03666f6f12036261721807",
            RateLimitRequest { hits_addend: 7, ..request("rl", vec![foo()]) },
        ),
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
    let limit = |name: &str| {
        Some(RateLimit { requests_per_unit: 10, unit: Unit::Minute as i32, name: name.to_owned() })
    };
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let (ok, over) = (Code::Ok as i32, Code::OverLimit as i32);
    let status = DescriptorStatus { code: ok, ..DescriptorStatus::default() };
    let rows = [
        (
            "0801120e08011204080a100218092202083a",
            (
                ok,
                DescriptorStatus {
                    current_limit: limit(""),
                    limit_remaining: 9,
                    duration_until_reset: seconds(58),
                    ..status.clone()
                },
            ),
        ),
        (
            "080212140802120c080a10021a067065722d69702202083a",
            (
                over,
                DescriptorStatus {
                    code: over,
                    current_limit: limit("per-ip"),
                    duration_until_reset: seconds(58),
                    ..status.clone()
                },
            ),
        ),
        ("08011208080118ffffffff0f", (ok, DescriptorStatus { limit_remaining: u32::MAX, ..status.clone() })),
        ("080112020801", (ok, status)),
    ];
    for (hex, (overall_code, status)) in rows {
        let message =
            RateLimitResponse { overall_code, statuses: vec![status], ..RateLimitResponse::default() };
        let bytes = of_hex(hex);
        assert_eq!(message.encode_to_vec(), bytes, "{hex}");
        assert_eq!(RateLimitResponse::decode(&bytes[..]).as_ref(), Ok(&message), "{hex}");
    }
}

/// Reads a message by the compiled description alone.
fn described(name: &str, message: &impl Message) -> DynamicMessage {
    let pool = DescriptorPool::decode(DESCRIPTORS).expect("the descriptors are valid");
    let description = pool.get_message_by_name(name).unwrap_or_else(|| panic!("{name} is described"));
    let read = DynamicMessage::decode(description, &message.encode_to_vec()[..]).expect("the types agree");
    assert_eq!(read.unknown_fields().count(), 0);
    read
}

/// A request with every field set.
fn full_request() -> RateLimitRequest {
    let limit = RateLimitOverride { requests_per_unit: 42, unit: RateLimitUnit::Year as i32 };
    let one = RateLimitDescriptor {
        limit: Some(limit),
        hits_addend: Some(u64::MAX),
        is_negative_hits: true,
        ..descriptor(&[("foo", "bär")])
    };
    RateLimitRequest { hits_addend: 7, ..request("rl", vec![one]) }
}

/// An answer with every field set.
pub(crate) fn full_answer() -> RateLimitResponse {
    let valid_until = ExpirationSpecifier::ValidUntil(Timestamp { seconds: 1_790_000_000, nanos: 0 });
    let quota = || Some(Quota { requests: 5, expiration_specifier: Some(valid_until), id: "q".to_owned() });
    let header = || HeaderValue {
        key: "a".to_owned(),
        value: "b".to_owned(),
        raw_value: Bytes::from_static(b"\xff\0"),
    };
    let text = Value { kind: Some(Kind::StringValue("v".to_owned())) };
    RateLimitResponse {
        overall_code: Code::OverLimit as i32,
        statuses: vec![DescriptorStatus {
            code: Code::OverLimit as i32,
            current_limit: Some(RateLimit {
                requests_per_unit: 10,
                unit: Unit::Week as i32,
                name: "per-ip".to_owned(),
            }),
            limit_remaining: 3,
            duration_until_reset: Some(prost_types::Duration { seconds: 58, nanos: 0 }),
            quota: quota(),
        }],
        response_headers_to_add: vec![header()],
        request_headers_to_add: vec![header()],
        raw_body: Bytes::from_static(b"body"),
        dynamic_metadata: Some(Struct { fields: [("k".to_owned(), text)].into() }),
        quota: quota(),
    }
}

// G105
#[test]
fn messages_match_their_description() {
    let (request, answer) = (full_request(), full_answer());
    let read = described("envoy.service.ratelimit.v3.RateLimitRequest", &request);
    assert_eq!(read.encode_to_vec(), request.encode_to_vec());
    let json = r#"{"domain":"rl","descriptors":[{"entries":[{"key":"foo","value":"bär"}],"#.to_owned()
        + r#""limit":{"requestsPerUnit":42,"unit":"YEAR"},"hitsAddend":"18446744073709551615","isNegativeHits":true}],"#
        + r#""hitsAddend":7}"#;
    assert_eq!(serde_json::to_string(&read).expect("it is valid"), json);
    let read = described("envoy.service.ratelimit.v3.RateLimitResponse", &answer);
    assert_eq!(read.encode_to_vec(), answer.encode_to_vec());
    let json = r#"{"overallCode":"OVER_LIMIT","statuses":[{"code":"OVER_LIMIT","#.to_owned()
        + r#""currentLimit":{"requestsPerUnit":10,"unit":"WEEK","name":"per-ip"},"limitRemaining":3,"durationUntilReset":"58s","#
        + r#""quota":{"requests":5,"validUntil":"2026-09-21T14:13:20Z","id":"q"}}],"#
        + r#""responseHeadersToAdd":[{"key":"a","value":"b","rawValue":"/wA="}],"requestHeadersToAdd":[{"key":"a","value":"b","rawValue":"/wA="}],"#
        + r#""rawBody":"Ym9keQ==","dynamicMetadata":{"k":"v"},"quota":{"requests":5,"validUntil":"2026-09-21T14:13:20Z","id":"q"}}"#;
    assert_eq!(serde_json::to_string(&read).expect("it is valid"), json);
}

#[test]
fn messages_of_holds_match_their_description() {
    let json = |name: &str, message: &dyn Fn(&str) -> DynamicMessage| {
        serde_json::to_string(&message(&format!("kuadrant.service.ratelimit.v1.{name}")))
            .expect("it is valid")
    };
    let RateLimitRequest { domain, descriptors, .. } = request("rl", vec![descriptor(&[("foo", "x")])]);
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let reserve = ReserveRequest { domain: domain.clone(), descriptors: descriptors.clone(), amount: 9, ttl };
    let reservation_id = Bytes::from_static(b"id");
    let commit = CommitRequest { domain, descriptors, reservation_id, actual_amount: 7 };
    let (start, code) =
        (r#"{"domain":"rl","descriptors":[{"entries":[{"key":"foo","value":"x"}]}],"#, Code::Ok as i32);
    let reserved = ReserveResponse { code, reservation_id: "id".to_owned() };
    let committed = CommitResponse { reservation_released: true };
    for (name, read, expected) in [
        (
            "ReserveRequest",
            &(|name: &str| described(name, &reserve)) as &dyn Fn(&str) -> _,
            format!(r#"{start}"amount":"9","ttl":"60s"}}"#),
        ),
        (
            "CommitRequest",
            &|name| described(name, &commit),
            format!(r#"{start}"reservationId":"id","actualAmount":"7"}}"#),
        ),
        (
            "ReserveResponse",
            &|name| described(name, &reserved),
            r#"{"code":"OK","reservationId":"id"}"#.to_owned(),
        ),
        ("CommitResponse", &|name| described(name, &committed), r#"{"reservationReleased":true}"#.to_owned()),
    ] {
        assert_eq!(json(name, read), expected);
    }
    assert_eq!(
        serde_json::to_string(&reserved).expect("it is valid"),
        r#"{"code":"OK","reservationId":"id"}"#
    );
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
    let mut bytes = full_request().encode_to_vec();
    bytes.extend(of_hex("a20603616263")); // field 100
    assert_eq!(RateLimitRequest::decode(&bytes[..]), Ok(full_request()));
}
