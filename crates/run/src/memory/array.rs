//! Handles of arrays: which memory an array belongs to, and what becomes of it when its handle goes.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use tiercel_core::ObjectId;

/// What a memory and its arrays share: the memory's identity, and the objects whose handles are gone.
#[derive(Debug, Default)]
pub(super) struct Ties {
    dropped: Mutex<Vec<ObjectId>>,
}

impl Ties {
    /// Takes the objects whose handles have gone since this was last asked.
    pub(super) fn take_dropped(&self) -> Vec<ObjectId> {
        std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An array of numbers that lives in a [`Memory`](super::Memory), wherever the policy puts it.
///
/// It knows its memory: another one refuses it. Dropping it gives the array up.
#[derive(Debug)]
pub struct Array<T> {
    pub(super) object: ObjectId,
    pub(super) name: Arc<str>,
    pub(super) ties: Arc<Ties>,
    len: usize,
    element: PhantomData<T>,
}

impl<T> Array<T> {
    pub(super) fn new(object: ObjectId, name: Arc<str>, len: usize, ties: Arc<Ties>) -> Array<T> {
        Array { object, name, ties, len, element: PhantomData }
    }

    /// The object that holds its elements, as events name it.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// What it is called in events and plans.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many elements it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        self.ties.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(self.object);
    }
}
