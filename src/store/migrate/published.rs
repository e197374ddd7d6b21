//! A value with a number that one thread replaces while others use it.

use std::sync::Arc;

use crate::base::sync::{Loaded, Swap};

/// A value that can be replaced during use. A user can check afterwards whether it is still the current value.
#[derive(Debug)]
pub(crate) struct Published<T>(Swap<T>);

/// A value with a number. Each published value has a higher number than all values before it.
pub(crate) trait Numbered {
    /// The number of this value.
    fn number(&self) -> u64;
}

impl<T: Numbered> Published<T> {
    pub(crate) fn new(first: T) -> Self {
        Self(Swap::new(first))
    }

    #[inline]
    pub(crate) fn load(&self) -> Loaded<T> {
        self.0.load()
    }

    /// Replaces the current value. Only one thread at a time may call this.
    pub(crate) fn publish(&self, next: Arc<T>) {
        self.0.store(next);
    }

    /// Whether `value` is still the current value. The caller must call this after a fence.
    #[cold]
    pub(crate) fn is_present(&self, value: &T) -> bool {
        self.0.load().number() == value.number()
    }
}
