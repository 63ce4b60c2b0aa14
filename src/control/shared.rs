//! A value that one part of the control thread sets and others read.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that all holders of a clone share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shared<T>(Arc<RwLock<T>>);

impl<T: Clone> Shared<T> {
    /// Begins with this value.
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(value)))
    }

    /// Sets the value for all holders.
    pub(crate) fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    /// Returns the value as it is now.
    pub(crate) fn get(&self) -> T {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
