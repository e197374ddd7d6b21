//! Reading of logs.

mod clf;
mod client;
mod decompress;
mod delimited;
mod fields;
mod jsonl;
mod keys;
mod row;
mod time;
mod wanted;
