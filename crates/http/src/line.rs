//! Builds the value of one field, on the stack unless it is long.

use http::HeaderValue;

/// The largest integer of a structured field (RFC 9651 §3.3.1): fifteen digits.
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The number of bytes that fit on the stack: enough for about six policies.
const INLINE: usize = 256;

/// The value of a field. It holds printable ASCII only.
pub(crate) struct FieldValue {
    inline: [u8; INLINE],
    len: usize,
    /// The whole value if it does not fit on the stack. Otherwise empty.
    long: Vec<u8>,
}

impl FieldValue {
    pub(crate) const fn new() -> Self {
        Self { inline: [0; INLINE], len: 0, long: Vec::new() }
    }

    /// Appends ASCII text.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            if let Some(room) = self.inline.get_mut(self.len..self.len + bytes.len()) {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.long.reserve(2 * INLINE + bytes.len());
            self.long.extend_from_slice(&self.inline[..self.len]);
        }
        self.long.extend_from_slice(bytes);
    }

    /// Appends the separator between list members, unless this is the first member.
    pub(crate) fn comma(&mut self) {
        if self.len > 0 {
            self.text(", ");
        }
    }

    /// Appends a number, at most [`MAX_INTEGER`].
    pub(crate) fn number(&mut self, number: u64) {
        let mut digits = [b'0'; 15];
        let mut rest = number.min(MAX_INTEGER);
        let mut first = digits.len();
        while rest > 0 || first == digits.len() {
            first -= 1;
            digits[first] += (rest % 10) as u8;
            rest /= 10;
        }
        self.bytes(&digits[first..]);
    }

    /// Appends a name as a quoted string.
    pub(crate) fn name(&mut self, name: &str) {
        self.text("\"");
        escape(name, |bytes| self.bytes(bytes));
        self.text("\"");
    }

    /// Appends bytes as a byte sequence: base64 between colons.
    pub(crate) fn sequence(&mut self, bytes: &[u8]) {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        self.text(":");
        for chunk in bytes.chunks(3) {
            let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
            let bits = at(0) << 16 | at(1) << 8 | at(2);
            let mut four = [18, 12, 6, 0].map(|shift| ALPHABET[((bits >> shift) & 63) as usize]);
            four[chunk.len() + 1..].fill(b'=');
            self.bytes(&four);
        }
        self.text(":");
    }

    fn as_bytes(&self) -> &[u8] {
        if self.long.is_empty() { &self.inline[..self.len] } else { &self.long }
    }

    /// Returns the value, or `None` if nothing was written.
    pub(crate) fn value(&self) -> Option<HeaderValue> {
        // The conversion cannot fail: the bytes are printable ASCII.
        HeaderValue::from_bytes(self.as_bytes()).ok().filter(|value| !value.is_empty())
    }
}

/// Yields the pieces of a policy's name as a quoted string, in the form that clients see. Structured fields and JSON
/// use the same form: a backslash precedes quotes and backslashes. All characters outside printable ASCII, and `%`, are
/// percent-encoded UTF-8.
pub(crate) fn escape(name: &str, mut push: impl FnMut(&[u8])) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in name.as_bytes() {
        match byte {
            b'"' | b'\\' => push(&[b'\\', byte]),
            b'%' | 0..0x20 | 0x7F.. => {
                push(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
            _ => push(&[byte]),
        }
    }
}
