//! What a search keeps in hand: the best found so far, in order, and which rows it has seen.

/// The best so many rows by key, sorted; rows of equal keys by number, so that a search has one outcome.
///
/// An entry is one integer: the key, the row, and whether its links have been followed. For beams of some hundreds, keeping
/// a sorted array beats two heaps.
#[derive(Default)]
pub(crate) struct Beam {
    entries: Vec<u64>,
    width: usize,
    /// Every entry before it has been followed.
    cursor: usize,
}

/// A key and a row as one entry.
#[inline(always)]
pub(crate) fn entry(key: u32, row: u32) -> u64 {
    u64::from(key) << 32 | u64::from(row) << 1
}

/// The row of an entry.
#[inline(always)]
pub(crate) fn row_of(entry: u64) -> u32 {
    entry as u32 >> 1
}

/// The key of an entry.
#[inline(always)]
pub(crate) fn key_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl Beam {
    /// Empties it for a search of this width.
    pub(crate) fn start(&mut self, width: usize) {
        self.entries.clear();
        self.entries.reserve(width + 1);
        self.width = width;
        self.cursor = 0;
    }

    /// Takes a row if it is among the best, and tells whether it is.
    #[inline(always)]
    pub(crate) fn offer(&mut self, key: u32, row: u32) -> bool {
        let new = entry(key, row);
        if self.entries.len() >= self.width {
            match self.entries.last() {
                Some(worst) if new < *worst => self.entries.pop(),
                _ => return false,
            };
        }
        let at = self.entries.partition_point(|e| *e < new);
        self.entries.insert(at, new);
        self.cursor = self.cursor.min(at);
        true
    }

    /// The best row whose links have not been followed; they count as followed from now on.
    #[inline(always)]
    pub(crate) fn follow(&mut self) -> Option<u32> {
        while let Some(entry) = self.entries.get_mut(self.cursor) {
            self.cursor += 1;
            if *entry & 1 == 0 {
                *entry |= 1;
                return Some(row_of(*entry));
            }
        }
        None
    }

    /// The row that would be followed next.
    #[inline(always)]
    pub(crate) fn peek(&self) -> Option<u32> {
        self.entries[self.cursor.min(self.entries.len())..].iter().find(|e| **e & 1 == 0).map(|e| row_of(*e))
    }

    /// Whether no more fit.
    pub(crate) fn full(&self) -> bool {
        self.entries.len() >= self.width
    }

    /// The key of the worst.
    pub(crate) fn worst(&self) -> Option<u32> {
        self.entries.last().map(|e| key_of(*e))
    }

    /// Keys and rows, best first.
    pub(crate) fn found(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        self.entries.iter().map(|e| (key_of(*e), row_of(*e)))
    }
}

/// Which rows a search has seen. Forgetting them costs nothing but every 255th time.
#[derive(Default)]
pub(crate) struct Visited {
    tags: Vec<u8>,
    tag: u8,
}

impl Visited {
    /// Forgets all, and has a place for so many rows.
    pub(crate) fn start(&mut self, rows: usize) {
        if self.tags.len() < rows {
            self.tags.resize(rows, self.tag);
        }
        if self.tag == u8::MAX {
            self.tags.fill(0);
            self.tag = 0;
        }
        self.tag += 1;
    }

    /// Notes a row and tells whether it is new.
    #[inline(always)]
    pub(crate) fn insert(&mut self, row: u32) -> bool {
        let tag = &mut self.tags[row as usize];
        let new = *tag != self.tag;
        *tag = self.tag;
        new
    }

    /// Whether a row is noted.
    #[inline(always)]
    pub(crate) fn holds(&self, row: u32) -> bool {
        self.tags[row as usize] == self.tag
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.tags.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beam_is_as_a_sorted_list() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut beam = Beam::default();
        for width in [1, 2, 7, 40] {
            beam.start(width);
            let (mut naive, mut followed) = (Vec::<(u32, u32)>::new(), Vec::new());
            for row in 0..500 {
                let key = random.u32(0..100);
                naive.push((key, row));
                naive.sort_unstable();
                naive.truncate(width);
                assert_eq!(beam.offer(key, row), naive.contains(&(key, row)));
                assert!(beam.found().eq(naive.iter().copied()));
                if random.bool() {
                    let next = naive.iter().map(|(_, row)| *row).find(|row| !followed.contains(row));
                    assert_eq!(beam.peek(), next);
                    assert_eq!(beam.follow(), next);
                    followed.extend(next);
                }
            }
            assert!(beam.full());
            assert_eq!(beam.worst(), naive.last().map(|(key, _)| *key));
        }
    }

    #[test]
    fn visits_are_forgotten() {
        let mut visited = Visited::default();
        for round in 0..1000 {
            visited.start(10 + round / 10);
            for row in 0..10 + round / 10 {
                assert!(visited.insert(row as u32), "{round}");
                assert!(!visited.insert(row as u32));
            }
        }
    }
}
