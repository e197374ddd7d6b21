//! Reading of logs.

mod choice;
mod clf;
mod client;
mod decompress;
mod delimited;
mod fields;
mod jsonl;
mod keys;
mod row;
mod servers;
mod time;
mod wanted;
