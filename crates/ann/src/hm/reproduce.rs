//! The figures of the chapter's text beside ours: HM-ANN and what it is compared with, at the same recall.

use crate::data::Ids;
use crate::element::{Matrix, Metric};
use crate::error::AnnError;
use crate::hm::choose::{Goal, choose};
use crate::hm::memory::Memory;
use crate::hm::placement::Variant;
use crate::hm::search::{Hm, Touched, Widths};
use crate::index::{Index, Spec};
use crate::insert::mix;

/// The share of HNSW's bytes that is fast: 96 of 475 GB (Table 3.1).
const FAST: f64 = 0.202;

/// The share of nodes that is promoted (Table 3.1). On small sets migration space and searches leave another share of so much fast
/// memory, and so it is set.
const PROMOTED: f64 = 0.16;

/// What one variant takes at one recall.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The recall reached.
    pub recall: f64,
    /// Seconds that half of the queries take at most: measured, with slow memory emulated.
    pub seconds: f64,
    /// Seconds that a query would take on average with the paper's times of a distance: calculated from what was touched.
    pub calculated: f64,
    /// What was touched, all queries together.
    pub touched: Touched,
    /// How many queries there were.
    pub queries: usize,
}

/// What was found of every variant.
#[derive(Clone, Debug)]
pub struct Found {
    /// Widths from narrow to wide, by variant.
    pub curves: Vec<(Variant, Vec<At>)>,
    /// The share of nodes on level 1.
    pub promoted: f64,
    /// How much longer building takes with promotion, as a share.
    pub longer: f64,
    /// The share of the admitted widths that were in time, and of all widths that were not admitted.
    pub chosen: Option<(f64, f64)>,
    /// Distances a query at a recall of 0.99 of HNSW and of HM-ANN.
    pub distances: Option<(f64, f64)>,
    /// The share of the true nearest that are on level 1, chosen by degree and at random.
    pub held: (f64, f64),
}

impl Found {
    /// A figure of a variant at a recall, between the two settings around it.
    pub fn between(&self, variant: Variant, recall: f64, figure: impl Fn(&At) -> f64) -> Option<f64> {
        let curve = &self.curves.iter().find(|(other, _)| *other == variant)?.1;
        let after = curve.iter().position(|at| at.recall >= recall)?;
        let high = &curve[after];
        let Some(low) = after.checked_sub(1).map(|at| &curve[at]) else { return Some(figure(high)) };
        let along = (recall - low.recall) / (high.recall - low.recall).max(1e-9);
        Some(figure(low) + (figure(high) - figure(low)) * along)
    }
}

/// Vectors whose numbers lie along directions that matter ever less, as those of real sets do. Made here, because the paper's
/// billion vectors cannot be had. How fast directions fade was chosen so that HNSW takes as many distances as on the paper's sets of a
/// million.
pub fn vectors(count: usize, seed: u64) -> (Vec<f32>, usize) {
    let dim = 96;
    let mut state = seed;
    let mut normal = move || {
        let mut sum = 0.0;
        for _ in 0..4 {
            state += 1;
            sum += (mix(seed, state) >> 40) as f32 / (1u64 << 24) as f32 - 0.5;
        }
        sum * 1.7
    };
    let spread: Vec<f32> = (1..=dim).map(|at| (at as f32).powf(-0.7)).collect();
    // So that numbers have a standard deviation of 28 around 128.
    let scale = 28.0 / spread.iter().map(|s| s * s).sum::<f32>().sqrt();
    let turned: Vec<f32> = (0..dim * dim).map(|at| normal() * spread[at / dim] * scale).collect();
    let mut all = vec![128.0; count * dim];
    for vector in all.chunks_exact_mut(dim) {
        for direction in turned.chunks_exact(dim) {
            let along = normal();
            vector.iter_mut().zip(direction).for_each(|(number, by)| *number += along * by);
        }
        vector.iter_mut().for_each(|number| *number = number.round().clamp(0.0, 255.0));
    }
    (all, dim)
}

/// Measures every variant on these vectors; the top neighbour alone counts, as in the paper.
pub fn measure(
    base: &Matrix<'_>,
    queries: &Matrix<'_>,
    metric: Metric,
    threads: usize,
    tick: &mut dyn FnMut(),
) -> Result<Found, AnnError> {
    let spec = Spec { ef_construction: 100, ..Spec::new(base.dim(), metric, base.dtype()) };
    let mut index = Index::new(spec)?;
    let begun = std::time::Instant::now();
    index.add_items(base, None, threads)?;
    let built = begun.elapsed().as_secs_f64();
    tick();
    let exact = index.exact(queries, 1, threads)?;
    let truth = Ids { width: 1, labels: exact.labels };
    let fast = Hm::bytes_for(&index, PROMOTED);
    let beside = (FAST * Memory::of_hnsw(&spec, index.len() as u64).0 as f64) as u64;
    let begun = std::time::Instant::now();
    let promoted = Hm::new(&index, Variant::HmAnn, fast, threads, true)?;
    let longer = begun.elapsed().as_secs_f64() / built;
    let share = promoted.promoted();
    let hnsw = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768];
    let mut curves = Vec::new();
    for variant in Variant::ALL {
        let fast = if variant.promotes() { fast } else { beside };
        let mut hm = Hm::new(&index, variant, fast, threads, true)?;
        let mut curve: Vec<At> = Vec::new();
        for width in hnsw {
            let widths = Widths { l1: width, l0: 2 };
            let (found, touched, mut times) = hm.search(queries, 1, widths)?;
            let recall = found.recall(&truth.labels, 1);
            times.sort_by(f64::total_cmp);
            let seconds = times.get(times.len() / 2).copied().unwrap_or(0.0);
            let calculated = touched.nanos as f64 * 1e-9 / queries.len().max(1) as f64;
            let at = At { recall, seconds, calculated, touched, queries: queries.len() };
            let enough = recall >= 0.9995;
            if curve.last().is_none_or(|last| recall > last.recall) {
                curve.push(at);
            }
            if enough {
                break;
            }
        }
        curves.push((variant, curve));
        tick();
    }
    let learn = queries.slice(0..queries.len().min(200));
    let goal = Goal { k: 1, seconds: 200e-6, recall: 0.9 };
    let mut counted = Hm::new(&index, Variant::HmAnn, fast, threads, false)?;
    let chosen = choose(&index, &mut counted, &learn, &truth, &goal).ok().map(|chosen| {
        let admitted = chosen.admitted.max(1) as f64;
        (1.0 - chosen.late as f64 / admitted, 1.0 - chosen.admitted as f64 / chosen.pairs as f64)
    });
    tick();
    let held = |hm: &Hm<'_>| {
        let there = truth.labels.iter().filter(|label| hm.promotes(**label)).count();
        there as f64 / truth.labels.len().max(1) as f64
    };
    let random = Hm::new(&index, Variant::RandomPromotion, fast, threads, false)?;
    let held = (held(&promoted), held(&random));
    let mut found = Found { curves, promoted: share, longer, chosen, distances: None, held };
    let touches = |at: &At| (at.touched.fast + at.touched.slow) as f64 / at.queries as f64;
    let both = [Variant::AllFast, Variant::HmAnn].map(|variant| found.between(variant, 0.99, touches));
    found.distances = both[0].zip(both[1]);
    Ok(found)
}
