//! Keys to small numbers, once: the replay itself never touches a key's text.

use std::collections::HashMap;
use std::rc::Rc;

use super::row::printable;

/// Every distinct key, numbered from 0 in the order of first sight.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    ids: HashMap<Rc<[u8]>, u32, ahash::RandomState>,
    texts: Vec<Rc<[u8]>>,
}

impl Keys {
    /// The key's number, a new one if it was not seen before; `None` after 2³² keys.
    pub fn intern(&mut self, key: &[u8]) -> Option<u32> {
        if let Some(&id) = self.ids.get(key) {
            return Some(id);
        }
        let id = u32::try_from(self.texts.len()).ok()?;
        let text: Rc<[u8]> = key.into();
        self.texts.push(Rc::clone(&text));
        self.ids.insert(text, id);
        Some(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// The key's text for people and for JSON.
    ///
    /// # Panics
    /// If no key has this number.
    pub fn name(&self, id: u32) -> String {
        printable(&self.texts[id as usize], 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_share_a_number() {
        let mut keys = Keys::default();
        let ids: Vec<_> = [&b"a"[..], b"b", b"a", b"\xff"].iter().map(|key| keys.intern(key)).collect();
        assert_eq!(ids, [Some(0), Some(1), Some(0), Some(2)]);
        assert_eq!((keys.len(), keys.name(2)), (3, "\\xff".to_owned()));
    }
}
