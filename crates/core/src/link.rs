//! Links: the directed paths between tiers on which bytes are copied, and what several of them share.
//!
//! Bandwidths are curves by number of copy threads, because copying into persistent memory peaks at few threads while copying
//! out of it scales (AutoTM section 2.2).

use serde::{Deserialize, Serialize};

use crate::units::{Bandwidth, Nanos, TierId, text};

/// A copy thread is worth its core as long as it moves this part of what a lone one does.
pub const WORTHWHILE: f64 = 0.8;

/// A bus or a port that several links go through: all of them together move no more than this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// A name to call it by.
    pub name: String,
    /// What it carries in both directions together.
    #[serde(with = "text")]
    pub bandwidth: Bandwidth,
}

/// A directed path between two tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Where the bytes come from.
    pub from: TierId,
    /// Where they go.
    pub to: TierId,
    /// The time that every copy takes before its first byte moves.
    pub latency: Nanos,
    /// The time that a copy takes before its first byte moves where it has been under way while the link served others, as
    /// requests to a disk are; the latency where absent.
    pub spacing: Option<Nanos>,
    /// Bandwidth by number of copy threads, fewest threads first.
    pub curve: Vec<(u32, Bandwidth)>,
    /// How many copy threads serve this link.
    pub threads: u32,
    /// A tier that the bytes go through on the way, over its links: then this one carries nothing by itself, and copies on it
    /// take from those links and from that tier's memory.
    pub via: Option<TierId>,
    /// The bus or port that it shares with others, by its place among the machine's.
    pub bus: Option<usize>,
    /// How much of its core each copy thread keeps busy: 1 where cores load and store the bytes, 0 where an engine of its own
    /// moves them, as those of a GPU or a disk do. Cores that copy are taken from kernels.
    pub busy: f64,
}

impl Link {
    /// The cores that are busy while it copies.
    pub fn cores(&self) -> f64 {
        f64::from(self.threads) * self.busy
    }

    /// Its number of copy threads for copies beside kernels: the most of its curve with which a core that copies still moves
    /// nearly as much as one that copies alone ([`WORTHWHILE`]). What copies take from kernels is bytes by what a core moves,
    /// so fewer threads would take no less, and more would take more. Engines take nothing, and keep what they have.
    pub fn sparing(&self) -> u32 {
        let each = |(threads, speed): &(u32, Bandwidth)| speed.0 / f64::from(*threads);
        let best = self.curve.iter().map(each).fold(0.0, f64::max);
        let worthwhile = |point: &&(u32, Bandwidth)| each(point) >= WORTHWHILE * best;
        let most = self.curve.iter().rev().find(worthwhile).map_or(self.threads, |(threads, _)| *threads);
        if self.busy > 0.0 { most } else { self.threads }
    }

    /// Its number of copy threads for copies that kernels wait for: the fewest that are as fast as it gets, and no more than
    /// there are cores.
    pub fn swiftest(&self, cores: u32) -> u32 {
        let there = |point: &&(u32, Bandwidth)| point.0 <= cores.max(1);
        let most = self.curve.iter().filter(there).map(|(_, speed)| speed.0).fold(0.0, f64::max);
        let found = self.curve.iter().filter(there).find(|(_, speed)| speed.0 >= most);
        found.filter(|_| self.busy > 0.0).map_or(self.threads, |(threads, _)| *threads)
    }

    /// The bandwidth with this many copy threads: the curve's own points, straight lines between them, level
    /// beyond its ends.
    pub fn bandwidth(&self, threads: u32) -> Bandwidth {
        let after = self.curve.partition_point(|(t, _)| *t < threads);
        match (after.checked_sub(1).map(|i| self.curve[i]), self.curve.get(after)) {
            (_, Some(&(t, b))) if t == threads => b,
            (None, Some(&(_, b))) | (Some((_, b)), None) => b,
            (Some((t0, b0)), Some(&(t1, b1))) => {
                let along = f64::from(threads - t0) / f64::from(t1 - t0);
                Bandwidth(b0.0 + (b1.0 - b0.0) * along)
            }
            (None, None) => unreachable!("a link's curve has at least one point"),
        }
    }

    /// The bandwidth with the link's own number of copy threads.
    pub fn speed(&self) -> Bandwidth {
        self.bandwidth(self.threads)
    }
}

/// How many threads copy in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyThreads {
    /// The tier that they read.
    pub from: String,
    /// The tier that they write.
    pub to: String,
    /// How many.
    pub threads: u32,
}
