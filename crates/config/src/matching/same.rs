//! The comparison of short texts.

/// Whether two texts are equal. Names of domains and keys of entries are short, so their words are compared here. A call of the C
/// library's comparison takes more instructions than the comparison itself, and its caller saves registers for it.
#[inline(always)]
pub fn is_same(one: &str, other: &str) -> bool {
    are_same(one.as_bytes(), other.as_bytes())
}

/// [`is_same`] for bytes.
#[inline(always)]
pub(super) fn are_same(one: &[u8], other: &[u8]) -> bool {
    if other.len() > SHORT { one == other } else { are_same_if_short(one, other) }
}

/// The length of the longest text that is compared without a call.
pub(super) const SHORT: usize = 16;

/// [`is_same`], if the second text has at most [`SHORT`] bytes; otherwise `false`. It calls nothing, so its caller saves no
/// registers.
#[inline(always)]
pub(super) fn is_same_if_short(one: &str, other: &str) -> bool {
    are_same_if_short(one.as_bytes(), other.as_bytes())
}

#[inline(always)]
fn are_same_if_short(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match other.len() {
        8..=SHORT => ends::<8>(one) == ends::<8>(other),
        4..8 => ends::<4>(one) == ends::<4>(other),
        2..4 => ends::<2>(one) == ends::<2>(other),
        0..2 => one.first() == other.first(),
        _ => false,
    }
}

/// Returns the first and the last bytes. They overlap in a short text.
#[inline(always)]
fn ends<const N: usize>(text: &[u8]) -> Option<[&[u8; N]; 2]> {
    Some([text.first_chunk()?, text.last_chunk()?])
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn each_byte_of_short_texts_is_compared() {
        let text: String = ('a'..='z').collect();
        for length in 0..=text.len() {
            let one = &text[..length];
            let copy = String::from(one);
            assert!(is_same(one, &copy), "{one}");
            assert!(!is_same(one, &text[..length.saturating_sub(1)]) || length == 0, "{one}");
            for at in 0..length {
                let mut other = one.to_owned();
                other.replace_range(at..=at, "!");
                assert!(!is_same(one, &other) && !is_same(&other, one), "{one} {other}");
            }
        }
    }
}
