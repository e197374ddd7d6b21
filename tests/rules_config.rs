//! Reading rules: what is refused and what is said of it, what is only warned of, our own keys, three formats, merging.
//!
//! Properties:
//! - any text is read or refused, in all formats, without a panic, and a refusal names a line;
//! - samples say the same in YAML, JSON and TOML;
//! - identities are unique, and the same for other numbers, algorithms and stores.
#![cfg(feature = "rules")]
#![allow(missing_docs, reason = "tests")]

#[path = "rules_config/formats.rs"]
mod formats;
#[path = "rules_config/go.rs"]
mod go;
#[path = "rules_config/guide.rs"]
mod guide;
#[path = "rules_config/ours.rs"]
mod ours;
#[path = "rules_config/properties.rs"]
mod properties;
#[path = "rules_config/refused.rs"]
mod refused;
#[path = "rules_config/shared.rs"]
mod shared;
#[path = "rules_config/support.rs"]
mod support;
#[path = "rules_config/warned.rs"]
mod warned;
