//! Short codes of vectors: a few bits a number, from which distances are estimated without the vector.
//!
//! A vector is rotated at random, what its nearest of some centres leaves over is rounded to a few levels a number, and two
//! figures beside the code make the estimate unbiased: RaBitQ (Gao and Long, SIGMOD 2024) with one bit, its extension
//! (SIGMOD 2025) with more. With the residual `r = x − c`, its code `x̄` and `f = |r|² / ⟨x̄, r⟩`, the product of `r` with
//! anything is about `f·⟨x̄, ·⟩`, and so
//!
//! ```text
//! |x − q|²   ≈ |r|² + |q − c|² − 2f·⟨x̄, q − c⟩          =  A + T[c] − F·⟨x̄, q − μ⟩
//! 1 − ⟨x, q⟩ ≈ 1 − ⟨r, c⟩ − ⟨c, q⟩ − f·⟨x̄, q − c⟩        =  A + T[c] − F·⟨x̄, q − μ⟩
//! ```
//!
//! where A and F are kept with the code, T is a table of one number a centre, made once a query, and μ is the mean of all.

mod centres;
mod dot;
mod rotation;

use crate::arena::Arena;
use crate::distance::{fetch, key_of_f32};
use crate::element::{Intake, Metric, widen};
use crate::error::AnnError;
use crate::rows::Rows;
use crate::{insert, parallel};

use dot::Level;
use rotation::Rotation;

/// What stands behind each code: A, F and the centre.
const TAIL: usize = 8;

/// How many rows centres are made from.
const SAMPLE: usize = 20_000;

/// Makes codes, and queries for them.
pub(crate) struct Coder {
    intake: Intake,
    bits: u32,
    rotation: Rotation,
    /// The mean of all vectors, rotated.
    mean: Vec<f32>,
    /// Centres less the mean, rotated, one after the other.
    centres: Vec<f32>,
    /// What F is counted in.
    unit: f32,
    seed: u64,
}

/// Codes of all vectors, and who made them.
pub(crate) struct Codes {
    coder: Coder,
    bytes: Arena,
    stride: usize,
}

/// A query against codes.
#[derive(Default)]
pub(crate) struct CodeQuery {
    level: Level,
    /// T, by centre.
    table: Vec<f32>,
    rotated: Vec<f32>,
}

/// How many bits a number may have.
pub(crate) const WIDTHS: [u32; 4] = [8, 4, 2, 1];

/// The bytes of a code.
pub(crate) fn stride(dim: usize, bits: u32) -> usize {
    rotation::padded(dim) * bits as usize / 8 + TAIL
}

/// The bytes of what all codes share: the mean and the centres.
pub(crate) fn shared(dim: usize, vectors: usize) -> usize {
    rotation::padded(dim) * (1 + centres::count(vectors)) * 4
}

impl Coder {
    /// Learns centres from rows.
    fn learn(rows: &Rows, there: &[u32], bits: u32, seed: u64, threads: usize) -> Coder {
        let intake = *rows.intake();
        let rotation = Rotation::new(intake.dim, seed);
        let width = rotation.padded();
        let mut coder = Coder {
            intake,
            bits,
            rotation,
            mean: vec![0.0; width],
            centres: vec![0.0; width],
            unit: 1.0,
            seed,
        };
        let count = there.len().min(SAMPLE);
        let picked = |at: usize| there[at * there.len() / count];
        let mut tools = vec![(); threads.max(1)];
        let sample: Vec<Vec<f32>> =
            parallel::each(&mut tools, count, |(), at| coder.rotated(rows.get(picked(at)).0));
        for row in &sample {
            coder.mean.iter_mut().zip(row).for_each(|(mean, n)| *mean += n / count as f32);
        }
        let less = |row: Vec<f32>| row.iter().zip(&coder.mean).map(|(n, mean)| n - mean).collect();
        let sample: Vec<Vec<f32>> = sample.into_iter().map(less).collect();
        coder.centres = centres::learn(&sample, centres::count(there.len()), insert::mix(seed, 77), threads);
        let most = parallel::each(&mut tools, count, |(), at| coder.parts(&sample[at]).factor)
            .into_iter()
            .fold(0.0, f32::max);
        // Some rows outside the sample need more; beyond it they are cut.
        coder.unit = if most > 0.0 { most * 2.0 } else { 1.0 };
        coder
    }

    /// A kept row or query as numbers, of length one where angles count, and rotated.
    fn rotated(&self, row: &[u8]) -> Vec<f32> {
        let mut numbers = vec![0.0; self.rotation.padded()];
        widen(
            self.intake.dtype,
            &row[..self.intake.dim * self.intake.dtype.size()],
            &mut numbers[..self.intake.dim],
        );
        if self.intake.metric == Metric::Cosine && self.intake.dtype.integer() {
            let length = numbers.iter().map(|n| n * n).sum::<f32>().sqrt();
            numbers.iter_mut().for_each(|n| *n /= length.max(f32::MIN_POSITIVE));
        }
        self.rotation.turn(&mut numbers);
        numbers
    }

    /// Everything about the code of a rotated vector less the mean.
    fn parts(&self, vector: &[f32]) -> Parts {
        let width = self.rotation.padded();
        let centre = centres::nearest(&self.centres, width, vector);
        let from = &self.centres[centre * width..][..width];
        let residual: Vec<f32> = vector.iter().zip(from).map(|(n, c)| n - c).collect();
        let square = product(&residual, &residual);
        let levels = dot::round(&residual, self.bits);
        let middle = ((1 << self.depth()) - 1) as f32 / 2.0;
        let code: Vec<f32> = levels.iter().map(|level| f32::from(*level) - middle).collect();
        let along = product(&code, &residual);
        let factor = if along > 0.0 { square / along } else { 0.0 };
        let with_centre = factor * product(&code, from);
        let (base, factor) = match self.intake.metric {
            Metric::L2 => (square + 2.0 * with_centre, 2.0 * factor),
            _ => {
                let whole: f32 =
                    residual.iter().zip(from.iter().zip(&self.mean)).map(|(r, (c, m))| r * (c + m)).sum();
                (1.0 - whole + with_centre, factor)
            }
        };
        Parts { levels, base, factor, centre: centre as u16 }
    }

    /// How many bits a level really has.
    fn depth(&self) -> u32 {
        dot::depth(self.bits)
    }

    /// Writes the code of a kept row.
    fn encode(&self, row: &[u8], into: &mut [u8]) {
        let mut vector = self.rotated(row);
        vector.iter_mut().zip(&self.mean).for_each(|(n, mean)| *n -= mean);
        let parts = self.parts(&vector);
        let (code, tail) = into.split_at_mut(into.len() - TAIL);
        dot::pack(&parts.levels, self.bits, code);
        tail[..4].copy_from_slice(&parts.base.to_le_bytes());
        let factor = (parts.factor / self.unit * f32::from(u16::MAX)).round().min(f32::from(u16::MAX)) as u16;
        tail[4..6].copy_from_slice(&factor.to_le_bytes());
        tail[6..8].copy_from_slice(&parts.centre.to_le_bytes());
    }

    /// Makes a kept query ready for estimates.
    pub(crate) fn ask(&self, query: &[u8], into: &mut CodeQuery) {
        let CodeQuery { level, table, rotated } = into;
        *rotated = self.rotated(query);
        let width = self.rotation.padded();
        table.clear();
        if self.intake.metric == Metric::L2 {
            rotated.iter_mut().zip(&self.mean).for_each(|(n, mean)| *n -= mean);
            table.extend(self.centres.chunks_exact(width).map(|centre| centres::apart(centre, rotated)));
        } else {
            let mean = product(&self.mean, rotated);
            table.extend(self.centres.chunks_exact(width).map(|centre| -mean - product(centre, rotated)));
            rotated.iter_mut().zip(&self.mean).for_each(|(n, mean)| *n -= mean);
        }
        level.set(rotated, self.bits);
    }

    /// Numbers that say all of it, for a file.
    fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.bits.to_le_bytes());
        bytes.extend(((self.centres.len() / self.rotation.padded()) as u32).to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(self.unit.to_le_bytes());
        self.mean.iter().chain(&self.centres).for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes
    }

    /// The bytes held.
    fn resident(&self) -> usize {
        (self.mean.len() + self.centres.len()) * 4
    }
}

struct Parts {
    levels: Vec<u8>,
    base: f32,
    factor: f32,
    centre: u16,
}

/// The inner product, in lanes that compilers understand.
fn product(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; 16];
    for (a, b) in a.chunks_exact(16).zip(b.chunks_exact(16)) {
        for lane in 0..16 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum()
}

impl Codes {
    /// Codes of these rows, in this order.
    pub(crate) fn make(
        rows: &Rows,
        order: &[u32],
        bits: u32,
        seed: u64,
        threads: usize,
    ) -> Result<Codes, AnnError> {
        let coder = Coder::learn(rows, order, bits, seed, threads);
        let stride = stride(rows.intake().dim, bits);
        let mut bytes = Arena::zeroed(order.len() * stride).map_err(|_| no_room(order.len() * stride))?;
        // Threads make codes, one thread puts them in their places.
        let mut tools = vec![(); threads.max(1)];
        for (part, ids) in order.chunks(1 << 14).enumerate() {
            let made = parallel::each(&mut tools, ids.len(), |(), at| {
                let mut code = vec![0; stride];
                coder.encode(rows.get(ids[at]).0, &mut code);
                code
            });
            for (at, code) in made.iter().enumerate() {
                let start = ((part << 14) + at) * stride;
                bytes[start..start + stride].copy_from_slice(code);
            }
        }
        Ok(Codes { coder, bytes, stride })
    }

    /// What a file keeps: what all codes share, and the codes.
    pub(crate) fn write(&self) -> (Vec<u8>, &[u8]) {
        (self.coder.write(), &self.bytes)
    }

    /// Reads what [`Codes::write`] wrote; `codes` fetches the codes themselves once their length is known to be right.
    pub(crate) fn read(
        intake: Intake,
        vectors: usize,
        shared: &[u8],
        codes: impl FnOnce(usize) -> Result<Arena, AnnError>,
    ) -> Result<Codes, AnnError> {
        let wrong = || AnnError::Unsupported("the index file has codes that this version cannot read");
        let rotation_width = rotation::padded(intake.dim);
        let (head, numbers) = shared.split_at_checked(20).ok_or_else(wrong)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (bits, count) = (word(0), word(4) as usize);
        let seed = u64::from(word(8)) | u64::from(word(12)) << 32;
        let unit = f32::from_bits(word(16));
        let whole =
            WIDTHS.contains(&bits) && (1..=usize::from(u16::MAX)).contains(&count) && unit.is_finite();
        if !whole || numbers.len() != rotation_width * (count + 1) * 4 {
            return Err(wrong());
        }
        let all: Vec<f32> = numbers.as_chunks::<4>().0.iter().map(|n| f32::from_le_bytes(*n)).collect();
        let (mean, centres) = all.split_at(rotation_width);
        let rotation = Rotation::new(intake.dim, seed);
        let coder =
            Coder { intake, bits, rotation, mean: mean.to_vec(), centres: centres.to_vec(), unit, seed };
        let stride = stride(intake.dim, bits);
        let bytes = codes(vectors * stride)?;
        if bytes.len() != vectors * stride {
            return Err(wrong());
        }
        let codes = Codes { coder, bytes, stride };
        let good = (0..vectors).all(|row| (codes.tail(row as u32).2 as usize) < count);
        if good { Ok(codes) } else { Err(wrong()) }
    }

    /// Who made them.
    pub(crate) fn coder(&self) -> &Coder {
        &self.coder
    }

    /// How many bits a number has.
    pub(crate) fn bits(&self) -> u32 {
        self.coder.bits
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.bytes.len() + self.coder.resident()
    }

    #[inline(always)]
    fn tail(&self, row: u32) -> (f32, f32, u16) {
        let end = (row as usize + 1) * self.stride;
        let tail = &self.bytes[end - TAIL..end];
        let factor = u16::from_le_bytes([tail[4], tail[5]]);
        let base = f32::from_le_bytes([tail[0], tail[1], tail[2], tail[3]]);
        (base, f32::from(factor), u16::from_le_bytes([tail[6], tail[7]]))
    }

    /// Asks for a code ahead of its turn.
    #[inline(always)]
    pub(crate) fn fetch(&self, row: u32) {
        fetch(self.bytes.as_ptr().wrapping_add(row as usize * self.stride), self.stride);
    }

    /// The keys of estimated distances of these rows.
    pub(crate) fn estimate(&self, query: &CodeQuery, rows: &[u32], keys: &mut [u32]) {
        let unit = self.coder.unit / f32::from(u16::MAX);
        let mut products = [0.0; 64];
        for (rows, keys) in rows.chunks(64).zip(keys.chunks_mut(64)) {
            query.level.many(&self.bytes, self.stride, rows, &mut products);
            for ((row, key), product) in rows.iter().zip(keys).zip(products) {
                let (base, factor, centre) = self.tail(*row);
                *key = key_of_f32(base + query.table[centre as usize] - factor * unit * product);
            }
        }
    }
}

fn no_room(bytes: usize) -> AnnError {
    AnnError::FastMemory {
        what: "codes",
        wanted: tiercel_core::Bytes(bytes as u64),
        there: tiercel_core::Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::f32_of_key;
    use crate::element::{Dtype, Matrix};

    /// Estimates are near the truth, the nearer the more bits there are, for every metric and kind.
    #[test]
    fn estimates_are_near_and_nearer_with_more_bits() {
        let mut random = fastrand::Rng::with_seed(5);
        for (dtype, metric, dim) in [
            (Dtype::F32, Metric::L2, 100),
            (Dtype::U8, Metric::L2, 130),
            (Dtype::F32, Metric::Cosine, 64),
            (Dtype::U8, Metric::Cosine, 70),
            (Dtype::I8, Metric::InnerProduct, 96),
        ] {
            let intake = Intake { dtype, metric, dim };
            let numbers: Vec<f32> = (0..dim * 600).map(|_| random.i32(0..100) as f32).collect();
            let matrix = Matrix::of_f32(dim, &numbers).unwrap();
            let mut rows = Rows::new(intake);
            rows.resize(600).unwrap();
            (0..600).for_each(|row| rows.set(row, &matrix, row as usize).unwrap());
            let order: Vec<u32> = (0..600).collect();
            let mut last = f64::INFINITY;
            for bits in [1, 2, 4, 8] {
                let codes = Codes::make(&rows, &order, bits, 9, 2).unwrap();
                let (mut off, mut spread) = (0.0, 0.0);
                for query in [3, 77, 400] {
                    let mut asked = CodeQuery::default();
                    codes.coder().ask(rows.get(query).0, &mut asked);
                    let mut keys = vec![0; 600];
                    codes.estimate(&asked, &order, &mut keys);
                    let true_of = |row: u32| {
                        f64::from(rows.distance().value(rows.distance().one(rows.get(query), rows.get(row))))
                    };
                    let mean = order.iter().map(|row| true_of(*row)).sum::<f64>() / 600.0;
                    for row in &order {
                        off += (f64::from(f32_of_key(keys[*row as usize])) - true_of(*row)).powi(2);
                        spread += (true_of(*row) - mean).powi(2);
                    }
                }
                let error = (off / spread).sqrt();
                assert!(
                    error < last,
                    "{dtype} {metric}: {bits} bits have an error of {error}, fewer of {last}"
                );
                last = error;
            }
            assert!(last < 0.12, "{dtype} {metric}: 8 bits leave an error of {last}");
        }
    }

    #[test]
    fn written_codes_read_back() {
        let intake = Intake { dtype: Dtype::U8, metric: Metric::L2, dim: 9 };
        let numbers: Vec<f32> = (0..9 * 40).map(|n| (n * 7 % 97) as f32).collect();
        let matrix = Matrix::of_f32(9, &numbers).unwrap();
        let mut rows = Rows::new(intake);
        rows.resize(40).unwrap();
        (0..40).for_each(|row| rows.set(row, &matrix, row as usize).unwrap());
        let order: Vec<u32> = (0..40).rev().collect();
        let codes = Codes::make(&rows, &order, 2, 9, 1).unwrap();
        let (shared, bytes) = codes.write();
        let read = |shared: &[u8]| {
            Codes::read(intake, 40, shared, |len| {
                let mut arena = Arena::zeroed(len).unwrap();
                arena.copy_from_slice(bytes);
                Ok(arena)
            })
        };
        let back = read(&shared).unwrap();
        assert_eq!((back.write().0, back.write().1), (shared.clone(), bytes));
        assert!(read(&shared[1..]).is_err());
        assert!(read(&[]).is_err());
    }
}
