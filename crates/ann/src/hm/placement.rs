//! Which touches of vectors and links are slow.

use std::collections::HashMap;

/// HM-ANN, its stepping stones (Figure 3.5), and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// HNSW with everything in fast memory.
    AllFast,
    /// HNSW with everything in slow memory.
    AllSlow,
    /// HNSW with the levels above 0 and the first vectors in fast memory, until it is full.
    FirstTouch,
    /// HNSW in slow memory behind fast memory as a cache, the least recently used going first.
    MemoryMode,
    /// HNSW with the levels above 0 in fast memory, and parallel searches of level 0 (Figure 3.4).
    HnswParallel,
    /// Level 1 of nodes with the most links.
    Promotion,
    /// The same with parallel searches of level 0.
    PromotionParallel,
    /// The same with fetching ahead: HM-ANN.
    HmAnn,
    /// HM-ANN with level 1 of nodes at random.
    RandomPromotion,
}

impl Variant {
    /// All of them.
    pub const ALL: [Variant; 9] = [
        Variant::AllFast,
        Variant::AllSlow,
        Variant::FirstTouch,
        Variant::MemoryMode,
        Variant::HnswParallel,
        Variant::Promotion,
        Variant::PromotionParallel,
        Variant::HmAnn,
        Variant::RandomPromotion,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Variant::AllFast => "all fast",
            Variant::AllSlow => "all slow",
            Variant::FirstTouch => "first touch",
            Variant::MemoryMode => "memory mode",
            Variant::HnswParallel => "hnsw, parallel level 0",
            Variant::Promotion => "promotion",
            Variant::PromotionParallel => "promotion, parallel level 0",
            Variant::HmAnn => "hm-ann",
            Variant::RandomPromotion => "random promotion",
        }
    }

    /// Whether level 1 is built anew.
    pub fn promotes(self) -> bool {
        use Variant::{HmAnn, Promotion, PromotionParallel, RandomPromotion};
        matches!(self, Promotion | PromotionParallel | HmAnn | RandomPromotion)
    }

    /// Whether level 0 is searched from several entries at once.
    pub(crate) fn parallel(self) -> bool {
        use Variant::{HmAnn, HnswParallel, PromotionParallel, RandomPromotion};
        matches!(self, HnswParallel | PromotionParallel | HmAnn | RandomPromotion)
    }

    /// Whether what level 0 will touch is fetched while level 1 is searched.
    pub(crate) fn prefetches(self) -> bool {
        matches!(self, Variant::HmAnn | Variant::RandomPromotion)
    }
}

/// Things that were used last, so many at most.
pub(crate) struct Recent {
    most: usize,
    slots: HashMap<u32, u32>,
    held: Vec<(u32, bool)>,
    hand: usize,
}

impl Recent {
    /// Nothing yet.
    pub(crate) fn new(most: usize) -> Recent {
        Recent { most, slots: HashMap::new(), held: Vec::new(), hand: 0 }
    }

    /// Whether a thing is there, without using it.
    pub(crate) fn holds(&self, thing: u32) -> bool {
        self.slots.contains_key(&thing)
    }

    /// Uses a thing, and tells whether it was there already.
    pub(crate) fn touch(&mut self, thing: u32) -> bool {
        if let Some(slot) = self.slots.get(&thing) {
            self.held[*slot as usize].1 = true;
            return true;
        }
        if self.most == 0 {
            return false;
        }
        let slot = if self.held.len() < self.most {
            self.held.push((thing, false));
            self.held.len() - 1
        } else {
            while std::mem::replace(&mut self.held[self.hand].1, false) {
                self.hand = (self.hand + 1) % self.most;
            }
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.most;
            self.slots.remove(&self.held[slot].0);
            self.held[slot] = (thing, false);
            slot
        };
        self.slots.insert(thing, slot as u32);
        false
    }
}
