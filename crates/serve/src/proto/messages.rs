//! The messages as Rust types. The numbers are those of the files `*.proto` in this folder.
//!
//! Requests can be read from JSON, and answers can be written as JSON.

use bytes::Bytes;
use prost::Message;
use prost_types::{Duration, Struct, Timestamp};
use serde::{Deserialize, Serialize};

use super::enums::{Code, Unit};
use super::json_forms as form;

/// `envoy.service.ratelimit.v3.RateLimitRequest`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RateLimitRequest {
    #[serde(deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "1")]
    pub domain: Bytes,
    #[serde(deserialize_with = "form::objects")]
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The cost for descriptors without their own. 0 stands for 1.
    #[serde(alias = "hits_addend", deserialize_with = "form::number")]
    #[prost(uint32, tag = "3")]
    pub hits_addend: u32,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RateLimitDescriptor {
    #[serde(deserialize_with = "form::objects")]
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    #[serde(deserialize_with = "form::optional_object")]
    #[prost(message, optional, tag = "2")]
    pub limit: Option<RateLimitOverride>,
    /// The cost under this descriptor's limits. 0 is a query.
    #[serde(alias = "hits_addend", deserialize_with = "form::optional_number")]
    #[prost(message, optional, tag = "3")]
    pub hits_addend: Option<u64>,
    /// Whether the hits are given back.
    #[serde(alias = "is_negative_hits", deserialize_with = "form::nullable")]
    #[prost(bool, tag = "4")]
    pub is_negative_hits: bool,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.Entry`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Entry {
    #[serde(deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "1")]
    pub key: Bytes,
    #[serde(deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "2")]
    pub value: Bytes,
}

/// `envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride`.
#[derive(Copy, Clone, PartialEq, Eq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct RateLimitOverride {
    #[serde(alias = "requests_per_unit", deserialize_with = "form::number")]
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[serde(deserialize_with = "form::unit")]
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
}

/// `kuadrant.service.ratelimit.v1.ReserveRequest`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ReserveRequest {
    #[serde(deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "1")]
    pub domain: Bytes,
    #[serde(deserialize_with = "form::objects")]
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    /// The units to hold.
    #[serde(deserialize_with = "form::number")]
    #[prost(uint64, tag = "3")]
    pub amount: u64,
    /// How long the hold may live.
    #[serde(deserialize_with = "form::optional_duration")]
    #[prost(message, optional, tag = "4")]
    pub ttl: Option<Duration>,
}

/// `kuadrant.service.ratelimit.v1.ReserveResponse`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReserveResponse {
    #[serde(serialize_with = "form::code", skip_serializing_if = "form::is_default")]
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// Empty if the units are not held.
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "2")]
    pub reservation_id: String,
}

/// `kuadrant.service.ratelimit.v1.CommitRequest`.
#[derive(Clone, PartialEq, Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct CommitRequest {
    #[serde(deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "1")]
    pub domain: Bytes,
    #[serde(deserialize_with = "form::objects")]
    #[prost(message, repeated, tag = "2")]
    pub descriptors: Vec<RateLimitDescriptor>,
    #[serde(alias = "reservation_id", deserialize_with = "form::text")]
    #[prost(bytes = "bytes", tag = "3")]
    pub reservation_id: Bytes,
    /// The units that were used.
    #[serde(alias = "actual_amount", deserialize_with = "form::number")]
    #[prost(uint64, tag = "4")]
    pub actual_amount: u64,
}

/// `kuadrant.service.ratelimit.v1.CommitResponse`.
#[derive(Copy, Clone, PartialEq, Eq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommitResponse {
    /// Whether the hold was still there.
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(bool, tag = "1")]
    pub reservation_released: bool,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitResponse {
    #[serde(serialize_with = "form::code", skip_serializing_if = "form::is_default")]
    #[prost(enumeration = "Code", tag = "1")]
    pub overall_code: i32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "2")]
    pub statuses: Vec<DescriptorStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "3")]
    pub response_headers_to_add: Vec<HeaderValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "4")]
    pub request_headers_to_add: Vec<HeaderValue>,
    #[serde(serialize_with = "form::base64", skip_serializing_if = "Bytes::is_empty")]
    #[prost(bytes = "bytes", tag = "5")]
    pub raw_body: Bytes,
    #[serde(serialize_with = "form::metadata", skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "6")]
    pub dynamic_metadata: Option<Struct>,
    #[serde(skip)]
    #[prost(message, optional, tag = "7")]
    pub quota: Option<Quota>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.DescriptorStatus`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DescriptorStatus {
    #[serde(serialize_with = "form::code", skip_serializing_if = "form::is_default")]
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "2")]
    pub current_limit: Option<RateLimit>,
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(uint32, tag = "3")]
    pub limit_remaining: u32,
    #[serde(serialize_with = "form::duration", skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "4")]
    pub duration_until_reset: Option<Duration>,
    #[serde(skip)]
    #[prost(message, optional, tag = "5")]
    pub quota: Option<Quota>,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.RateLimit`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateLimit {
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(uint32, tag = "1")]
    pub requests_per_unit: u32,
    #[serde(serialize_with = "form::answer_unit", skip_serializing_if = "form::is_default")]
    #[prost(enumeration = "Unit", tag = "2")]
    pub unit: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "3")]
    pub name: String,
}

/// `envoy.service.ratelimit.v3.RateLimitResponse.Quota`: units that the client may spend without asking. No answer has
/// one, because Envoy does not read it.
#[derive(Clone, PartialEq, Message)]
pub struct Quota {
    #[prost(uint32, tag = "1")]
    pub requests: u32,
    #[prost(oneof = "ExpirationSpecifier", tags = "2")]
    pub expiration_specifier: Option<ExpirationSpecifier>,
    #[prost(string, tag = "3")]
    pub id: String,
}

/// When a [`Quota`] expires.
#[derive(Copy, Clone, PartialEq, Eq, prost::Oneof)]
pub enum ExpirationSpecifier {
    #[prost(message, tag = "2")]
    ValidUntil(Timestamp),
}

/// `envoy.config.core.v3.HeaderValue`.
#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeaderValue {
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "1")]
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "2")]
    pub value: String,
    /// Envoy ignores this field in answers.
    #[serde(serialize_with = "form::base64", skip_serializing_if = "Bytes::is_empty")]
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}
