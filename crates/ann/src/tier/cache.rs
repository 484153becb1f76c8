//! Pages of the slow tier that fast memory has room for, the least recently used going first (second chance).

use std::collections::HashMap;

use crate::arena::Arena;
use crate::file::PAGE;

/// What a slot costs beside its pages: places in a table that is half full at worst, and in a list.
const SLOT: usize = 64;

/// Groups of pages, by the first of each.
pub(crate) struct Cache {
    group: usize,
    most: usize,
    slots: HashMap<u64, u32>,
    /// Which group a slot has, and whether it was used since the hand last passed.
    held: Vec<(u64, bool)>,
    hand: usize,
    bytes: Arena,
}

impl Cache {
    /// Room for so many bytes of groups of so many pages.
    pub(crate) fn new(bytes: usize, group: usize) -> Cache {
        let most = bytes / (group * PAGE + SLOT);
        let (slots, held) = (HashMap::with_capacity(most), Vec::with_capacity(most));
        Cache { group, most, slots, held, hand: 0, bytes: Arena::new() }
    }

    /// A group, if it is here.
    pub(crate) fn get(&mut self, page: u64) -> Option<&[u8]> {
        let slot = *self.slots.get(&page)? as usize;
        self.held[slot].1 = true;
        let bytes = self.group * PAGE;
        Some(&self.bytes[slot * bytes..][..bytes])
    }

    /// Keeps a group.
    pub(crate) fn put(&mut self, page: u64, group: &[u8]) {
        if self.most == 0 || self.slots.contains_key(&page) {
            return;
        }
        let bytes = self.group * PAGE;
        let slot = if self.held.len() < self.most && self.bytes.resize_exact(self.grown()).is_ok() {
            self.held.push((page, false));
            self.held.len() - 1
        } else if self.held.is_empty() {
            return;
        } else {
            while std::mem::replace(&mut self.held[self.hand].1, false) {
                self.hand = (self.hand + 1) % self.held.len();
            }
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.held.len();
            self.slots.remove(&self.held[slot].0);
            self.held[slot] = (page, false);
            slot
        };
        self.slots.insert(page, slot as u32);
        self.bytes[slot * bytes..][..bytes].copy_from_slice(group);
    }

    /// How long the memory must be for one more: it grows by whole megabytes, never beyond the most.
    fn grown(&self) -> usize {
        let bytes = self.group * PAGE;
        let wanted = (self.held.len() + 1) * bytes;
        if wanted <= self.bytes.len() {
            self.bytes.len()
        } else {
            (wanted + (1 << 20)).min(self.most * bytes)
        }
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.bytes.len() + self.held.len() * SLOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_used_and_no_more_than_it_may() {
        let mut cache = Cache::new(5 * (PAGE + SLOT), 1);
        let page = |n: u64| vec![n as u8; PAGE];
        for n in 0..100 {
            cache.put(n, &page(n));
            assert_eq!(cache.get(0).unwrap(), page(0), "the first is always used");
            assert!(cache.resident() <= 5 * (PAGE + SLOT));
        }
        assert!(cache.get(3).is_none());
        let mut none = Cache::new(100, 1);
        none.put(1, &page(1));
        assert!(none.get(1).is_none());
    }
}
