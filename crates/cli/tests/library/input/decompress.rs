//! Compressed inputs, and their lines.

use std::io::{Cursor, Write};

use tollgate_cli::input::decompress::{InputSource, LONGEST_LINE, Lines};
use tollgate_report::error::Error;

fn lines_of(bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, Error> {
    let mut lines = Lines::new(InputSource::from_reader("x", Box::new(Cursor::new(bytes)))?);
    let mut all = Vec::new();
    while let Some(line) = lines.next_line()? {
        all.push(line.bytes.to_vec());
    }
    Ok(all)
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn mixed_or_missing_line_ends_are_accepted() {
    let lines = lines_of(b"\xef\xbb\xbfa\r\nb\n\nc\rd".to_vec()).unwrap();
    assert_eq!(lines, [&b"a"[..], b"b", b"", b"c\rd"]);
}

#[test]
fn several_members_and_frames_are_read() {
    let mut two = gzip(b"a\nb");
    two.extend(gzip(b"c\n"));
    assert_eq!(lines_of(two).unwrap(), [&b"a"[..], b"bc"]);
    let mut two = zstd::encode_all(&b"a\nb"[..], 3).unwrap();
    two.extend(zstd::encode_all(&b"c\n"[..], 3).unwrap());
    assert_eq!(lines_of(two).unwrap(), [&b"a"[..], b"bc"]);
}

#[test]
fn truncated_file_error_names_position() {
    let mut text = Vec::new();
    let mut seed: u64 = 1;
    for _ in 0..40_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.extend(format!("{seed}\n").bytes());
    }
    for whole in [gzip(&text), zstd::encode_all(&text[..], 3).unwrap()] {
        for end in [whole.len() / 2, 40, 7] {
            let error = lines_of(whole[..end].to_vec()).unwrap_err().to_string();
            assert!(error.starts_with("x: line ") && error.contains("ends early"), "{error}");
        }
    }
}

#[test]
fn overlong_line_is_cut_next_line_is_whole() {
    let mut text = vec![b'a'; 3 * LONGEST_LINE];
    text.extend(b"\nb\n");
    let mut lines = Lines::new(InputSource::from_reader("x", Box::new(Cursor::new(text))).unwrap());
    let first = lines.next_line().unwrap().unwrap();
    assert!(first.cut && first.bytes.len() == LONGEST_LINE);
    let second = lines.next_line().unwrap().unwrap();
    assert_eq!((second.number, second.bytes, second.cut), (2, &b"b"[..], false));
    assert!(lines.next_line().unwrap().is_none());
}

#[test]
fn unsupported_compression_is_named() {
    let error = lines_of(b"\xfd7zXZ\0....".to_vec()).unwrap_err().to_string();
    assert!(error.contains("xz") && error.contains("decompress it first"), "{error}");
}
