//! How it stands with a kept program, and its address space in equal parts, for whoever looks at it.

use std::ops::Range;

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes that came back from the slow tier, as far as was seen.
    pub came_back: u64,
    /// Bytes that went to it, as far as was seen.
    pub went_out: u64,
    /// Bytes that were read ahead.
    pub ahead: u64,
    /// Bytes that were written out behind streams, or to hold the limit.
    pub behind: u64,
    /// Bytes of room that were made before they were needed.
    pub room: u64,
    /// Bytes that were given back on their way out, without the disk.
    pub rescued: u64,
    /// How often the program waited for the disk where the kernel would have ended it.
    pub waits: u64,
    /// Looks at the page map.
    pub looks: u64,
}

/// How it stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    /// Since the beginning.
    pub seconds: f64,
    /// Bytes in memory and swapped out.
    pub resident: u64,
    /// Bytes swapped out.
    pub swapped: u64,
    /// What was done.
    pub counts: Counts,
    /// Streams at the moment.
    pub streams: usize,
    /// Processor time of the keeper as a share of the time that passed.
    pub overhead: f64,
    /// What making room took of it: work that the program would have had to do itself.
    pub room_overhead: f64,
    /// The address space in equal parts: bytes in it, bytes of them swapped out, bytes that came back lately.
    pub map: Vec<[u64; 3]>,
}

/// Adds bytes that begin somewhere in a space of `all` bytes to the parts in which they lie.
pub(super) fn spread(map: &mut [[u64; 3]], at: usize, start: u64, bytes: u64, all: u64) {
    let parts = map.len() as u64;
    let mut from = start;
    while from < start + bytes {
        let part = (from as u128 * parts as u128 / all as u128) as u64;
        let next = ((part as u128 + 1) * all as u128).div_ceil(parts as u128) as u64;
        let to = next.min(start + bytes).max(from + 1);
        map[part.min(parts - 1) as usize][at] += to - from;
        from = to;
    }
}

/// What of some ranges, in order, lies inside another.
pub(super) fn within(ranges: &[Range<u64>], bounds: &Range<u64>) -> Vec<Range<u64>> {
    let first = ranges.partition_point(|range| range.end <= bounds.start);
    let inside = ranges[first..].iter().take_while(|range| range.start < bounds.end);
    inside.map(|range| range.start.max(bounds.start)..range.end.min(bounds.end)).collect()
}

#[cfg(test)]
// Lists of ranges, of which some have one.
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_address_space_hold_all_of_it() {
        let mut map = vec![[0; 3]; 7];
        spread(&mut map, 0, 0, 1000, 1000);
        assert_eq!(map.iter().map(|part| part[0]).sum::<u64>(), 1000);
        assert!(map.iter().all(|part| (142..=143).contains(&part[0])), "{map:?}");
        spread(&mut map, 1, 990, 10, 1000);
        assert_eq!(map[6][1], 10);
        assert_eq!(within(&[0..10, 20..30, 40..50], &(5..45)), [5..10, 20..30, 40..45]);
        assert_eq!(within(&[0..10], &(10..20)), []);
    }
}
