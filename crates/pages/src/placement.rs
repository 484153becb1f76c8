//! Which page lies where, and how full every tier is. The one place that says so; policies read it, movers change it.

use crate::tiers::Tiers;

/// The mark of a page that has no memory.
pub const NOWHERE: u8 = u8::MAX;

/// Where every page lies.
#[derive(Clone, Debug)]
pub struct Placement {
    tier: Vec<u8>,
    used: Vec<usize>,
    room: Vec<usize>,
}

impl Placement {
    /// So many pages, none of which has memory yet.
    pub fn new(pages: usize, tiers: &Tiers) -> Placement {
        Placement {
            tier: vec![NOWHERE; pages],
            used: vec![0; tiers.len()],
            room: tiers.list.iter().map(|tier| tier.pages).collect(),
        }
    }

    /// How many pages there are.
    pub fn pages(&self) -> usize {
        self.tier.len()
    }

    /// The tier of a page, or [`NOWHERE`].
    pub fn tier(&self, page: u32) -> u8 {
        self.tier[page as usize]
    }

    /// How many pages a tier can still take.
    pub fn free(&self, tier: u8) -> usize {
        self.room[tier as usize].saturating_sub(self.used[tier as usize])
    }

    /// How many pages a tier holds.
    pub fn used(&self, tier: u8) -> usize {
        self.used[tier as usize]
    }

    /// Puts a page somewhere, if there is room.
    pub fn put(&mut self, page: u32, to: u8) -> bool {
        let from = self.tier[page as usize];
        if from == to || self.free(to) == 0 {
            return false;
        }
        if from != NOWHERE {
            self.used[from as usize] -= 1;
        }
        self.used[to as usize] += 1;
        self.tier[page as usize] = to;
        true
    }

    /// Notes what is so, room or not: on a real machine the kernel decides.
    pub fn note(&mut self, page: u32, is: u8) {
        let from = self.tier[page as usize];
        if from != NOWHERE {
            self.used[from as usize] -= 1;
        }
        if is != NOWHERE {
            self.used[is as usize] += 1;
        }
        self.tier[page as usize] = is;
    }

    /// Gives a page its first memory: on the fastest of these tiers that has room, as the kernel does.
    pub fn first_touch(&mut self, page: u32, order: &[u8]) -> Option<u8> {
        order.iter().copied().find(|tier| self.put(page, *tier))
    }
}
