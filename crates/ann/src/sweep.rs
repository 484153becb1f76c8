//! How fast an index answers at which recall: over widths of beams, with everything in memory or with vectors in the file.

use std::time::{Duration, Instant};

use crate::data::Ids;
use crate::element::Matrix;
use crate::error::AnnError;
use crate::index::{Ask, Index, Neighbours};
use crate::tier::{Moved, TierAsk, Tiered};

/// The widths that are tried.
pub const WIDTHS: [usize; 14] = [10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640, 1024];

/// What one setting reaches.
#[derive(Clone, Debug)]
pub struct Point {
    /// The width of the beam.
    pub ef: usize,
    /// How many vectors were read for their true distances; absent where all are in memory.
    pub rerank: Option<usize>,
    /// The share of the true neighbours found.
    pub recall: f64,
    /// Queries a second, over all threads.
    pub qps: f64,
    /// Queries a second of processor time: on a machine that others use it says more than the former.
    pub busy_qps: f64,
    /// What half of the queries take at most, one after the other, in seconds.
    pub p50: f64,
    /// What 99 in a hundred take at most.
    pub p99: f64,
    /// What moved for all queries.
    pub moved: Moved,
}

/// An index to be timed.
#[derive(Clone, Copy)]
pub enum Timed<'a> {
    /// With everything in memory.
    Memory(&'a Index),
    /// With vectors in its file.
    File(&'a Tiered),
}

/// One setting: the width of the beam, and how much is read.
pub type Width = (usize, Option<usize>);

impl Timed<'_> {
    /// The settings that a sweep tries, and how many of them are worth trying for `k`.
    pub fn widths(&self, k: usize) -> Vec<Width> {
        let wide = || WIDTHS.into_iter().filter(move |ef| *ef >= k);
        match self {
            Timed::Memory(_) => wide().map(|ef| (ef, None)).collect(),
            Timed::File(_) => wide().map(|ef| (ef, Some((ef / 2).max(k)))).collect(),
        }
    }

    /// Searches with one setting, and times it: all queries over threads, and some of them one after the other. `clock` tells the
    /// processor time of this program.
    pub fn point(
        &self,
        queries: &Matrix<'_>,
        truth: &Ids,
        (k, threads): (usize, usize),
        (ef, rerank): Width,
        clock: fn() -> Duration,
    ) -> Result<Point, AnnError> {
        let (begun, before) = (Instant::now(), clock());
        let (found, moved) = self.ask(queries, k, threads, (ef, rerank))?;
        let (took, busy) = (begun.elapsed().as_secs_f64(), clock().saturating_sub(before).as_secs_f64());
        let mut times = Vec::new();
        for at in 0..queries.len().min(300) {
            let begun = Instant::now();
            self.ask(&queries.slice(at..at + 1), k, 1, (ef, rerank))?;
            times.push(begun.elapsed().as_secs_f64());
        }
        times.sort_by(f64::total_cmp);
        let part = |share: f64| {
            times.get((times.len() as f64 * share) as usize).or(times.last()).copied().unwrap_or(0.0)
        };
        Ok(Point {
            ef,
            rerank,
            recall: found.recall(&truth.labels, truth.width),
            qps: queries.len() as f64 / took,
            busy_qps: queries.len() as f64 / busy.max(1e-9),
            p50: part(0.5),
            p99: part(0.99),
            moved,
        })
    }

    fn ask(
        &self,
        queries: &Matrix<'_>,
        k: usize,
        threads: usize,
        (ef, rerank): Width,
    ) -> Result<(Neighbours, Moved), AnnError> {
        match self {
            Timed::Memory(index) => {
                let found = index.knn_query(queries, k, &Ask { ef: Some(ef), threads, filter: None })?;
                let moved = Moved { distances: found.computed, ..Moved::default() };
                Ok((found, moved))
            }
            Timed::File(tiered) => {
                tiered.knn_query(queries, k, &TierAsk { ef: Some(ef), rerank, threads, ..TierAsk::default() })
            }
        }
    }
}
