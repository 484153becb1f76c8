//! Which pages of the file are free: a bit each, searched from where the last search ended.

use crate::area::zeroed;
use crate::sys::Errno;

/// Pages of a file.
pub struct Space {
    used: &'static mut [u64],
    pages: u32,
    free: u32,
    hand: u32,
}

impl Space {
    /// So many pages, all free.
    pub fn new(pages: u32) -> Result<Space, Errno> {
        Ok(Space { used: zeroed(pages.div_ceil(64) as usize)?, pages, free: pages, hand: 0 })
    }

    /// How many are free.
    #[cfg(test)]
    pub fn free(&self) -> u32 {
        self.free
    }

    fn is_free(&self, page: u32) -> bool {
        self.used.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 == 0)
    }

    /// Up to so many pages one after another: the first and how many. Longer runs are looked for a while.
    pub fn take(&mut self, wanted: u32) -> Option<(u32, u32)> {
        if self.free == 0 || wanted == 0 {
            return None;
        }
        let (mut best, mut passed, mut at) = ((0, 0), 0, self.hand);
        while passed < self.pages {
            if at >= self.pages {
                at = 0;
            }
            // Whole words that are in use are passed at once.
            if at.is_multiple_of(64) && self.used.get(at as usize / 64) == Some(&u64::MAX) {
                (at, passed) = (at + 64, passed + 64);
                continue;
            }
            let mut length = 0;
            while length < wanted && at + length < self.pages && self.is_free(at + length) {
                length += 1;
            }
            if length > best.1 {
                best = (at, length);
            }
            let long_enough = length == wanted || (best.1 > 0 && passed > 1 << 15);
            if long_enough {
                break;
            }
            (at, passed) = (at + length + 1, passed + length + 1);
        }
        let (first, length) = best;
        for page in first..first + length {
            if let Some(word) = self.used.get_mut(page as usize / 64) {
                *word |= 1 << (page % 64);
            }
        }
        self.free -= length;
        self.hand = first + length;
        (length > 0).then_some(best)
    }

    /// Gives a page back.
    pub fn give(&mut self, page: u32) {
        if page < self.pages
            && !self.is_free(page)
            && let Some(word) = self.used.get_mut(page as usize / 64)
        {
            *word &= !(1 << (page % 64));
            self.free += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn no_page_is_given_twice_and_none_is_lost() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut space = Space::new(1000).expect("memory");
        let mut held: Vec<u32> = Vec::new();
        for _ in 0..5000 {
            if random.bool() {
                match space.take(random.u32(1..64)) {
                    Some((first, count)) => {
                        for page in first..first + count {
                            assert!(page < 1000 && !held.contains(&page), "page {page} twice");
                            held.push(page);
                        }
                    }
                    None => assert_eq!(held.len(), 1000, "all are in use"),
                }
            } else {
                for _ in 0..random.usize(..48).min(held.len()) {
                    space.give(held.swap_remove(random.usize(..held.len())));
                }
            }
            assert_eq!(space.free() as usize + held.len(), 1000);
        }
        held.drain(..).for_each(|page| space.give(page));
        space.give(3);
        assert_eq!(space.free(), 1000, "a page that is free already stays one");
        assert_eq!(space.take(64).map(|(_, count)| count), Some(64));
    }
}
