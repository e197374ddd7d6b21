//! HTTP/2 frames as bytes, for clients that no library would be.

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::client::LIMIT;

/// What each connection begins with: the preface, and SETTINGS without any.
pub const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The types of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const GOAWAY: u8 = 7;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Returns the HEADERS of a call, whose message follows.
pub fn head(stream: u32) -> Vec<u8> {
    // By HPACK's static table: POST, http, :path, content-type. Then a new name.
    let mut fields = vec![0x83, 0x86];
    for (name, value) in [(&[4][..], LIMIT), (&[0x0f, 0x10], "application/grpc"), (b"\0\x02te", "trailers")] {
        fields.extend(name);
        fields.push(u8::try_from(value.len()).unwrap());
        fields.extend(value.bytes());
    }
    frame(HEADERS, END_HEADERS, stream, &fields)
}

/// Returns a whole call.
pub fn call(stream: u32, message: &[u8]) -> Vec<u8> {
    [head(stream), self::message(stream, message)].concat()
}

/// Returns the message of a call, which ends it.
pub fn message(stream: u32, message: &[u8]) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
    data.extend(message);
    frame(DATA, END_STREAM, stream, &data)
}

/// Reads a frame: its type, its stream and its payload. `None` at the end.
pub async fn next(stream: &mut (impl AsyncRead + Unpin)) -> Option<(u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut payload = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}

/// Whether a call on this stream is answered before the connection ends.
pub async fn is_answered(connection: &mut (impl AsyncRead + Unpin), stream: u32) -> bool {
    while let Some((kind, on, payload)) = next(connection).await {
        if kind == DATA && on == stream {
            return payload.len() > 5;
        }
    }
    false
}
