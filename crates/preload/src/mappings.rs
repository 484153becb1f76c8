//! Which of the program's memory is watched: large private memory without a file behind it, as `/proc` has it. Whole mappings
//! are, because the kernel moves and grows none of which a part is watched and a part is not.

use core::sync::atomic::Ordering;

use crate::board::PARTS;
use crate::server::Server;
use crate::sys::{self, Mapped, PAGE, guard};
use crate::table::SPAN;

/// Less than this is left alone.
const LEAST: u64 = 1 << 20;

/// A mapping that may be watched, from its line: from where to where.
fn eligible(line: &[u8]) -> Option<(u64, u64)> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut range = words.next()?.split(|byte| *byte == b'-');
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0u64, |n, digit| Some(n << 4 | u64::from((*digit as char).to_digit(16)?)))
    };
    let (start, end) = (number(range.next()?)?, number(range.next()?)?);
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let name = words.next().unwrap_or(b"");
    let ours = rights == b"rw-p"
        && inode == b"0"
        && (name.is_empty() || name == b"[heap]" || name.starts_with(b"[anon:"));
    ours.then_some((start, end))
}

impl Server {
    /// Watches what is new and large enough.
    pub(crate) fn look_at_mappings(&mut self) {
        let (mut held, mut at) = (0, 0u64);
        // Neighbours count as one.
        let mut whole = (0u64, 0u64);
        while let Ok(length) = sys::read_at(self.maps, &mut self.text[held..], at) {
            let end = held + length;
            let last = self.text[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let mut from = 0;
            while from < last {
                let stop =
                    self.text[from..last].iter().position(|byte| *byte == b'\n').map_or(last, |n| from + n);
                if let Some(found) = eligible(&self.text[from..stop]) {
                    if found.0 != whole.1 {
                        self.watch_range(whole);
                        whole = found;
                    }
                    whole.1 = found.1;
                }
                from = stop + 1;
            }
            at += length as u64;
            self.text.copy_within(last..end, 0);
            held = end - last;
            if length == 0 || held == self.text.len() {
                break;
            }
        }
        self.watch_range(whole);
    }

    /// Watches what is not watched yet of a range, one mapping after another.
    fn watch_range(&mut self, (start, end): (u64, u64)) {
        let (room, room_end) = self.room.range();
        let apart = |from: u64, to: u64| end <= from || start >= to;
        let own = self.start.own_data;
        if end - start < LEAST || !apart(room, room_end) || !apart(own, own + 1) {
            return;
        }
        let mut at = start;
        while at < end {
            let Ok(mapping) = sys::mapping_at(self.maps, at) else { return };
            let range = self.ranges.from(mapping.start);
            let known = range.is_some_and(|range| range.start <= mapping.start && range.end >= mapping.end);
            if mapping.start < end && mapping.plain && !known {
                self.watch_mapping(mapping);
            }
            at = mapping.end.max(at + PAGE);
        }
    }

    /// Watches a mapping, all of it: the program may map, unmap, grow or move memory in the very moment. What is in the books
    /// must be watched by the kernel, or we would take pages that nobody could ask back: so afterwards it must be one
    /// mapping, as two that are not watched alike never are, and nothing may be under way that we have not been told.
    /// Otherwise the next look finds it again; until then its faults are served and nothing of it is taken.
    fn watch_mapping(&mut self, mapping: Mapped) {
        // What it has grown by in that moment is watched soon, too.
        self.registered_at = self.turn.wrapping_sub(45);
        if guard::register(self.guard, mapping.start, mapping.end - mapping.start).is_err() {
            return;
        }
        let after = sys::mapping_at(self.maps, mapping.start);
        let whole = after.is_ok_and(|now| now.plain && now.start <= mapping.start && now.end >= mapping.end);
        if whole && !guard::is_changing(self.guard, self.room.range().1 - PAGE) {
            self.ranges.add(mapping.start, mapping.end);
        }
    }

    /// Watches nothing any more, whether it is in the books or not.
    pub(crate) fn let_all_go(&mut self) {
        let (room, room_end) = self.room.range();
        loop {
            // Who has something to tell goes on.
            self.listen();
            let mut at = 0;
            while let Ok(mapping) = sys::mapping_at(self.maps, at) {
                if mapping.end <= room || mapping.start >= room_end {
                    // Fails where there is nothing that could have been watched.
                    let _ = guard::unregister(self.guard, mapping.start, mapping.end - mapping.start);
                }
                at = mapping.end;
            }
            if !guard::is_changing(self.guard, room_end - PAGE) {
                break;
            }
        }
        self.ranges.clear();
        self.all_back = false;
    }

    /// Writes the map of what is watched to the board.
    pub(crate) fn draw(&self) {
        let all = self.ranges.bytes();
        let mut parts = [[0u64; 3]; PARTS];
        let mut passed = 0u64;
        for range in self.ranges.all() {
            for page in (range.start..range.end).step_by(PAGE as usize) {
                let at = (u128::from(passed) * PARTS as u128 / u128::from(all.max(1))) as usize;
                let part = &mut parts[at.min(PARTS - 1)];
                part[0] += PAGE;
                part[1] += if self.table.get(page).is_away() { PAGE } else { 0 };
                if page == range.start || page.is_multiple_of(SPAN) {
                    part[2] += u64::from(self.table.heat(page)) * SPAN / 32;
                }
                passed += PAGE;
            }
        }
        for (to, part) in self.start.slot.map.iter().flatten().zip(parts.iter().flatten()) {
            to.store((part >> 10) as u32, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_without_a_file_is_eligible() {
        let line = |text: &str| eligible(text.as_bytes());
        assert_eq!(
            line("7f0000000000-7f0000200000 rw-p 00000000 00:00 0 "),
            Some((0x7f00_0000_0000, 0x7f00_0020_0000))
        );
        assert_eq!(
            line("55d0-55e0 rw-p 00000000 00:00 0                          [heap]"),
            Some((0x55d0, 0x55e0))
        );
        assert!(line("55d0-55e0 rw-p 00000000 00:00 0   [anon: a name]").is_some());
        for other in [
            "7f00-7f10 rw-p 00000000 00:00 0 [stack]",
            "7f00-7f10 r--p 00000000 00:00 0 ",
            "7f00-7f10 rw-s 00000000 00:00 0 ",
            "7f00-7f10 rw-p 00001000 fe:00 1234 /usr/lib/a.so",
            "",
            "x-y rw-p 0 0 0",
        ] {
            assert_eq!(line(other), None, "{other}");
        }
    }
}
