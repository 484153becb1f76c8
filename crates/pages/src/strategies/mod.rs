//! Ways to decide what moves, given how hot spans are.

pub mod benefit;
pub mod flat;
pub mod kernel;
pub mod pools;

use crate::placement::Placement;
use crate::tiers::Tiers;
use crate::watch::{Heat, Last, Move, Strategy, Why};

/// Nothing moves: pages stay where they were first touched (first-touch NUMA), or hardware moves lines (memory mode).
pub struct Stay;

impl Strategy for Stay {
    fn decide(&mut self, _: &[Heat], _: &Placement, _: &Tiers, _: &Last) -> Vec<Move> {
        Vec::new()
    }
}

/// Pages that will be gone from, or come to, each tier once everything planned so far has happened.
pub(crate) struct Planned {
    /// How many more pages each tier will hold.
    more: Vec<isize>,
    /// How many will come to each, whatever leaves it.
    arriving: Vec<usize>,
}

impl Planned {
    pub(crate) fn new(tiers: &Tiers) -> Planned {
        Planned { more: vec![0; tiers.len()], arriving: vec![0; tiers.len()] }
    }

    /// How many pages a tier can take after what is planned.
    pub(crate) fn free(&self, placement: &Placement, tier: u8) -> usize {
        (placement.free(tier) as isize - self.more[tier as usize]).max(0) as usize
    }

    /// The next slower tier with room for what makes room: room that is there now, because it goes first.
    pub(crate) fn lower(&self, placement: &Placement, tier: u8) -> Option<u8> {
        let lower = tier + 1..self.more.len() as u8;
        lower.into_iter().find(|to| placement.free(*to) > self.arriving[*to as usize])
    }

    pub(crate) fn note(&mut self, from: u8, to: u8, pages: usize) {
        self.more[from as usize] -= pages as isize;
        self.more[to as usize] += pages as isize;
        self.arriving[to as usize] += pages;
    }
}

/// How many promotions are gathered before they are given out together with what makes room for them.
const GATHERED: usize = 64;

/// Moves in the making: what makes room goes before what takes it, a few at a time, so that a mover that is stopped half-way
/// has done both; pages side by side become one move.
#[derive(Default)]
pub(crate) struct Orders {
    done: Vec<Move>,
    room: Vec<(u32, u8)>,
    hot: Vec<(u32, u8)>,
}

impl Orders {
    /// A page is to move.
    pub(crate) fn add(&mut self, page: u32, to: u8, why: Why) {
        match why {
            Why::Room => self.room.push((page, to)),
            Why::Hot => {
                self.hot.push((page, to));
                if self.hot.len() == GATHERED {
                    self.give_out();
                }
            }
        }
    }

    fn give_out(&mut self) {
        for (list, why) in [(&mut self.room, Why::Room), (&mut self.hot, Why::Hot)] {
            list.sort_unstable();
            for (page, to) in list.drain(..) {
                match self.done.last_mut() {
                    Some(last) if last.first + last.pages == page && last.to == to && last.why == why => {
                        last.pages += 1;
                    }
                    _ => self.done.push(Move { first: page, pages: 1, to, why }),
                }
            }
        }
    }

    /// All of them, in order.
    pub(crate) fn finish(mut self) -> Vec<Move> {
        self.give_out();
        self.done
    }
}
