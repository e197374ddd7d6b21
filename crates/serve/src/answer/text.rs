//! Texts of requests, and the bounds of their number.
//!
//! A client controls values, because a gateway copies header fields into them. A value with bytes that are not UTF-8 is counted like any
//! other, because a gateway admits a request whose question fails.

use std::borrow::Cow;

use bytes::Bytes;
use smallvec::SmallVec;
use tonic::Status;

use super::super::proto::RateLimitRequest;
use super::settings::Settings;

/// The first of 128 characters that stand for the bytes from 0x80. They are the last characters of a private plane,
/// so texts have no use for them.
const STAND_INS: u32 = 0x10_FF80;

/// Checks the form of a request with this number of entries in each descriptor.
pub(super) fn check(
    domain: &[u8],
    entries: impl ExactSizeIterator<Item = usize>,
    settings: &Settings,
) -> Result<(), Status> {
    let invalid = |message: String| Err(Status::invalid_argument(message));
    if domain.is_empty() {
        return invalid("the domain is empty".to_owned());
    }
    let descriptors = entries.len();
    if descriptors == 0 {
        return invalid("the request has no descriptors".to_owned());
    }
    if descriptors > settings.max_descriptors {
        let most = settings.max_descriptors;
        return invalid(format!("the request has {descriptors} descriptors; the most is {most}"));
    }
    for (index, entries) in entries.enumerate() {
        if entries > settings.max_entries {
            let most = settings.max_entries;
            return invalid(format!("descriptor {index} has {entries} entries; the most is {most}"));
        }
    }
    Ok(())
}

/// The keys and values of the entries of all descriptors, one after another. Filled in place, because they are too large to move.
pub(super) type Pairs<'a> = SmallVec<[(&'a str, &'a str); 8]>;

/// Returns the domain of a request, and adds its other texts to `pairs`. `None` if one of them is not UTF-8: see [`make_texts`].
pub(super) fn texts<'a>(request: &'a RateLimitRequest, pairs: &mut Pairs<'a>) -> Option<&'a str> {
    let text = |bytes| str::from_utf8(bytes).ok();
    let domain = text(&request.domain)?;
    pairs.reserve(request.descriptors.iter().map(|descriptor| descriptor.entries.len()).sum());
    for entry in request.descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
        pairs.push((text(&entry.key)?, text(&entry.value)?));
    }
    Some(domain)
}

/// Makes all texts UTF-8.
#[cold]
pub(super) fn make_texts(request: &mut RateLimitRequest) {
    make_text(&mut request.domain);
    for entry in request.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries) {
        make_text(&mut entry.key);
        make_text(&mut entry.value);
    }
}

/// Returns a text after [`make_texts`].
pub(super) fn text(bytes: &Bytes) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

fn make_text(bytes: &mut Bytes) {
    if let Cow::Owned(text) = utf8(bytes) {
        *bytes = Bytes::from(text);
    }
}

/// Replaces each byte that is not UTF-8 by a character of its own. Different bytes stay different texts, and
/// the rest of the text still matches rules.
pub(super) fn utf8(bytes: &[u8]) -> Cow<'_, str> {
    str::from_utf8(bytes).map_or_else(|_| Cow::Owned(readable(bytes)), Cow::Borrowed)
}

#[cold]
fn readable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 3);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|&byte| {
            // Invalid bytes are 0x80 or more.
            char::from_u32(STAND_INS + u32::from(byte & 0x7F))
        }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    // G106
    #[test]
    fn invalid_bytes_stay_different_texts() {
        assert_eq!(readable(b"a\xffb\xfe"), "a\u{10FFFF}b\u{10FFFE}");
        assert_ne!(readable(b"Jos\xe9"), readable(b"Jos\xe8"));
        // A character that is cut off.
        assert_eq!(readable(b"/\xe2\x82"), "/\u{10FFE2}\u{10FF82}");
        let mut valid = Bytes::from_static("größe".as_bytes());
        make_text(&mut valid);
        assert_eq!(text(&valid), "größe");
    }
}
