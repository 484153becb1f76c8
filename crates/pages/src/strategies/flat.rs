//! hm-keeper's strategy (dissertation, Section 8.5): fast promotion, slow demotion, N bytes an interval.
//!
//! Spans are put into a histogram by their hotness averaged over time (8.5.1). From the highest bucket down, spans that do
//! not lie on the fastest tier are promoted straight to it, wherever they are; where all that is left is in lower buckets
//! than what lies there, to the second fastest, and so on (8.5.2), until N bytes are. Room is made by moving what is in the
//! lowest buckets to the next lower tier with room. `Hierarchical` is the ablation of Section 8.8.4: a span comes one tier
//! up at a time.

use super::{Orders, Planned};
use crate::placement::{NOWHERE, Placement};
use crate::tiers::Tiers;
use crate::watch::{Heat, Last, Move, Strategy, Why};

/// How many buckets the histogram has.
const BUCKETS: usize = 32;

/// How hot spans move up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Straight to the fastest tier.
    Flat,
    /// A tier at a time.
    Hierarchical,
}

/// The strategy.
pub struct Flat {
    /// Pages an interval: N.
    promoted: u32,
    view: View,
    /// What of N was left over because spans are larger.
    carried: u32,
}

/// The spans of every bucket, the hottest bucket last.
pub struct Histogram {
    buckets: Vec<Vec<usize>>,
}

impl Histogram {
    /// Sorts spans into buckets between nothing and the hottest.
    pub fn new(heats: &[Heat]) -> Histogram {
        let top = heats.iter().map(|heat| heat.mean).fold(0.0, f64::max).max(1e-9);
        let mut buckets = vec![Vec::new(); BUCKETS];
        for (at, heat) in heats.iter().enumerate() {
            let bucket = (heat.mean / top * BUCKETS as f64) as usize;
            buckets[bucket.min(BUCKETS - 1)].push(at);
        }
        Histogram { buckets }
    }

    /// Spans from the hottest bucket down, with their buckets.
    pub fn hottest(&self) -> impl Iterator<Item = (usize, usize)> {
        self.buckets
            .iter()
            .enumerate()
            .rev()
            .flat_map(|(bucket, spans)| spans.iter().map(move |at| (bucket, *at)))
    }

    /// Spans from the coldest bucket up, with their buckets.
    pub fn coldest(&self) -> impl Iterator<Item = (usize, usize)> {
        self.buckets.iter().enumerate().flat_map(|(bucket, spans)| spans.iter().map(move |at| (bucket, *at)))
    }
}

impl Flat {
    /// The strategy with N pages an interval.
    pub fn new(promoted: u32, view: View) -> Flat {
        Flat { promoted, view, carried: 0 }
    }
}

/// Where every tier's coldest pages are, one after another.
struct Victims {
    /// For each tier its pages from the coldest bucket up, with their buckets.
    pages: Vec<Vec<(usize, u32)>>,
    next: Vec<usize>,
}

impl Victims {
    fn new(heats: &[Heat], histogram: &Histogram, placement: &Placement, tiers: &Tiers) -> Victims {
        let mut pages = vec![Vec::new(); tiers.len()];
        for (bucket, at) in histogram.coldest() {
            for page in heats[at].range() {
                let tier = placement.tier(page);
                if tier != NOWHERE {
                    pages[tier as usize].push((bucket, page));
                }
            }
        }
        Victims { next: vec![0; tiers.len()], pages }
    }

    /// The coldest page of a tier, if it is in a lower bucket than this.
    fn take(&mut self, tier: u8, below: usize) -> Option<u32> {
        let next = &mut self.next[tier as usize];
        let (bucket, page) = *self.pages[tier as usize].get(*next)?;
        (bucket < below).then(|| {
            *next += 1;
            page
        })
    }
}

impl Strategy for Flat {
    fn decide(&mut self, heats: &[Heat], placement: &Placement, tiers: &Tiers, _last: &Last) -> Vec<Move> {
        let histogram = Histogram::new(heats);
        let mut victims = Victims::new(heats, &histogram, placement, tiers);
        let mut planned = Planned::new(tiers);
        let mut orders = Orders::default();
        let mut left = self.promoted + self.carried;
        let mut gone = vec![false; placement.pages()];
        let targets = 0..(tiers.len() as u8).saturating_sub(1);
        'targets: for target in targets {
            for (bucket, at) in histogram.hottest() {
                for page in heats[at].range() {
                    if left == 0 {
                        break 'targets;
                    }
                    let tier = placement.tier(page);
                    if tier == NOWHERE || tier <= target || gone[page as usize] {
                        continue;
                    }
                    let to = match self.view {
                        View::Flat => target,
                        View::Hierarchical => tier - 1,
                    };
                    if to != target {
                        continue;
                    }
                    if planned.free(placement, to) == 0 {
                        let Some(victim) = victims.take(to, bucket) else { continue 'targets };
                        let Some(lower) = planned.lower(placement, to) else { continue 'targets };
                        orders.add(victim, lower, Why::Room);
                        planned.note(to, lower, 1);
                        gone[victim as usize] = true;
                    }
                    orders.add(page, to, Why::Hot);
                    planned.note(tier, to, 1);
                    gone[page as usize] = true;
                    left -= 1;
                }
            }
        }
        self.carried = left.min(self.promoted);
        orders.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tiers;

    fn heat(first: u32, mean: f64) -> Heat {
        Heat { first, pages: 16, now: mean, mean, error: 0.0, hot: false, lines: 0.0 }
    }

    /// 64 spans of 16 pages, filled from the fastest tier down.
    fn filled() -> Placement {
        let mut placement = Placement::new(1024, &tiers());
        (0..1024).for_each(|page| assert!(placement.first_touch(page, &[0, 1, 2, 3]).is_some()));
        placement
    }

    #[test]
    fn the_hottest_go_straight_to_the_fastest_and_make_room_a_tier_down() {
        let placement = filled();
        let heats: Vec<Heat> = (0..64).map(|at| heat(at * 16, if at == 60 { 3.0 } else { 0.1 })).collect();
        assert_eq!(placement.tier(60 * 16), 2);
        let moves = Flat::new(16, View::Flat).decide(&heats, &placement, &tiers(), &Last::default());
        let up: u32 = moves.iter().filter(|m| m.why == Why::Hot && m.to == 0).map(|m| m.pages).sum();
        let down: Vec<&Move> = moves.iter().filter(|m| m.why == Why::Room).collect();
        assert_eq!(up, 16);
        assert!(down.iter().all(|m| m.to == 2), "tier 1 is full: {down:?}");
        assert_eq!(down.iter().map(|m| m.pages).sum::<u32>(), 16);
    }

    #[test]
    fn a_hierarchical_view_takes_one_tier_at_a_time() {
        let placement = filled();
        let heats: Vec<Heat> = (0..64).map(|at| heat(at * 16, if at == 60 { 3.0 } else { 0.1 })).collect();
        let moves = Flat::new(16, View::Hierarchical).decide(&heats, &placement, &tiers(), &Last::default());
        let up: Vec<&Move> = moves.iter().filter(|m| m.first >= 960 && m.why == Why::Hot).collect();
        assert!(!up.is_empty() && up.iter().all(|m| m.to == 1), "{moves:?}");
    }

    #[test]
    fn no_more_than_n_is_promoted_and_nothing_when_all_is_alike() {
        let placement = filled();
        let heats: Vec<Heat> = (0..64).map(|at| heat(at * 16, f64::from(at))).collect();
        let moves = Flat::new(20, View::Flat).decide(&heats, &placement, &tiers(), &Last::default());
        assert_eq!(moves.iter().filter(|m| m.why == Why::Hot).map(|m| m.pages).sum::<u32>(), 20);
        let alike: Vec<Heat> = (0..64).map(|at| heat(at * 16, 1.0)).collect();
        assert!(Flat::new(20, View::Flat).decide(&alike, &placement, &tiers(), &Last::default()).is_empty());
    }
}
