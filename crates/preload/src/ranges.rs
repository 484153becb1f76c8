//! Which addresses are ours to watch: ranges in order, none beside or inside another.

use crate::area::zeroed;
use crate::sys::{Errno, Run};

/// So many ranges are watched; programs with more keep the rest to themselves.
const MOST: usize = 8192;

/// Ranges of addresses.
pub struct Ranges {
    list: &'static mut [Run],
    count: usize,
}

impl Ranges {
    /// None yet.
    pub fn new() -> Result<Ranges, Errno> {
        Ok(Ranges { list: zeroed(MOST)?, count: 0 })
    }

    /// All of them, in order.
    pub fn all(&self) -> &[Run] {
        self.list.get(..self.count).unwrap_or(&[])
    }

    /// Whether more are taken in; places are left for ranges that are cut.
    fn has_room(&self) -> bool {
        self.count < MOST / 2
    }

    /// Bytes in all of them.
    pub fn bytes(&self) -> u64 {
        self.all().iter().map(|range| range.end - range.start).sum()
    }

    /// The first range that ends behind an address.
    pub fn from(&self, address: u64) -> Option<Run> {
        let at = self.all().partition_point(|range| range.end <= address);
        self.all().get(at).copied()
    }

    /// Whether an address is in one.
    pub fn has(&self, address: u64) -> bool {
        self.from(address).is_some_and(|range| range.start <= address)
    }

    /// Takes a range in; whether there was room.
    pub fn add(&mut self, start: u64, end: u64) -> bool {
        if start >= end {
            return true;
        }
        if !self.has_room() {
            return false;
        }
        // Those that it touches become one with it.
        let first = self.all().partition_point(|range| range.end < start);
        let last = self.all().partition_point(|range| range.start <= end);
        let mut whole = Run { start, end, kinds: 0 };
        if first < last {
            whole.start = whole.start.min(self.list[first].start);
            whole.end = whole.end.max(self.list[last - 1].end);
        }
        self.replace(first, last, &[whole]);
        true
    }

    /// Takes a range out.
    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.all().partition_point(|range| range.end <= start);
        let last = self.all().partition_point(|range| range.start < end);
        if start >= end || first >= last {
            return;
        }
        let (left, right) = (self.list[first], self.list[last - 1]);
        let mut rest = [Run::default(); 2];
        let mut count = 0;
        if left.start < start {
            rest[count] = Run { start: left.start, end: start, kinds: 0 };
            count += 1;
        }
        if right.end > end {
            rest[count] = Run { start: end, end: right.end, kinds: 0 };
            count += 1;
        }
        // Where there is no place for both halves, one is forgotten: nothing of it is taken away any more.
        let room = MOST - self.count + (last - first);
        self.replace(first, last, &rest[..count.min(room)]);
    }

    fn replace(&mut self, first: usize, last: usize, with: &[Run]) {
        let tail = self.count - last;
        self.list.copy_within(last..last + tail, first + with.len());
        self.list[first..first + with.len()].copy_from_slice(with);
        self.count = first + with.len() + tail;
    }

    /// None any more.
    pub fn clear(&mut self) {
        self.count = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_as_a_set_of_addresses_would_have_it() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..50 {
            let mut ranges = Ranges::new().expect("memory");
            let mut set = [false; 200];
            for _ in 0..200 {
                let start = random.usize(..200);
                let end = random.usize(start..200);
                let takes = random.bool();
                if takes {
                    assert!(ranges.add(start as u64, end as u64));
                } else {
                    ranges.remove(start as u64, end as u64);
                }
                set[start..end].fill(takes);
                for (at, inside) in set.iter().enumerate() {
                    assert_eq!(ranges.has(at as u64), *inside, "{at} after {start}..{end} {takes}");
                }
                assert!(ranges.all().windows(2).all(|pair| pair[0].end < pair[1].start));
                assert_eq!(ranges.bytes() as usize, set.iter().filter(|inside| **inside).count());
            }
            ranges.clear();
            assert!(ranges.all().is_empty());
        }
    }
}
