//! The file of quotas that clients send, which `--state` keeps beside the one of the rules.
//!
//! ```text
//! magic 16 | the seeds | each quota with the usage of its keys | an empty record
//! a record:  the length of its message u64 | SHA-256 of the message | the message
//! ```

use std::io::{self, Read, Write};

use prost::Message;
use ring::digest::{SHA256, digest};

/// The last number is the version.
const MAGIC: &[u8; 16] = b"tollgate resp 1\n";

/// Returns the error of bytes that cannot be used. Every other error is one of the reader.
pub fn unusable(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

fn damaged() -> io::Error {
    unusable("it is damaged or cut off: a checksum does not match")
}

fn fill(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<()> {
    from.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(),
        _ => error,
    })
}

#[derive(Clone, PartialEq, Message)]
struct SavedSeeds {
    #[prost(fixed64, repeated, tag = "1")]
    seeds: Vec<u64>,
}

/// A quota, when it was charged last, and the snapshot of its store.
#[derive(Clone, PartialEq, Message)]
pub struct SavedQuota {
    #[prost(uint64, tag = "1")]
    pub burst: u64,
    #[prost(uint64, tag = "2")]
    pub count: u64,
    #[prost(uint64, tag = "3")]
    pub period_ns: u64,
    #[prost(fixed64, tag = "4")]
    pub charged_ns: u64,
    #[prost(bytes = "vec", tag = "5")]
    pub usage: Vec<u8>,
    /// The user that was the first to send it.
    #[prost(string, tag = "6")]
    pub user: String,
    /// The most keys of a keyed store; 0 for a compact one.
    #[prost(uint64, tag = "7")]
    pub most_keys: u64,
}

/// Writes what comes before the quotas.
///
/// # Errors
/// If `to` returns an error.
pub fn begin(to: &mut impl Write, seeds: [u64; 4]) -> io::Result<()> {
    to.write_all(MAGIC)?;
    put(to, &SavedSeeds { seeds: seeds.to_vec() })
}

/// Writes a record. An empty one, `()`, is the last.
///
/// # Errors
/// If `to` returns an error.
pub fn put(to: &mut impl Write, record: &impl Message) -> io::Result<()> {
    let bytes = record.encode_to_vec();
    to.write_all(&(bytes.len() as u64).to_le_bytes())?;
    to.write_all(digest(&SHA256, &bytes).as_ref())?;
    to.write_all(&bytes)
}

/// Returns the seeds.
///
/// # Errors
/// If the bytes are another file, or damaged, or if `from` returns an error.
pub fn read_begin(from: &mut impl Read) -> io::Result<[u64; 4]> {
    let mut magic = [0; MAGIC.len()];
    fill(from, &mut magic)?;
    if magic != *MAGIC {
        return Err(unusable("it is no file of limits of Redis clients, or one of a later version"));
    }
    let seeds = next::<SavedSeeds>(from)?.unwrap_or_default().seeds;
    seeds.try_into().map_err(|_| damaged())
}

/// Returns an error if bytes follow the last record: the file was written over, or two files are in it.
///
/// # Errors
/// If there are bytes, or if `from` returns an error.
pub fn read_end(from: &mut impl Read) -> io::Result<()> {
    match from.take(1).read_to_end(&mut Vec::new())? {
        0 => Ok(()),
        _ => Err(unusable("it is damaged: bytes follow its end")),
    }
}

/// Returns the next record, or `None` at the end. Takes memory in proportion to the bytes that there are.
///
/// # Errors
/// If the bytes are damaged, or if `from` returns an error.
pub fn next<M: Message + Default>(from: &mut impl Read) -> io::Result<Option<M>> {
    let (mut length, mut sum, mut bytes) = ([0; 8], [0; 32], Vec::new());
    fill(from, &mut length)?;
    fill(from, &mut sum)?;
    let length = u64::from_le_bytes(length);
    from.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length || digest(&SHA256, &bytes).as_ref() != sum {
        return Err(damaged());
    }
    let record = (!bytes.is_empty()).then(|| M::decode(&bytes[..]));
    record.transpose().map_err(|error| unusable(error.to_string()))
}
