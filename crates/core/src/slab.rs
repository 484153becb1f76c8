//! Storage with stable keys: constant-time insert, look-up and remove, and a key of something removed never finds
//! what came after it.

/// The key of an entry; printed as its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    generation: u32,
}

#[derive(Clone, Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// Entries of one type under keys.
#[derive(Clone, Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Slab<T> {
        Slab { slots: Vec::new(), vacant: Vec::new() }
    }

    pub(crate) fn insert(&mut self, entry: T) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, entry: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(entry);
        Key { index, generation: slot.generation }
    }

    /// The position that the next entry will have.
    pub(crate) fn next_index(&self) -> u32 {
        self.vacant.last().copied().unwrap_or(self.slots.len() as u32)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|s| s.generation == key.generation)?;
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(key.index);
        Some(entry)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|s| s.generation == key.generation)?.entry.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|s| s.generation == key.generation)?.entry.as_mut()
    }

    /// The key of the entry at this position.
    pub(crate) fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.entry.as_ref().map(|_| Key { index, generation: slot.generation })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.entry.as_ref().map(|entry| (key, entry))
        })
    }
}

/// Makes a public key type of its own for one kind of entry.
macro_rules! key {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub(crate) crate::slab::Key);

        impl $name {
            /// A small number that no other live one has: an index for tables of one's own.
            #[allow(dead_code)] // not every kind of entry is looked up by position
            pub fn index(self) -> usize {
                self.0.index as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($what, " {}"), self.0.index)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_u32(self.0.index)
            }
        }
    };
}
pub(crate) use key;
