//! The conversion of keys to small numbers. It happens once: the replay itself never reads a key's text.

use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

use tollgate_report::text::printable;

/// All distinct texts, numbered from 0 in the order of their first use.
#[derive(Debug)]
pub struct Interner<T: ?Sized> {
    ids: HashMap<Rc<T>, u32, ahash::RandomState>,
    texts: Vec<Rc<T>>,
}

/// All distinct keys.
pub type Keys = Interner<[u8]>;

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self { ids: HashMap::default(), texts: Vec::new() }
    }
}

impl<T: Hash + Eq + ?Sized> Interner<T> {
    /// Returns the text's number, or a new one if the text is new; `None` after 2³² texts.
    pub fn intern<'t>(&mut self, text: &'t T) -> Option<u32>
    where
        Rc<T>: From<&'t T>,
    {
        if let Some(&id) = self.ids.get(text) {
            return Some(id);
        }
        // The last number means "no text".
        let id = u32::try_from(self.texts.len()).ok().filter(|&id| id != u32::MAX)?;
        let text: Rc<T> = text.into();
        self.texts.push(Rc::clone(&text));
        self.ids.insert(text, id);
        Some(id)
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns a text by its number.
    pub fn get(&self, id: u32) -> Option<&T> {
        self.texts.get(id as usize).map(|text| &**text)
    }
}

impl Keys {
    /// Returns the key's text for people and for JSON.
    ///
    /// # Panics
    /// Panics if no key has this number.
    pub fn name(&self, id: u32) -> String {
        printable(&self.texts[id as usize], 1000)
    }
}
