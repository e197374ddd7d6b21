//! Reading rules: what is refused and what is said of it, what is only warned of, our own keys, three formats, merging.
//!
//! Properties:
//! - any text is read or refused, in all formats, without a panic, and a refusal names a line;
//! - samples say the same in YAML, JSON and TOML;
//! - identities are unique, and the same for other numbers, algorithms and stores.

mod formats;
mod go;
mod guide;
mod ours;
mod properties;
mod refused;
mod shared;
mod support;
mod warned;
