//! Our strategy: move what pays, as far up as it pays, and stop by itself.
//!
//! A page is worth its accesses times what each is cheaper on the faster tier, for as long as what is hot may be expected
//! to stay hot; moving it costs what moving was measured to cost, and so does the page that makes room, which also loses by
//! it. Where that sum is not positive nothing moves: there is no constant number of bytes an interval (hm-keeper's N,
//! Section 8.5.1). What is known only roughly counts with a deduction. A page that moved lately must gain four times what
//! the move costs, so nothing goes to and fro. The price of an access is the tier's latency or, where its bandwidth is used
//! up, the time that a cache line takes on it; lines that are written in order cost nothing but that time, and the busier
//! the tier, the more of it.

use super::{Orders, Planned};
use crate::placement::{NOWHERE, Placement};
use crate::tiers::{PAGE, Tiers};
use crate::watch::{Heat, Last, Move, Strategy, Why};

/// What an access moves.
const LINE: f64 = 64.0;

/// By how many standard deviations estimates are discounted.
const DOUBT: f64 = 0.7;

/// For so many intervals a page is taken for one that has just moved.
const SETTLING: u32 = 6;

/// Which share of a copy beside the program it feels, as load on both tiers.
const FELT: f64 = 0.15;

/// Which parts of the strategy are in use, to see what each is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parts {
    /// All of them.
    All,
    /// A page that moved lately moves again as easily as any other.
    Restless,
    /// An access costs the tier's latency, however busy it is.
    Unloaded,
}

/// The strategy.
pub struct Benefit {
    parts: Parts,
    interval: u32,
    moved: Vec<u32>,
    /// The load of every tier, smoothed.
    load: Vec<f64>,
}

/// Pages side by side on one tier that are equally hot.
#[derive(Clone, Copy)]
struct Chunk {
    first: u32,
    pages: u32,
    tier: u8,
    /// Accesses a page and interval: at least, and at most.
    low: f64,
    high: f64,
    /// Lines a page and interval that are written in order.
    lines: f64,
}

/// What things take of the program's time on a tier.
#[derive(Clone, Copy)]
struct Price {
    access: f64,
    /// A line that is written in order, and one that is read.
    line: f64,
    read: f64,
}

impl Price {
    /// What so many accesses and lines take more here than on another tier.
    fn more(&self, other: &Price, accesses: f64, lines: f64) -> f64 {
        accesses * (self.access - other.access) + lines * (self.line - other.line)
    }
}

impl Benefit {
    /// The strategy over so many pages.
    pub fn new(pages: u32) -> Benefit {
        Benefit::with(pages, Parts::All)
    }

    /// The strategy with some of its parts.
    pub fn with(pages: u32, parts: Parts) -> Benefit {
        Benefit { parts, interval: SETTLING, moved: vec![0; pages as usize], load: Vec::new() }
    }

    /// What accesses and lines on each tier take of the program's time.
    fn prices(&mut self, tiers: &Tiers, last: &Last) -> Vec<Price> {
        self.load.resize(tiers.len(), 0.0);
        let threads = last.threads.max(1.0);
        let price = |(at, tier): (usize, &crate::tiers::Tier)| {
            let busy = match self.parts {
                Parts::Unloaded => 0.0,
                Parts::All | Parts::Restless => last.busy.get(at).copied().unwrap_or(0.0),
            };
            self.load[at] = 0.5 * self.load[at] + 0.5 * busy.min(1.0);
            let full = ((self.load[at] - 0.7) / 0.3).clamp(0.0, 1.0);
            // A tier that is busy half of the time is the one that is waited for in a quarter of it.
            let waited = LINE * self.load[at] * self.load[at];
            Price {
                access: (tier.latency_ns / threads).max(LINE / tier.read * full),
                line: waited / tier.write,
                read: waited / tier.read,
            }
        };
        tiers.list.iter().enumerate().map(price).collect()
    }

    fn chunks(&self, heats: &[Heat], placement: &Placement, scale: f64) -> Vec<Chunk> {
        let mut chunks: Vec<Chunk> = Vec::new();
        for heat in heats {
            let low = (heat.mean - DOUBT * heat.error).max(0.0) * scale;
            let high = (heat.mean + DOUBT * heat.error) * scale;
            let lines = heat.lines * scale;
            let mut current: Option<Chunk> = None;
            for page in heat.range() {
                let tier = placement.tier(page);
                match &mut current {
                    Some(chunk) if chunk.tier == tier && chunk.pages < 64 => chunk.pages += 1,
                    other => {
                        chunks.extend(other.take());
                        *other = (tier != NOWHERE).then_some(Chunk {
                            first: page,
                            pages: 1,
                            tier,
                            low,
                            high,
                            lines,
                        });
                    }
                }
            }
            chunks.extend(current);
        }
        chunks
    }
}

/// Pages of a list of chunks, one by one.
struct Line {
    chunks: Vec<Chunk>,
    at: usize,
    offset: u32,
}

impl Line {
    fn peek(&self) -> Option<(u32, &Chunk)> {
        let chunk = self.chunks.get(self.at)?;
        Some((chunk.first + self.offset, chunk))
    }

    fn step(&mut self) {
        self.offset += 1;
        if self.chunks.get(self.at).is_some_and(|chunk| self.offset >= chunk.pages) {
            self.at += 1;
            self.offset = 0;
        }
    }
}

impl Strategy for Benefit {
    fn decide(&mut self, heats: &[Heat], placement: &Placement, tiers: &Tiers, last: &Last) -> Vec<Move> {
        self.interval += 1;
        let all: f64 = heats.iter().map(|heat| (heat.mean + heat.lines) * f64::from(heat.pages)).sum();
        // Where lines are seen, both are counted in the same picks.
        let seen = heats.iter().any(|heat| heat.lines > 0.0);
        let there = last.accesses + if seen { last.stores } else { 0.0 };
        let scale = if there > 0.0 && all > 0.0 { there / all } else { 1.0 };
        let prices = self.prices(tiers, last);
        let chunks = self.chunks(heats, placement, scale);
        let mut planned = Planned::new(tiers);
        let mut gone = vec![false; placement.pages()];
        let mut orders = Orders::default();
        let stall = if last.stall_ns > 0.0 { last.stall_ns } else { 1000.0 };
        let cost = |from: u8, to: u8| {
            let lines = PAGE as f64 / LINE * (prices[from as usize].read + prices[to as usize].line);
            stall + FELT * tiers.copy_ns(from, to) + lines
        };
        for target in 0..(tiers.len() as u8).saturating_sub(1) {
            let mut hot: Vec<Chunk> = chunks.iter().filter(|chunk| chunk.tier > target).copied().collect();
            hot.sort_by(|a, b| {
                let worth =
                    |c: &Chunk| prices[c.tier as usize].more(&prices[target as usize], c.low, c.lines);
                worth(b).total_cmp(&worth(a))
            });
            let mut cold: Vec<Chunk> = chunks.iter().filter(|chunk| chunk.tier == target).copied().collect();
            // What is lost a tier further down, or at the bottom, where nothing is below.
            let below = prices[(target as usize + 1).min(prices.len() - 1)];
            let loss = |c: &Chunk| below.more(&prices[target as usize], c.high, c.lines);
            cold.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
            let mut hot = Line { chunks: hot, at: 0, offset: 0 };
            let mut cold = Line { chunks: cold, at: 0, offset: 0 };
            while let Some((page, chunk)) = hot.peek() {
                let (tier, low, lines) = (chunk.tier, chunk.low, chunk.lines);
                if gone[page as usize] {
                    hot.step();
                    continue;
                }
                let saved = prices[tier as usize].more(&prices[target as usize], low, lines);
                let mut gain = saved * last.horizon;
                let mut price = cost(tier, target);
                if gain <= price {
                    break;
                }
                let settled =
                    self.parts == Parts::Restless || self.interval - self.moved[page as usize] >= SETTLING;
                let mut victim = None;
                if planned.free(placement, target) == 0 {
                    while cold.peek().is_some_and(|(page, _)| gone[page as usize]) {
                        cold.step();
                    }
                    let Some((other, loser)) = cold.peek() else { break };
                    // A neighbour below takes it; where none has room, it takes the place that becomes free.
                    let lower = planned.lower(placement, target).unwrap_or(tier);
                    gain -= prices[lower as usize].more(&prices[target as usize], loser.high, loser.lines)
                        * last.horizon;
                    price += cost(target, lower);
                    victim = Some((other, lower));
                    if gain <= price {
                        break;
                    }
                }
                if !settled && gain <= 4.0 * price {
                    hot.step();
                    continue;
                }
                if let Some((other, lower)) = victim {
                    orders.add(other, lower, Why::Room);
                    planned.note(target, lower, 1);
                    gone[other as usize] = true;
                    self.moved[other as usize] = self.interval;
                    cold.step();
                }
                orders.add(page, target, Why::Hot);
                planned.note(tier, target, 1);
                gone[page as usize] = true;
                self.moved[page as usize] = self.interval;
                hot.step();
            }
        }
        orders.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tiers;

    fn filled() -> Placement {
        let mut placement = Placement::new(1024, &tiers());
        (0..1024).for_each(|page| assert!(placement.first_touch(page, &[0, 1, 2, 3]).is_some()));
        placement
    }

    fn heats(rate: impl Fn(u32) -> f64) -> Vec<Heat> {
        let heat = |at: u32| Heat {
            first: at * 16,
            pages: 16,
            now: rate(at),
            mean: rate(at),
            error: 0.1,
            hot: false,
            lines: 0.0,
        };
        (0..64).map(heat).collect()
    }

    fn last() -> Last {
        Last { ns: 1e6, threads: 8.0, horizon: 16.0, stall_ns: 500.0, ..Last::default() }
    }

    #[test]
    fn what_pays_moves_and_what_does_not_stays() {
        let placement = filled();
        let hot = heats(|at| if at >= 56 { 50.0 } else { 0.2 });
        let moves = Benefit::new(1024).decide(&hot, &placement, &tiers(), &last());
        let up: u32 = moves.iter().filter(|m| m.to == 0 && m.why == Why::Hot).map(|m| m.pages).sum();
        assert_eq!(up, 128, "all hot pages at once: {moves:?}");
        // 0.2 accesses save 5 ns an interval: moving a page costs a hundred times as much.
        let cold = heats(|at| if at >= 56 { 0.3 } else { 0.2 });
        assert!(Benefit::new(1024).decide(&cold, &placement, &tiers(), &last()).is_empty());
        // What is equally hot everywhere has nothing to gain, however hot it is.
        let alike = heats(|_| 50.0);
        let moves = Benefit::new(1024).decide(&alike, &placement, &tiers(), &last());
        assert!(moves.is_empty(), "{moves:?}");
    }

    #[test]
    fn pages_that_just_moved_need_a_better_reason() {
        let mut strategy = Benefit::new(1024);
        let mut placement = filled();
        let apply = |placement: &mut Placement, moves: &[Move]| {
            for m in moves {
                (m.first..m.first + m.pages).for_each(|page| assert!(placement.put(page, m.to)));
            }
        };
        let hot = |from: u32| heats(move |at| if (from..from + 8).contains(&at) { 6.0 } else { 0.1 });
        let moves = strategy.decide(&hot(56), &placement, &tiers(), &last());
        assert!(!moves.is_empty());
        apply(&mut placement, &moves);
        // The heat is back where it was: the pages that made room stay where they went for now.
        let back = strategy.decide(&hot(0), &placement, &tiers(), &last());
        let returned = back.iter().filter(|m| m.first < 128 && m.to == 0).count();
        assert_eq!(returned, 0, "{back:?}");
        let mut returned = 0;
        for _ in 0..SETTLING {
            let back = strategy.decide(&hot(0), &placement, &tiers(), &last());
            returned += back.iter().filter(|m| m.first < 128 && m.to == 0).count();
        }
        assert!(returned > 0, "later they may");
    }
}
