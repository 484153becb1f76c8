//! Objects that were retired but are not freed yet, as under a garbage collector.

use tiercel_core::{Error, Manager, ObjectId};

/// Retired objects that wait for a collection.
#[derive(Clone, Debug, Default)]
pub struct Garbage(Vec<ObjectId>);

impl Garbage {
    /// The object will never be used again.
    pub fn add(&mut self, object: ObjectId) {
        self.0.push(object);
    }

    /// Frees what was retired, and tells of each object that it is gone; returns whether there was any.
    pub fn collect(&mut self, m: &mut Manager, mut gone: impl FnMut(ObjectId)) -> Result<bool, Error> {
        let mut any = false;
        for object in self.0.drain(..) {
            // A program may retire an object twice.
            if m.contains(object) {
                gone(object);
                m.retire(object)?;
                any = true;
            }
        }
        Ok(any)
    }
}
