//! The messages of Envoy's rate limit protocol, and of Kuadrant's variant, which uses the same messages.
//!
//! The Rust types are written by hand with prost's derives, so that a build needs neither protoc nor a build script. The
//! files `*.proto` describe the same messages, and `descriptors.bin` is their compiled form for reflection. Tests compile
//! the files again and compare all three.
//!
//! The files `discovery.proto` and `rules.proto` are the messages of a control plane, which the program only asks.
//!
//! Texts of a request are `bytes` here and `string` in the files `*.proto`; the encoding is the same. A decoder of `string` refuses bytes
//! that are not UTF-8, and gateways turn an error into a pass.

mod discovery;
mod enums;
mod json_forms;
mod messages;

pub use self::discovery::*;
pub use self::enums::*;
pub use self::json_forms::Object;
pub use self::messages::*;

/// The compiled form of the files `*.proto`: a `google.protobuf.FileDescriptorSet`.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
