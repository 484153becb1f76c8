//! Two pools: HeMem, which keeps hot spans in DRAM and the rest in persistent memory, and DAMON's schemes, which promote
//! regions that are hot enough and demote those that nobody touches.

use super::{Orders, Planned};
use crate::placement::{NOWHERE, Placement};
use crate::tiers::Tiers;
use crate::watch::{Heat, Last, Move, Strategy, Why};

/// The strategy.
pub struct Pools {
    fast: u8,
    slow: u8,
    /// How many pages an interval, at most.
    promoted: u32,
    /// Whether pages of all tiers count, or only those of the two pools.
    all: bool,
}

impl Pools {
    /// HeMem: DRAM and the slower kind of the program's own socket; what lies elsewhere it does not know.
    pub fn hemem(tiers: &Tiers, promoted: u32) -> Pools {
        Pools { fast: 0, slow: Pools::slow(tiers), promoted, all: false }
    }

    /// DAMON's schemes for hot and cold memory.
    pub fn damon(tiers: &Tiers, promoted: u32) -> Pools {
        Pools { fast: 0, slow: Pools::slow(tiers), promoted, all: true }
    }

    /// The slower kind of memory of the program's own socket.
    pub fn slow(tiers: &Tiers) -> u8 {
        tiers.slower_kind(0).unwrap_or(tiers.len() as u8 - 1)
    }
}

impl Strategy for Pools {
    fn decide(&mut self, heats: &[Heat], placement: &Placement, tiers: &Tiers, _last: &Last) -> Vec<Move> {
        let mut planned = Planned::new(tiers);
        let mut orders = Orders::default();
        let cold = heats.iter().filter(|heat| !heat.hot);
        let mut cold: Vec<&Heat> = cold.collect();
        cold.sort_by(|a, b| a.mean.total_cmp(&b.mean));
        let resident = |page: &u32| placement.tier(*page) == self.fast;
        let mut victims = cold.into_iter().flat_map(Heat::range).filter(resident);
        let mut hot: Vec<&Heat> = heats.iter().filter(|heat| heat.hot).collect();
        hot.sort_by(|a, b| b.mean.total_cmp(&a.mean));
        let mut left = self.promoted;
        for page in hot.into_iter().flat_map(Heat::range) {
            let tier = placement.tier(page);
            if tier == NOWHERE || tier == self.fast || (!self.all && tier != self.slow) {
                continue;
            }
            if left == 0 {
                break;
            }
            if planned.free(placement, self.fast) == 0 {
                let Some(victim) = victims.next() else { break };
                if planned.free(placement, self.slow) == 0 {
                    break;
                }
                orders.add(victim, self.slow, Why::Room);
                planned.note(self.fast, self.slow, 1);
            }
            orders.add(page, self.fast, Why::Hot);
            planned.note(tier, self.fast, 1);
            left -= 1;
        }
        orders.finish()
    }
}
