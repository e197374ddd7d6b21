//! The store of a generation, for callers that need nothing else of it.

use std::sync::Arc;

use super::{Generation, PaddedStore};
use crate::base::decision::Decision;

/// The store of a generation without the older ones. A caller that knows that no key takes over a debt charges it here, and
/// reads the generation itself only if it needs more.
#[derive(Debug)]
pub struct OwnStore<S>(Arc<PaddedStore<S>>);

impl<S> Clone for OwnStore<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S> OwnStore<S> {
    /// The store.
    #[inline(always)]
    pub fn get(&self) -> &S {
        &self.0.store
    }

    /// [`Generation::is_open_for`].
    #[inline(always)]
    pub fn is_open_for(&self, charge: &Decision) -> bool {
        self.0.is_open_for(charge)
    }
}

impl<S> Generation<S> {
    /// The store of this generation, without the generation.
    pub fn own_store(&self) -> OwnStore<S> {
        OwnStore(Arc::clone(&self.padded))
    }
}
