//! The messages of a control plane as Rust types: the stream, and the rules in it. Rules are written as JSON in the
//! language of files.

use prost::Message;
use prost_types::{Any, Struct};
use serde::{Serialize, Serializer};

use super::enums::Unit;
use super::json_forms as form;

/// `envoy.service.discovery.v3.DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryRequest {
    /// The last version that was put in force.
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, optional, tag = "2")]
    pub node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub response_nonce: String,
    /// Why the set with this nonce is refused.
    #[prost(message, optional, tag = "6")]
    pub error_detail: Option<Status>,
}

/// `envoy.service.discovery.v3.DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub resources: Vec<Any>,
    #[prost(bool, tag = "3")]
    pub canary: bool,
    #[prost(string, tag = "4")]
    pub type_url: String,
    #[prost(string, tag = "5")]
    pub nonce: String,
    #[prost(message, repeated, tag = "7")]
    pub resource_errors: Vec<ResourceError>,
}

/// `envoy.service.discovery.v3.ResourceError`.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceError {
    #[prost(message, optional, tag = "1")]
    pub resource_name: Option<ResourceName>,
    #[prost(message, optional, tag = "2")]
    pub error_detail: Option<Status>,
}

/// `envoy.service.discovery.v3.ResourceName`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ResourceName {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `envoy.config.core.v3.Node`.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub cluster: String,
    #[prost(message, optional, tag = "3")]
    pub metadata: Option<Struct>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitConfig`.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct RateLimitConfig {
    #[serde(skip)]
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub domain: String,
    #[prost(message, repeated, tag = "3")]
    pub descriptors: Vec<RuleDescriptor>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitDescriptor`.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct RuleDescriptor {
    #[prost(string, tag = "1")]
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "2")]
    pub value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "3")]
    pub rate_limit: Option<RateLimitPolicy>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "4")]
    pub descriptors: Vec<RuleDescriptor>,
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(bool, tag = "5")]
    pub shadow_mode: bool,
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(bool, tag = "6")]
    pub detailed_metric: bool,
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(bool, tag = "7")]
    pub quota_mode: bool,
    #[serde(serialize_with = "form::metadata", skip_serializing_if = "Option::is_none")]
    #[prost(message, optional, tag = "8")]
    pub metadata: Option<Struct>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitPolicy`.
#[derive(Clone, PartialEq, Message, Serialize)]
pub struct RateLimitPolicy {
    #[serde(serialize_with = "unit_name", skip_serializing_if = "form::is_default")]
    #[prost(enumeration = "Unit", tag = "1")]
    pub unit: i32,
    #[prost(uint32, tag = "2")]
    pub requests_per_unit: u32,
    #[serde(skip_serializing_if = "form::is_default")]
    #[prost(bool, tag = "3")]
    pub unlimited: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[prost(string, tag = "4")]
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[prost(message, repeated, tag = "5")]
    pub replaces: Vec<RateLimitReplace>,
}

/// `ratelimit.config.ratelimit.v3.RateLimitReplace`.
#[derive(Clone, PartialEq, Eq, Message, Serialize)]
pub struct RateLimitReplace {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Writes a unit as in a file. A number without a name is written as it is, and refused with the rest of its file.
fn unit_name<S: Serializer>(unit: &i32, to: S) -> Result<S::Ok, S::Error> {
    match Unit::try_from(*unit) {
        Ok(unit) => to.serialize_str(&unit.as_str_name().to_ascii_lowercase()),
        Err(_) => to.serialize_str(&unit.to_string()),
    }
}
