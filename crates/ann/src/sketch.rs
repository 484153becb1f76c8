//! Copies of vectors in a byte a number, on which searches in memory walk: a quarter of the bytes, and distances in whole numbers.
//!
//! A search of numbers of 32 bits mostly waits for memory and adds up floats. On the copies it walks over a quarter of the bytes; then
//! the nearest by copy get their true distances, a few of them for every neighbour that is wanted. Every number is rounded to the same
//! steps, counted from the mean of its place, so that the order of distances is nearly kept (scalar quantization, as faiss has it). Where
//! a few large numbers would leave the others too few steps the copies are tried on the index's own vectors, and given up if they
//! mistake who is near.

use crate::element::{Dtype, Intake, Metric, widen};
use crate::index::{Answer, Index, NOBODY};
use crate::rows::Rows;
use crate::search::{Scratch, View};

/// With fewer vectors all of them are in the processor's caches anyway.
const LEAST: usize = 1000;

/// How many vectors the steps are learnt from.
const SAMPLE: usize = 4096;

/// How many of these are asked for their neighbours among them, to try the copies.
const ASKED: usize = 64;

/// How many neighbours they are asked for.
const NEAR: usize = 10;

/// The largest number of a copy: differences of seven bits multiply in pairs.
const TOP: f32 = 127.0;

/// How many of the nearest by copy get their true distance, where `k` are wanted.
pub(crate) fn looked_at(k: usize) -> usize {
    2 * k + 6
}

/// Copies of all vectors.
pub(crate) struct Sketch {
    rows: Rows,
    /// What zero stands for, by place.
    low: Vec<f32>,
    /// How many steps one is.
    steps: f32,
}

/// Whether copies are worth it: much shorter, of numbers whose nearest by the sum of squares are the nearest.
fn fits(rows: &Rows) -> bool {
    let intake = rows.intake();
    !intake.dtype.integer()
        && intake.metric != Metric::InnerProduct
        && 2 * copied(intake).stride() <= rows.stride()
}

/// Rows for copies. Of vectors of length one the nearest by angle are the nearest by the sum of squares.
fn copied(intake: &Intake) -> Rows {
    Rows::new(Intake { dtype: Dtype::U8, metric: Metric::L2, dim: intake.dim })
}

impl Sketch {
    /// Learns the steps from some rows, and copies all; nothing where copies would not do.
    fn learn(rows: &Rows, there: &[u32]) -> Option<Sketch> {
        let (dim, count) = (rows.intake().dim, there.len().min(SAMPLE));
        let picked: Vec<u32> = (0..count).map(|at| there[at * there.len() / count]).collect();
        let mut numbers = vec![0.0; dim];
        let mut mean = vec![0.0f32; dim];
        for row in &picked {
            widen(rows.intake().dtype, &rows.get(*row).0[..rows.kept()], &mut numbers);
            mean.iter_mut().zip(&numbers).for_each(|(mean, n)| *mean += n / count as f32);
        }
        let mut far = 0.0f32;
        for row in &picked {
            widen(rows.intake().dtype, &rows.get(*row).0[..rows.kept()], &mut numbers);
            far = numbers.iter().zip(&mean).fold(far, |far, (n, mean)| far.max((n - mean).abs()));
        }
        if !(far > 0.0 && far.is_finite()) {
            return None;
        }
        let low = mean.iter().map(|mean| mean - far).collect();
        let mut sketch = Sketch { rows: copied(rows.intake()), low, steps: TOP / (2.0 * far) };
        sketch.rows.resize(rows.len()).ok()?;
        let mut copy = vec![0; dim];
        for row in there {
            sketch.copy(rows, *row, &mut numbers, &mut copy);
        }
        sketch.tells_apart(rows, &picked).then_some(sketch)
    }

    /// Whether the nearest by copy have the truly nearest among them, or others as near.
    fn tells_apart(&self, rows: &Rows, picked: &[u32]) -> bool {
        let nearest = |rows: &Rows, row: u32, among: &[u32], count: usize| {
            let mut keys = vec![0; among.len()];
            rows.distance().many(rows.get(row), rows, among, &mut keys);
            let mut all: Vec<(u32, u32)> = keys.into_iter().zip(among.iter().copied()).collect();
            all.sort_unstable();
            all.truncate(count);
            all
        };
        let (mut asked, mut missed) = (0, 0);
        for row in picked.iter().step_by((picked.len() / ASKED).max(1)) {
            let truth = nearest(rows, *row, picked, NEAR);
            let by_copy = nearest(&self.rows, *row, picked, looked_at(NEAR));
            let by_copy: Vec<u32> = by_copy.into_iter().map(|(_, row)| row).collect();
            let found = nearest(rows, *row, &by_copy, NEAR);
            asked += truth.len();
            missed += truth.iter().zip(&found).filter(|(truth, found)| found.0 > truth.0).count();
        }
        missed * 1000 <= asked
    }

    /// Copies a row as it is kept.
    fn copy(&mut self, from: &Rows, row: u32, numbers: &mut [f32], copy: &mut [u8]) {
        widen(from.intake().dtype, &from.get(row).0[..from.kept()], numbers);
        self.round(numbers, copy);
        self.rows.set_kept(row, copy);
    }

    fn round(&self, numbers: &[f32], copy: &mut [u8]) {
        for ((to, n), low) in copy.iter_mut().zip(numbers).zip(&self.low) {
            *to = ((n - low) * self.steps + 0.5).clamp(0.0, TOP) as u8;
        }
    }

    /// The copy of a query as it is kept.
    pub(crate) fn ask(&self, intake: &Intake, query: &[u8], copy: &mut Vec<u8>) {
        let mut numbers = vec![0.0; intake.dim];
        widen(intake.dtype, &query[..intake.dim * intake.dtype.size()], &mut numbers);
        copy.clear();
        copy.resize(self.rows.stride(), 0);
        self.round(&numbers, copy);
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.rows.resident()
    }
}

impl Index {
    /// Copies these rows, which have new vectors, or all where there are twice as many as when the steps were learnt.
    pub(crate) fn sketch_rows(&mut self, slots: impl Iterator<Item = u32>) {
        if self.len() < LEAST {
            (self.sketch, self.sketched) = (None, 0);
        }
        let tried = self.sketch.is_none() && self.len() < 2 * self.sketched;
        if self.len() < LEAST || !fits(&self.rows) || tried {
            return;
        }
        let room = match &mut self.sketch {
            Some(sketch) if self.slots.len() < 2 * self.sketched => {
                sketch.rows.resize(self.rows.len()).is_ok()
            }
            _ => false,
        };
        if let (Some(sketch), true) = (&mut self.sketch, room) {
            let dim = self.spec.dim;
            let (mut numbers, mut copy) = (vec![0.0; dim], vec![0; dim]);
            slots.for_each(|slot| sketch.copy(&self.rows, slot, &mut numbers, &mut copy));
            return;
        }
        let labels = &self.labels;
        let there: Vec<u32> =
            (0..self.rows.len() as u32).filter(|row| labels[*row as usize] != NOBODY).collect();
        self.sketch = None;
        self.sketch = Sketch::learn(&self.rows, &there);
        self.sketched = there.len();
    }

    /// The `k` nearest of a query: by a walk over copies, whose nearest then get their true distances.
    pub(crate) fn by_sketch(
        &self,
        sketch: &Sketch,
        query: (&[u8], f32),
        (k, width): (usize, usize),
        entry: u32,
        scratch: &mut Scratch,
    ) -> Answer {
        let view = View { rows: &sketch.rows, graph: &self.graph };
        let mut copy = std::mem::take(&mut scratch.copy);
        sketch.ask(self.rows.intake(), query.0, &mut copy);
        let short = (&copy[..], 0.0);
        let first = view.descend(short, entry, (self.graph.level(entry), 1), scratch);
        // A way leads to every node from the entry, but not from everywhere.
        let entries = [first, (sketch.rows.distance().one(short, sketch.rows.get(entry)), entry)];
        view.beam(short, &entries, (0, width), scratch);
        scratch.copy = copy;
        let Scratch { beam, near, distances, .. } = scratch;
        let rows: Vec<u32> = beam.found().take(looked_at(k)).map(|(_, row)| row).collect();
        let mut keys = vec![0; rows.len()];
        self.rows.distance().many(query, &self.rows, &rows, &mut keys);
        *distances += rows.len() as u64;
        near.start(k);
        keys.iter().zip(&rows).for_each(|(key, row)| {
            near.offer(*key, *row);
        });
        let distance = self.rows.distance();
        near.found().map(|(key, row)| (self.labels[row as usize], distance.value(key))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ask, Dtype, Index, Matrix, Metric, Spec};

    fn index(metric: Metric, dim: usize, numbers: &[f32]) -> Index {
        let mut index =
            Index::new(Spec { ef_construction: 60, ..Spec::new(dim, metric, Dtype::F32) }).unwrap();
        index.add_items(&Matrix::of_f32(dim, numbers).unwrap(), None, 2).unwrap();
        index
    }

    fn recall(index: &Index, numbers: &[f32], dim: usize) -> f64 {
        let queries = Matrix::of_f32(dim, &numbers[..dim * 200]).unwrap();
        let found = index.knn_query(&queries, 10, &Ask { ef: Some(200), ..Ask::default() }).unwrap();
        found.recall(&index.exact(&queries, 10, 2).unwrap().labels, 10)
    }

    /// Searches with copies find what those without find, before and after more vectors came, and with true distances.
    #[test]
    fn copies_find_what_vectors_find() {
        let mut random = fastrand::Rng::with_seed(4);
        let dim = 40;
        for metric in [Metric::L2, Metric::Cosine] {
            let mut numbers = || (0..dim * 3000).map(|_| random.f32() - 0.3).collect::<Vec<f32>>();
            let (first, more) = (numbers(), numbers());
            let mut index = index(metric, dim, &first);
            for round in 0..2 {
                assert!(index.sketch.is_some());
                let with = recall(&index, &more, dim);
                let sketch = index.sketch.take();
                let without = recall(&index, &more, dim);
                index.sketch = sketch;
                assert!(with > without - 0.004, "{metric} {round}: {with} of {without}");
                index.add_items(&Matrix::of_f32(dim, &more).unwrap(), None, 2).unwrap();
            }
            let (own, ask) = (Matrix::of_f32(dim, &more[..dim]).unwrap(), Ask::default());
            assert!(index.knn_query(&own, 1, &ask).unwrap().distances[0] < 1e-5);
        }
    }

    /// Vectors that differ by far less than one of their numbers is large would all have one copy: there are none then.
    #[test]
    fn copies_that_mistake_neighbours_are_given_up() {
        let mut random = fastrand::Rng::with_seed(5);
        let dim = 32;
        let mut numbers: Vec<f32> = (0..dim * 2000).map(|_| random.f32()).collect();
        numbers.chunks_exact_mut(dim).step_by(2).for_each(|row| row[0] += 1e4);
        let index = index(Metric::L2, dim, &numbers);
        assert!(index.sketch.is_none());
        assert!(recall(&index, &numbers, dim) > 0.9);
    }
}
