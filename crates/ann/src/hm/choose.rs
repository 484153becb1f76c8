//! Equation 3.1: which widths of both beams can answer in time, and of those the quickest that finds enough.
//!
//! ```text
//! T = efSearchL1 · C · T_fast  +  ⌈efSearchL1 / Thr⌉ · efSearchL0 · C · T_slow  ≤  limit
//! ```
//!
//! C, the distances a step of a beam, and both times of a distance are measured first; pairs that the equation admits are tried on
//! queries to learn from. Where slow memory is not emulated, times are calculated by the paper's of a distance.

use std::time::Instant;

use crate::data::Ids;
use crate::element::Matrix;
use crate::error::AnnError;
use crate::hm::search::{DISTANCE, Hm, SLOWER, THREADS, Widths};
use crate::index::Index;
use crate::insert::mix;

/// The distances that are timed.
const TIMED: usize = 10_000;

/// Widths that are tried on level 1 and on level 0.
const LADDERS: (&[usize], &[usize]) =
    (&[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512], &[1, 2, 3, 4, 6, 8, 12, 16, 24, 32]);

/// What is wanted of the widths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// How many neighbours of a query count.
    pub k: usize,
    /// The seconds that a query may take.
    pub seconds: f64,
    /// The recall to reach.
    pub recall: f64,
}

/// What was chosen, and from what.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The widths.
    pub widths: Widths,
    /// The recall that they reach on the queries learnt from.
    pub recall: f64,
    /// The seconds that a query takes.
    pub seconds: f64,
    /// The seconds that the equation says.
    pub predicted: f64,
    /// Pairs of widths in all.
    pub pairs: usize,
    /// Those that the equation admits.
    pub admitted: usize,
    /// Those of them that were slower than the limit all the same.
    pub late: usize,
    /// Seconds of a distance in fast memory and in slow memory.
    pub distance: (f64, f64),
    /// Distances a step.
    pub steps: f64,
}

/// The seconds of one distance among vectors at random.
fn distance_seconds(index: &Index) -> f64 {
    let rows = &index.rows;
    let ids: Vec<u32> = (0..TIMED).map(|at| (mix(7, at as u64) % rows.len() as u64) as u32).collect();
    let mut keys = vec![0; ids.len()];
    let begun = Instant::now();
    rows.distance().many(rows.get(0), rows, &ids, &mut keys);
    begun.elapsed().as_secs_f64() / TIMED as f64
}

/// Chooses widths for a goal by Equation 3.1 and queries to learn from.
pub fn choose(
    index: &Index,
    hm: &mut Hm<'_>,
    queries: &Matrix<'_>,
    truth: &Ids,
    goal: &Goal,
) -> Result<Chosen, AnnError> {
    if index.is_empty() || queries.is_empty() {
        return Err(AnnError::Empty);
    }
    let fast = if hm.emulates() { distance_seconds(index) } else { DISTANCE.as_secs_f64() };
    let slow = fast + SLOWER.as_secs_f64();
    let probe = Widths { l1: 32, l0: 2 };
    let (_, touched, _) = hm.search(queries, goal.k, probe)?;
    let count = queries.len() as f64;
    // Beams of both levels together have followed about so many nodes.
    let followed = count * (probe.l1 * (1 + probe.l0)) as f64;
    let steps = (touched.fast + touched.slow) as f64 / followed;
    let predicted =
        |w: Widths| (w.l1 as f64) * steps * fast + (w.l1.div_ceil(THREADS) * w.l0) as f64 * steps * slow;
    let pairs: Vec<Widths> =
        LADDERS.0.iter().flat_map(|l1| LADDERS.1.iter().map(|l0| Widths { l1: *l1, l0: *l0 })).collect();
    let admitted: Vec<Widths> = pairs.iter().copied().filter(|w| predicted(*w) <= goal.seconds).collect();
    let (mut best, mut highest, mut late): (Option<Chosen>, f64, usize) = (None, 0.0, 0);
    for widths in &admitted {
        let (found, touched, times) = hm.search(queries, goal.k, *widths)?;
        let recall = found.recall(&truth.labels, truth.width);
        let seconds = match hm.emulates() {
            true => times.iter().sum::<f64>() / count,
            false => touched.nanos as f64 * 1e-9 / count,
        };
        highest = highest.max(recall);
        late += usize::from(seconds > goal.seconds);
        if recall >= goal.recall && best.as_ref().is_none_or(|best| seconds < best.seconds) {
            best = Some(Chosen {
                widths: *widths,
                recall,
                seconds,
                predicted: predicted(*widths),
                pairs: pairs.len(),
                admitted: admitted.len(),
                late: 0,
                distance: (fast, slow),
                steps,
            });
        }
    }
    let chosen = best.ok_or(AnnError::Unreachable { wanted: goal.recall, best: highest })?;
    Ok(Chosen { late, ..chosen })
}
