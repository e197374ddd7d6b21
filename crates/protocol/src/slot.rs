//! The slot of a key in a Cluster. It determines where a call goes, and which calls fail together.

/// The number of parts of the shared state that fail by themselves. In a Cluster, each node that holds slots is a part;
/// with more nodes, some nodes share a part.
pub const PARTS: usize = 16;

/// The number of slots in a Cluster.
const SLOTS: u16 = 1 << 14;

/// The slot of a key. If the first braces in the key are not empty, only the text between them is hashed.
///
/// # Source
/// Redis Cluster specification, "Hash tags": CRC-16/XMODEM modulo 16,384.
pub fn slot(key: &[u8]) -> u16 {
    let braces = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|&byte| byte == b'}').filter(|&close| close > 0)?;
        Some(&inside[..close])
    });
    crc16(braces.unwrap_or(key)) % SLOTS
}

/// Returns the part of a key. The slots form `PARTS` equal ranges, and each range is a part. Nodes hold ranges of slots,
/// so keys of one range mostly fail together.
pub fn part(key: &[u8]) -> usize {
    range(slot(key))
}

/// Returns the part of a slot.
pub fn range(slot: u16) -> usize {
    usize::from(slot) * PARTS / usize::from(SLOTS)
}

/// CRC-16, bit by bit. It takes a microsecond for a key, which is little compared to a round trip.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            let next = crc << 1;
            if crc & 0x8000 == 0 { next } else { next ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of "123456789" is from the specification. The other values are answers of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_match_redis() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"x{foo}y{bar}"), 12_182);
        assert_eq!(slot(b"{}foo"), crc16(b"{}foo") % SLOTS, "empty braces are ignored");
        assert_eq!(slot(b"{foo"), crc16(b"{foo") % SLOTS);
        assert_eq!(slot(b""), 0);
        assert_eq!((part(b"foo"), part(b"")), (12_182 / 1_024, 0));
    }
}
