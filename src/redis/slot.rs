//! Where a Cluster keeps a key.

/// The slot of a tag: CRC-16 (XMODEM) of what is between the braces, modulo 16,384, as the Cluster specification says.
pub(super) fn of(tag: &[u8]) -> u16 {
    let begin = tag.iter().position(|&byte| byte == b'{').map_or(0, |brace| brace + 1);
    let hashed = tag.get(begin..tag.len().saturating_sub(1)).unwrap_or(tag);
    let crc = hashed.iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
            (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    });
    crc % 16_384
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    #[test]
    fn slots_are_those_of_the_specification() {
        // The check value of CRC-16/XMODEM.
        assert_eq!(super::of(b"x{123456789}"), 0x31C3 % 16_384);
        assert_eq!(super::of(b"{}"), 0);
        assert_eq!(super::of(b""), 0);
    }
}
