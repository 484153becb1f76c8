//! What follows for the blocks left: a section is one machine, a head is a release date, the capacity is a deadline.
//!
//! Two rules, both from one-machine scheduling with a common deadline (Carlier and Pinson 1989):
//!
//! - *Room*: blocks in the order of their heads, each above the one before, must end below the capacity in each
//!   section. This is MiniMalloc's section inference with the heads of all blocks in place of the lowest one.
//! - *Not first*: if a block and a set of others cannot all lie above the block's head, one of the set lies
//!   beneath the block, so its head rises to the lowest end in the set. Of all sets the one with the highest ends tells
//!   most, and those are found in one pass over the blocks of a section by descending end.

use std::cmp::Reverse;

use super::{Part, Search};
use crate::layout::problem::lowest;

impl Search {
    /// Raises heads as far as one pass of the rules tells; false if the part cannot be solved.
    pub(super) fn infer(&mut self, part: &Part) -> bool {
        self.room(part) && (!self.not_first(part) || self.room(part))
    }

    /// Whether each section has room for what is left. Sorts the list by heads.
    fn room(&mut self, part: &Part) -> bool {
        let list = &mut self.lists[part.list.clone()];
        // Heads rise little by little: the list is almost sorted.
        for at in 1..list.len() {
            let k = list[at];
            let head = self.head[k as usize];
            let mut to = at;
            while to > 0 && self.head[list[to - 1] as usize] > head {
                list[to] = list[to - 1];
                to -= 1;
            }
            list[to] = k;
        }
        let tops = &mut self.scratch.tops;
        tops[part.sections.clone()].fill(0);
        let mut walls = self.walls.iter().peekable();
        for &k in list.iter() {
            let (block, head) = (&self.blocks[k as usize], self.head[k as usize]);
            while let Some((sections, at, size)) = walls.next_if(|(_, at, _)| *at <= head) {
                let sections = sections.start.max(part.sections.start)..sections.end.min(part.sections.end);
                if sections.start < sections.end {
                    tops[sections].iter_mut().for_each(|top| *top = (*top).max(*at) + size);
                }
            }
            let mut highest = 0;
            for top in &mut tops[block.sections()] {
                *top = (*top).max(head) + block.size;
                highest = highest.max(*top);
            }
            if highest > self.capacity {
                return false;
            }
        }
        true
    }

    /// Raises the heads of blocks that cannot come first; whether any rose.
    fn not_first(&mut self, part: &Part) -> bool {
        let list = &self.lists[part.list.clone()];
        // A section tells something new only if not all that is left fits above the highest head in it.
        let highest = &mut self.scratch.tops;
        highest[part.sections.clone()].fill(0);
        for &k in list {
            highest[self.blocks[k as usize].sections()].fill(self.head[k as usize]);
        }
        for s in part.sections.clone() {
            self.fresh[s] &= self.rest[s] + highest[s] > self.capacity;
        }
        let end = |k: u32| self.head[k as usize] + self.blocks[k as usize].size;
        let order = &mut self.scratch.order;
        order.clear();
        order.extend_from_slice(list);
        order.sort_unstable_by_key(|k| Reverse(end(*k)));
        let stacks = &mut self.scratch.stacks;
        stacks[part.sections.clone()].iter_mut().for_each(Vec::clear);
        for &k in order.iter() {
            let block = &self.blocks[k as usize];
            let entry = (end(k), block.size, k);
            for s in block.sections().filter(|s| self.fresh[*s]) {
                stacks[s].push(entry);
            }
        }
        self.fresh[part.sections.clone()].fill(false);
        let before = self.trail.len();
        for s in part.sections.clone() {
            let stack = std::mem::take(&mut self.scratch.stacks[s]);
            self.not_first_in(&stack);
            self.scratch.stacks[s] = stack;
        }
        self.trail.len() > before
    }

    /// The rule in one section, whose blocks come by descending end.
    fn not_first_in(&mut self, stack: &[(u64, u64, u32)]) {
        // `sum` is the size of the first `upto` blocks; lower ends leave more room, so both only grow.
        let (mut upto, mut sum) = (0, 0);
        for (at, &(end, size, k)) in stack.iter().enumerate() {
            let room = self.capacity.saturating_sub(end);
            while upto < stack.len() && sum <= room {
                sum += stack[upto].1;
                upto += 1;
            }
            // The same without the block itself.
            let (mut to, mut others) = (upto, if at < upto { sum - size } else { sum });
            while to < stack.len() && others <= room {
                others += if to == at { 0 } else { stack[to].1 };
                to += 1;
            }
            let last = if to == at + 1 { at.checked_sub(1) } else { to.checked_sub(1) };
            if let Some(last) = last.filter(|_| others > room) {
                let k = k as usize;
                let lowest_end = stack[last].0;
                if lowest_end > self.head[k] {
                    self.raise(k, lowest(lowest_end, &self.blocks[k], &self.blocked[k]));
                }
            }
        }
    }
}
