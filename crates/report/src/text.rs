//! Texts from others, which must not control a terminal.

/// Whether a character moves the cursor, ends a line or turns the direction of writing.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// [`printable`] for each line of a text, uncut.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(|line| printable(line.as_bytes(), usize::MAX)).collect::<Vec<_>>().join("\n")
}

/// Returns bytes as text for people: unprintable bytes are written `\xNN`, and a long text is cut.
pub fn printable(bytes: &[u8], most: usize) -> String {
    let mut text = String::new();
    for chunk in bytes[..bytes.len().min(most.saturating_mul(4))].utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\u{1f}' => text.push_str(" + "),
                c if is_unprintable(c) => text.extend(c.to_string().bytes().map(|b| format!("\\x{b:02x}"))),
                c => text.push(c),
            }
        }
        text.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
