//! Where each page of the program is, by its address: two levels, the second of which is there only where something is kept.

use crate::area::{Plain, zeroed};
use crate::sys::{Errno, PAGE};

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the program's memory, or nowhere, because it was never touched.
    Here,
    /// In the program's memory, perhaps about to be given up by it: not to be taken away yet.
    Leaving,
    /// In the waiting room, at this number.
    Waiting(u32),
    /// In the file, at this page.
    File(u32),
}

/// Places that a number can name.
pub const MOST: u32 = (1 << 31) - 3;

impl Place {
    fn number(self) -> u32 {
        match self {
            Place::Here => 0,
            Place::Leaving => 1,
            Place::Waiting(at) => 1 << 31 | at,
            Place::File(at) => at + 2,
        }
    }

    fn of(number: u32) -> Place {
        match number {
            0 => Place::Here,
            1 => Place::Leaving,
            n if n >> 31 == 1 => Place::Waiting(n & !(1 << 31)),
            n => Place::File(n - 2),
        }
    }

    /// Whether its bytes are with us.
    pub fn is_away(self) -> bool {
        matches!(self, Place::Waiting(_) | Place::File(_))
    }
}

/// A span of addresses that is looked at as one.
pub const SPAN: u64 = 2 << 20;

const LEAF: u64 = 1 << 30;
const LEAVES: usize = 1 << 17;
const PAGES: usize = (LEAF / PAGE) as usize;
const SPANS: usize = (LEAF / SPAN) as usize;

/// A GiB of addresses.
#[repr(C)]
struct Leaf {
    pages: [u32; PAGES],
    heat: [u32; SPANS],
    given_up: [u32; SPANS],
}
// SAFETY: arrays of numbers.
unsafe impl Plain for Leaf {}

/// Where the pages are.
pub struct Table {
    leaves: &'static mut [Option<&'static mut Leaf>],
}
// SAFETY: a reference that is not there is all zero, and only this file stores others.
unsafe impl Plain for Option<&'static mut Leaf> {}

impl Table {
    /// All pages are here.
    pub fn new() -> Result<Table, Errno> {
        Ok(Table { leaves: zeroed(LEAVES)? })
    }

    fn leaf(&self, address: u64) -> Option<&Leaf> {
        self.leaves.get((address / LEAF) as usize)?.as_deref()
    }

    /// The leaf of an address, made if it is not there.
    fn made(&mut self, address: u64) -> Option<&mut Leaf> {
        let slot = self.leaves.get_mut((address / LEAF) as usize)?;
        if slot.is_none() {
            *slot = zeroed::<Leaf>(1).ok()?.first_mut();
        }
        slot.as_deref_mut()
    }

    /// Where a page is.
    pub fn get(&self, address: u64) -> Place {
        let number = self.leaf(address).and_then(|leaf| leaf.pages.get((address % LEAF / PAGE) as usize));
        Place::of(number.copied().unwrap_or(0))
    }

    /// Whether anything can be noted of addresses near this one.
    pub fn can_note(&mut self, address: u64) -> bool {
        self.made(address).is_some()
    }

    /// Notes where a page is; whether there is a place to note it.
    pub fn set(&mut self, address: u64, place: Place) -> bool {
        if place == Place::Here && self.leaf(address).is_none() {
            return true;
        }
        let number = self.made(address).and_then(|leaf| leaf.pages.get_mut((address % LEAF / PAGE) as usize));
        match number {
            Some(number) => {
                *number = place.number();
                true
            }
            None => false,
        }
    }

    /// The next address from here on, before an end, of which something may be noted.
    pub fn noted(&self, from: u64, end: u64) -> Option<u64> {
        let mut at = from;
        while at < end {
            if self.leaf(at).is_some() {
                return Some(at);
            }
            at = (at / LEAF + 1) * LEAF;
        }
        None
    }

    /// How hot a span is.
    pub fn heat(&self, address: u64) -> u32 {
        self.leaf(address)
            .and_then(|leaf| leaf.heat.get((address % LEAF / SPAN) as usize))
            .copied()
            .unwrap_or(0)
    }

    /// Makes a span hotter, or colder.
    pub fn warm(&mut self, address: u64, change: impl Fn(u32) -> u32) {
        let heat = self.made(address).and_then(|leaf| leaf.heat.get_mut((address % LEAF / SPAN) as usize));
        if let Some(heat) = heat {
            *heat = change(*heat);
        }
    }

    /// When pages of a span were last given up by the program, in turns of ours.
    pub fn given_up(&self, address: u64) -> u32 {
        let leaf = self.leaf(address);
        leaf.and_then(|leaf| leaf.given_up.get((address % LEAF / SPAN) as usize)).copied().unwrap_or(0)
    }

    /// Notes that pages of a span are given up now.
    pub fn note_given_up(&mut self, address: u64, turn: u32) {
        let noted =
            self.made(address).and_then(|leaf| leaf.given_up.get_mut((address % LEAF / SPAN) as usize));
        if let Some(noted) = noted {
            *noted = turn;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_there() {
        let mut table = Table::new().expect("memory");
        let base = 0x7f12_3456_7000;
        assert_eq!(table.get(base), Place::Here);
        assert_eq!(table.noted(base, base + LEAF * 3), None);
        for (at, place) in
            [Place::File(0), Place::Waiting(0), Place::Leaving, Place::File(MOST - 1), Place::Here]
                .into_iter()
                .enumerate()
        {
            let page = base + at as u64 * PAGE;
            assert!(table.set(page, place));
            assert_eq!(table.get(page), place);
        }
        assert!(!table.set(!(PAGE - 1), Place::Leaving), "no program has such addresses");
        assert_eq!(table.noted(base - LEAF, base + PAGE), Some(base / LEAF * LEAF));
        table.warm(base, |heat| heat + 3);
        assert_eq!((table.heat(base), table.heat(base + SPAN)), (3, 0));
    }
}
