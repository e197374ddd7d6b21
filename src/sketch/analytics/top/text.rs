//! Text of bounded length.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::LazyLock;

/// One hasher for all texts, so that the same text is the same key everywhere in the process. It has a secret, so
/// that no client can choose two long texts that are equal as keys.
static HASHER: LazyLock<ahash::RandomState> = LazyLock::new(ahash::RandomState::new);

/// A text cut to at most `N` bytes. Two cut texts are equal only if the whole texts are equal.
///
/// A longer text keeps three things: its beginning, up to the last whole character that fits; a hash of the whole
/// text; and the length of the whole text. So two texts with the same beginning stay different. (An exception is a
/// pair of equal length with the same 64-bit hash: about one pair in 10¹⁹. The hash has a secret.) `Display` prints a
/// cut text with a mark and the hash. The hash differs in each process, so the printed form of a cut text differs too.
///
/// The value has a fixed size and never allocates.
///
/// # Examples
/// ```
/// use tollgate::sketch::CutText;
///
/// let [short, long, other] =
///     ["/login", "/search?q=a+long+question", "/search?q=a+longer+one"].map(CutText::<12>::new);
/// assert_eq!((short.as_str(), short.is_cut()), ("/login", false));
/// assert_eq!((long.as_str(), long.is_cut()), ("/search?q=a+", true));
/// assert_eq!(long.as_str(), other.as_str());
/// assert_ne!(long, other);
///
/// assert_eq!(short.to_string(), "/login");
/// assert!(long.to_string().starts_with("/search?q=a+…#"));
/// ```
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct CutText<const N: usize> {
    /// The hash of the whole text.
    hash: u64,
    whole_len: usize,
    kept: usize,
    /// Zero after the first `kept` bytes.
    bytes: [u8; N],
}

impl<const N: usize> CutText<N> {
    /// Creates a key from the text, or from as many of its first characters as fit into `N` bytes.
    ///
    /// # Complexity
    /// O(length), because the whole text is hashed.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut kept = text.len().min(N);
        while !text.is_char_boundary(kept) {
            kept -= 1;
        }
        let mut bytes = [0; N];
        bytes[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        Self { hash: HASHER.hash_one(text), whole_len: text.len(), kept, bytes }
    }

    /// Returns the kept part of the text.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "it is cut between characters")]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.kept]).expect("cut between characters")
    }

    /// Returns whether the text was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.kept < self.whole_len
    }

    /// Returns the length of the whole text in bytes.
    #[must_use]
    pub fn whole_len(&self) -> usize {
        self.whole_len
    }
}

impl<const N: usize> From<&str> for CutText<N> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl<const N: usize> Hash for CutText<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl<const N: usize> fmt::Display for CutText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if self.is_cut() { write!(f, "…#{:016x}", self.hash) } else { Ok(()) }
    }
}

impl<const N: usize> fmt::Debug for CutText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)?;
        if self.is_cut() { write!(f, "…#{:016x}", self.hash) } else { Ok(()) }
    }
}
