//! Fewer marks where there are more than anybody could see: marks smaller than a pixel are merged with their
//! neighbours, and the chart says so.
//!
//! The smallest size that is kept apart starts far below a pixel and doubles until few enough marks are left. A merged
//! mark covers those that it stands for and keeps the label of the largest.

use std::collections::HashMap;

use tiercel_core::Span;

/// A mark on a row of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) span: Span,
    /// Marks on different rows never meet.
    pub(crate) row: u32,
    /// What decides its colour.
    pub(crate) kind: u32,
    /// Whose it is.
    pub(crate) label: usize,
    pub(crate) bytes: u64,
    /// How many marks it stands for.
    pub(crate) count: u32,
}

/// A mark on a map of addresses over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rect {
    pub(crate) span: Span,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) kind: u32,
    pub(crate) label: usize,
    pub(crate) count: u32,
}

/// How fine the first grid is, far below what a screen has.
const FINEST: u64 = 16_384;

fn time(span: Span) -> u64 {
    span.ended.0.saturating_sub(span.began.0)
}

/// Merges bars until there are at most `budget`, or one for each kind and row.
pub(crate) fn bars(mut all: Vec<Bar>, window: u64, budget: usize) -> Vec<Bar> {
    all.sort_by_key(|bar| (bar.row, bar.span.began, bar.span.ended));
    let mut least = (window / FINEST).max(1);
    while all.len() > budget {
        let before = all.len();
        all = merge_bars(&all, least);
        if least > window && all.len() == before {
            break;
        }
        least = least.saturating_mul(2);
    }
    all
}

/// Joins bars shorter than `least` that follow one another within `least`.
fn merge_bars(all: &[Bar], least: u64) -> Vec<Bar> {
    let mut kept: Vec<Bar> = Vec::with_capacity(all.len());
    // For each row and kind, the last bar that may still grow, and the longest that it stands for.
    let mut growing: HashMap<(u32, u32), (usize, u64)> = HashMap::new();
    for bar in all {
        let long = time(bar.span);
        let last = growing.get_mut(&(bar.row, bar.kind)).filter(|_| long < least);
        match last.filter(|(at, _)| bar.span.began.0.saturating_sub(kept[*at].span.began.0) < least) {
            Some((at, longest)) => {
                let last = &mut kept[*at];
                last.span.ended = last.span.ended.max(bar.span.ended);
                last.bytes = last.bytes.saturating_add(bar.bytes);
                last.count = last.count.saturating_add(bar.count);
                if long > *longest {
                    (last.label, *longest) = (bar.label, long);
                }
            }
            None => {
                if long < least {
                    growing.insert((bar.row, bar.kind), (kept.len(), long));
                }
                kept.push(*bar);
            }
        }
    }
    kept
}

/// Merges rectangles until there are at most `budget`, or one for each kind.
pub(crate) fn rects(mut all: Vec<Rect>, window: u64, extent: u64, budget: usize) -> Vec<Rect> {
    let (mut wide, mut high) = ((window / FINEST).max(1), (extent / FINEST).max(1));
    while all.len() > budget {
        let before = all.len();
        all = merge_rects(&all, wide, high);
        if wide > window && high > extent && all.len() == before {
            break;
        }
        (wide, high) = (wide.saturating_mul(2), high.saturating_mul(2));
    }
    all
}

/// What rectangles that are merged have in common: kind, and the first and last cell in time and in addresses.
type Cells = (u32, u64, u64, u64, u64);

/// Joins rectangles that are thinner than a cell of the grid and touch the same cells.
fn merge_rects(all: &[Rect], wide: u64, high: u64) -> Vec<Rect> {
    let mut kept: Vec<Rect> = Vec::with_capacity(all.len());
    // By the cells that they touch: the one that stands for all, and the largest area in it.
    let mut cells: HashMap<Cells, (usize, u128)> = HashMap::new();
    for rect in all {
        if time(rect.span) >= wide && rect.bytes >= high {
            kept.push(*rect);
            continue;
        }
        let end = rect.offset.saturating_add(rect.bytes);
        let cell =
            (rect.kind, rect.span.began.0 / wide, rect.span.ended.0 / wide, rect.offset / high, end / high);
        let area = u128::from(time(rect.span)) * u128::from(rect.bytes);
        match cells.get_mut(&cell) {
            Some((at, largest)) => {
                let known = &mut kept[*at];
                let top = known.offset.saturating_add(known.bytes).max(end);
                known.offset = known.offset.min(rect.offset);
                known.bytes = top - known.offset;
                known.span.began = known.span.began.min(rect.span.began);
                known.span.ended = known.span.ended.max(rect.span.ended);
                known.count = known.count.saturating_add(rect.count);
                if area > *largest {
                    (known.label, *largest) = (rect.label, area);
                }
            }
            None => {
                cells.insert(cell, (kept.len(), area));
                kept.push(*rect);
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use tiercel_core::Nanos;
    use tiercel_testbed::for_seeds;

    fn span(began: u64, ended: u64) -> Span {
        Span { began: Nanos(began), ended: Nanos(ended) }
    }

    /// A number up to `most`, and more often a small one.
    fn up_to(random: &mut fastrand::Rng, most: u64) -> u64 {
        let shift = random.u32(0..20);
        random.u64(0..=most >> shift)
    }

    #[test]
    fn few_marks_stay_as_they_are() {
        let bar =
            |began, ended| Bar { span: span(began, ended), row: 0, kind: 0, label: 7, bytes: 1, count: 1 };
        let all = vec![bar(5, 6), bar(0, 1)];
        assert_eq!(bars(all, 1_000_000, 2), [bar(0, 1), bar(5, 6)]);
    }

    #[test]
    fn merged_bars_cover_and_count_what_they_stand_for() {
        for_seeds(30, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let window = 1 + up_to(&mut random, 1 << 50);
            let all: Vec<Bar> = (0..random.usize(1..3000))
                .map(|label| {
                    let began = random.u64(0..window);
                    let ended = began + up_to(&mut random, window - began);
                    let (row, kind) = (random.u32(0..3), random.u32(0..3));
                    Bar { span: span(began, ended), row, kind, label, bytes: random.u64(0..100), count: 1 }
                })
                .collect();
            let budget = random.usize(20..500);
            let few = bars(all.clone(), window, budget);
            let sum = |bars: &[Bar]| {
                bars.iter().map(|b| (u64::from(b.count), b.bytes)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
            };
            assert_eq!(sum(&few), sum(&all));
            assert!(few.len() <= budget.max(9), "{}", few.len());
            for bar in &all {
                let covers = |b: &&Bar| {
                    (b.row, b.kind) == (bar.row, bar.kind)
                        && b.span.began <= bar.span.began
                        && bar.span.ended <= b.span.ended
                };
                assert!(few.iter().any(|b| covers(&b)), "{bar:?} is lost");
            }
        });
    }

    #[test]
    fn merged_rectangles_cover_and_count_what_they_stand_for() {
        for_seeds(30, |seed| {
            let mut random = fastrand::Rng::with_seed(seed);
            let (window, extent) = (random.u64(1..1 << 40), random.u64(1..1 << 40));
            let all: Vec<Rect> = (0..random.usize(1..3000))
                .map(|label| {
                    let (began, offset) = (random.u64(0..window), random.u64(0..extent));
                    let ended = began + up_to(&mut random, window - began);
                    let bytes = up_to(&mut random, extent - offset);
                    Rect { span: span(began, ended), offset, bytes, kind: random.u32(0..3), label, count: 1 }
                })
                .collect();
            let budget = random.usize(10..500);
            let few = rects(all.clone(), window, extent, budget);
            assert!(few.len() <= budget, "{}", few.len());
            assert_eq!(few.iter().map(|r| r.count as usize).sum::<usize>(), all.len());
            for rect in &all {
                let covers = |r: &&Rect| {
                    r.kind == rect.kind
                        && r.span.began <= rect.span.began
                        && rect.span.ended <= r.span.ended
                        && r.offset <= rect.offset
                        && rect.offset + rect.bytes <= r.offset + r.bytes
                };
                assert!(few.iter().any(|r| covers(&r)), "{rect:?} is lost");
            }
        });
    }
}
