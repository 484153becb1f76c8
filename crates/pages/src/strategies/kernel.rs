//! What NUMA balancing and its kin do with pages that were found accessed (Sections 8.2.2 and 8.8.2).
//!
//! - AutoNUMA brings a page to the program's socket, to the same kind of memory, where there is room.
//! - Memory-tiering brings it over sockets first, then from kind to kind, a step at a time; what was not seen accessed for
//!   long makes room, a kind down.
//! - AutoTiering brings it to the fastest tier with room, or changes places with a page whose history is shorter.
//! - Memory-optimizer moves pages between the two kinds of one socket, and never over sockets.

use super::{Orders, Planned};
use crate::placement::{NOWHERE, Placement};
use crate::tiers::Tiers;
use crate::watch::{Heat, Last, Move, Strategy, Why};

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// AutoNUMA.
    AutoNuma,
    /// Memory-tiering.
    MemoryTiering,
    /// AutoTiering.
    AutoTiering,
    /// Memory-optimizer.
    MemoryOptimizer,
}

/// The strategy.
pub struct Balancing {
    rule: Rule,
    random: fastrand::Rng,
    /// The interval in which a page was last seen accessed.
    last_seen: Vec<u32>,
    interval: u32,
}

impl Balancing {
    /// The strategy over so many pages.
    pub fn new(rule: Rule, pages: u32, seed: u64) -> Balancing {
        let random = fastrand::Rng::with_seed(seed ^ 0x6261_6c61);
        Balancing { rule, random, last_seen: vec![0; pages as usize], interval: 0 }
    }

    /// Where a page that was accessed should go.
    fn target(&self, tier: u8, tiers: &Tiers) -> Option<u8> {
        match self.rule {
            Rule::AutoNuma => tiers.nearer_socket(tier),
            Rule::MemoryTiering => tiers.nearer_socket(tier).or_else(|| tiers.faster_kind(tier)),
            Rule::AutoTiering => (tier > 0).then_some(0),
            Rule::MemoryOptimizer => tiers.faster_kind(tier),
        }
    }

    /// A page of a tier that was not seen for longest, among some that are looked at: an approximate LRU.
    fn victim(&mut self, tier: u8, placement: &Placement, gone: &[bool]) -> Option<u32> {
        let mut best: Option<u32> = None;
        for _ in 0..64 {
            let page = self.random.u32(..placement.pages() as u32);
            if placement.tier(page) != tier || gone[page as usize] {
                continue;
            }
            let older = best.is_none_or(|b| self.last_seen[page as usize] < self.last_seen[b as usize]);
            if older {
                best = Some(page);
            }
        }
        best.filter(|page| self.last_seen[*page as usize] < self.interval)
    }
}

impl Strategy for Balancing {
    fn decide(&mut self, heats: &[Heat], placement: &Placement, tiers: &Tiers, _last: &Last) -> Vec<Move> {
        self.interval += 1;
        let mut accessed = Vec::new();
        for heat in heats.iter().filter(|heat| heat.now > 0.0) {
            for page in heat.range() {
                self.last_seen[page as usize] = self.interval;
                // Memory-optimizer moves what was accessed in every scan, the others whatever faults.
                if self.rule != Rule::MemoryOptimizer || heat.hot {
                    accessed.push(page);
                }
            }
        }
        let mut planned = Planned::new(tiers);
        let mut gone = vec![false; placement.pages()];
        let mut orders = Orders::default();
        for page in accessed {
            let tier = placement.tier(page);
            if tier == NOWHERE {
                continue;
            }
            let Some(mut to) = self.target(tier, tiers) else { continue };
            if self.rule == Rule::AutoTiering {
                let free = (0..tier).find(|to| planned.free(placement, *to) > 0);
                to = free.unwrap_or(to);
            }
            if planned.free(placement, to) == 0 {
                if self.rule == Rule::AutoNuma {
                    continue;
                }
                let Some(victim) = self.victim(to, placement, &gone) else { continue };
                let lower = match self.rule {
                    Rule::AutoTiering => planned.lower(placement, to),
                    _ => tiers.slower_kind(to).filter(|lower| planned.free(placement, *lower) > 0),
                };
                let Some(lower) = lower else { continue };
                gone[victim as usize] = true;
                orders.add(victim, lower, Why::Room);
                planned.note(to, lower, 1);
            }
            orders.add(page, to, Why::Hot);
            planned.note(tier, to, 1);
            gone[page as usize] = true;
        }
        orders.finish()
    }
}
