//! The forms in which a caller may give a key.

use std::borrow::Borrow;
use std::hash::Hash;

/// A form of a key of type `K` that a caller can look up: `&str` for `String`, `&[u8]` for `Vec<u8>`, and `&K` itself.
///
/// Implemented for every type that [`ToOwned`] converts to `K`. The type must hash and compare in the same way as `K`.
///
/// # Examples
/// ```
/// use tollgate::{Gcra, Quota, RateLimiter};
///
/// let names = RateLimiter::keyed::<String, _>(Gcra::new(Quota::per_hour(10)));
/// assert!(names.check("alice").is_allowed());
/// let hashes = RateLimiter::keyed::<Vec<u8>, _>(Gcra::new(Quota::per_hour(10)));
/// assert!(hashes.check(&[0xCA, 0xFE][..]).is_allowed());
/// let pairs = RateLimiter::keyed::<(u32, String), _>(Gcra::new(Quota::per_hour(10)));
/// assert!(pairs.check(&(7, "upload".to_owned())).is_allowed());
/// ```
///
/// A limiter owns its keys, so its type of keys is `String`, and not `&str`:
///
/// ```compile_fail
/// # use tollgate::{Gcra, Quota, RateLimiter};
/// let limiter = RateLimiter::keyed::<&str, _>(Gcra::new(Quota::per_hour(10)));
/// let _ = limiter.check("alice"); // error: a limiter with keys of type `&str` cannot look up a key of type `str`
/// ```
#[diagnostic::on_unimplemented(
    message = "a limiter with keys of type `{K}` cannot look up a key of type `{Self}`",
    label = "not a form of `{K}`",
    note = "the limiter owns its keys: `keyed::<String>` takes `&str`, and `keyed::<Vec<u8>>` takes `&[u8]`",
    note = "other keys are passed by reference: `limiter.check(&7)`, with the type that the limiter has"
)]
pub trait Lookup<K>: Hash {
    /// Returns whether `held` is this key.
    fn is(&self, held: &K) -> bool;
    /// Returns the key to store at first sight.
    fn to_key(&self) -> K;
}

#[diagnostic::do_not_recommend]
impl<Q: ToOwned + Hash + Eq + ?Sized> Lookup<Q::Owned> for Q {
    #[inline]
    fn is(&self, held: &Q::Owned) -> bool {
        held.borrow() == self
    }

    fn to_key(&self) -> Q::Owned {
        self.to_owned()
    }
}
