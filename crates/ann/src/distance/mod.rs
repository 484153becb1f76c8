//! How far vectors are from each other, by the widest instructions that the processor has.
//!
//! A distance is a key: a `u32` that orders as the distance does. Whole numbers give exact keys, and a beam sorts
//! integers whatever the metric. Rows are padded with zeros to [`PAD`] bytes, which changes no distance and leaves the
//! loops without ends to take care of. Where sums are of floating point numbers their order, and so the last bit,
//! depends on the instructions: keys are the same on processors with the same instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::element::{Dtype, Metric};
use crate::rows::Rows;

/// Rows are multiples of so many bytes.
pub(crate) const PAD: usize = 32;

/// What is computed of two rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The sum of squared differences.
    Squares,
    /// The inner product.
    Product,
}

/// One row against another: the key of the distance. Both must have so many readable bytes, a multiple of [`PAD`].
pub(crate) type One = unsafe fn(*const u8, *const u8, usize) -> u32;

/// One row against many: rows of a length, a stride apart, by their numbers, with a place for every key. It asks for rows
/// ahead of their turn.
pub(crate) type Many = unsafe fn(*const u8, *const u8, usize, usize, &[u32], &mut [u32]);

/// Keys that order as numbers do.
pub(crate) fn key_of_f32(distance: f32) -> u32 {
    let bits = distance.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The number that a key stands for.
pub(crate) fn f32_of_key(key: u32) -> f32 {
    f32::from_bits(if key >> 31 == 1 { key & !(1 << 31) } else { !key })
}

/// Keys of inner products of whole numbers: the larger product comes first.
pub(crate) fn key_of_product(product: i32) -> u32 {
    (product as u32 ^ (1 << 31)).wrapping_neg().wrapping_sub(1)
}

fn product_of_key(key: u32) -> i32 {
    (key.wrapping_add(1).wrapping_neg() ^ (1 << 31)) as i32
}

/// The two functions of one instruction set for one kind of rows.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) one: One,
    pub(crate) many: Many,
}

/// Distances among rows of one kind.
#[derive(Clone, Copy)]
pub(crate) struct Distance {
    dtype: Dtype,
    metric: Metric,
    pair: Pair,
}

impl Distance {
    /// The best functions that this processor has.
    pub(crate) fn new(dtype: Dtype, metric: Metric) -> Distance {
        let (_, pair) = Distance::all(dtype, metric).pop().expect("portable code is everywhere");
        Distance { dtype, metric, pair }
    }

    /// Every pair of functions that this processor has, by the name of its instructions, the best last.
    pub(crate) fn all(dtype: Dtype, metric: Metric) -> Vec<(&'static str, Pair)> {
        let form = if metric == Metric::L2 { Form::Squares } else { Form::Product };
        #[allow(unused_mut)]
        let mut found = vec![("portable", portable::pair(dtype, form))];
        #[cfg(target_arch = "x86_64")]
        {
            use std::is_x86_feature_detected as has;
            if has!("avx2") && has!("fma") && has!("f16c") {
                found.push(("avx2", avx2::pair(dtype, form)));
                if has!("avx512f") && has!("avx512bw") && has!("avx512vl") {
                    found.push(("avx512", avx512::pair(dtype, form)));
                }
            }
        }
        found
    }

    /// Whether rows need their lengths beside them: angles between whole numbers.
    pub(crate) fn scaled(&self) -> bool {
        self.dtype.integer() && self.metric == Metric::Cosine
    }

    /// One over the length of a row of whole numbers; zero for a row of zeros.
    pub(crate) fn scale(&self, row: &[u8]) -> f32 {
        let square = match self.dtype {
            Dtype::U8 => row.iter().map(|n| u64::from(*n).pow(2)).sum::<u64>(),
            _ => row.iter().map(|n| i64::from(*n as i8).pow(2) as u64).sum(),
        };
        if square == 0 { 0.0 } else { (1.0 / (square as f64).sqrt()) as f32 }
    }

    /// The key of the distance of two padded rows, with their scales where [`Distance::scaled`].
    pub(crate) fn one(&self, a: (&[u8], f32), b: (&[u8], f32)) -> u32 {
        assert!(a.0.len() == b.0.len() && a.0.len().is_multiple_of(PAD), "rows of one padded length");
        // SAFETY: both rows have that many bytes, and `new` chose by what the processor has.
        let key = unsafe { (self.pair.one)(a.0.as_ptr(), b.0.as_ptr(), a.0.len()) };
        if self.scaled() { Self::cosine(key, a.1 * b.1) } else { key }
    }

    /// The keys of the distances of a row to others, by their numbers. There are as many keys as numbers.
    pub(crate) fn many(&self, query: (&[u8], f32), rows: &Rows, ids: &[u32], keys: &mut [u32]) {
        let (bytes, stride) = (rows.bytes(), rows.stride());
        assert!(query.0.len() == stride && ids.len() == keys.len(), "a key for every row of one length");
        let most = ids.iter().fold(0, |most, id| most.max(*id));
        assert!(ids.is_empty() || (most as usize) < rows.len(), "row {most} of {}", rows.len());
        // SAFETY: every row lies within `bytes`, the query is as long as one, and `new` chose by what the processor has.
        unsafe { (self.pair.many)(query.0.as_ptr(), bytes.as_ptr(), stride, stride, ids, keys) };
        if self.scaled() {
            for (key, id) in keys.iter_mut().zip(ids) {
                *key = Self::cosine(*key, query.1 * rows.scale(*id));
            }
        }
    }

    fn cosine(key: u32, scale: f32) -> u32 {
        key_of_f32((1.0 - f64::from(product_of_key(key)) * f64::from(scale)) as f32)
    }

    /// The distance that a key stands for: squared for L2, one less the product or cosine for the others.
    pub(crate) fn value(&self, key: u32) -> f32 {
        match self.metric {
            Metric::L2 if self.dtype.integer() => key as f32,
            Metric::InnerProduct if self.dtype.integer() => (1.0 - f64::from(product_of_key(key))) as f32,
            _ => f32_of_key(key),
        }
    }
}

/// Asks for all cache lines of a row; nothing is read, so any address will do.
#[inline(always)]
pub(crate) fn fetch(start: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect but on caches, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, bytes);
}

/// How many rows ahead to ask for: enough to cover a memory's latency, no more than a core can wait for.
#[inline(always)]
pub(crate) fn ahead(bytes: usize) -> usize {
    (1536 / bytes.max(1)).clamp(1, 12)
}

/// Makes the function over many rows out of the one over two, under the same instructions.
macro_rules! many {
    ($(#[$features:meta])* $name:ident, $one:ident) => {
        $(#[$features])*
        unsafe fn $name(
            query: *const u8,
            base: *const u8,
            stride: usize,
            len: usize,
            ids: &[u32],
            keys: &mut [u32],
        ) {
            let ahead = crate::distance::ahead(len);
            let row = |id: u32| base.wrapping_add(id as usize * stride);
            for id in ids.iter().take(ahead) {
                crate::distance::fetch(row(*id), len);
            }
            for (at, (id, key)) in ids.iter().zip(keys).enumerate() {
                if let Some(next) = ids.get(at + ahead) {
                    crate::distance::fetch(row(*next), len);
                }
                // SAFETY: the caller vouches for the query and for every row.
                *key = unsafe { $one(query, row(*id), len) };
            }
        }
    };
}
pub(crate) use many;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Intake, Matrix, widen};

    #[test]
    fn keys_order_as_numbers_do() {
        let numbers = [f32::NEG_INFINITY, -3.5, -1e-20, -0.0, 0.0, 1e-30, 0.5, 7.0, f32::INFINITY];
        for pair in numbers.windows(2) {
            assert!(key_of_f32(pair[0]) <= key_of_f32(pair[1]), "{pair:?}");
        }
        numbers.iter().for_each(|n| assert_eq!(f32_of_key(key_of_f32(*n)), *n));
        let products = [i32::MAX, 70_000, 1, 0, -1, -70_000, i32::MIN + 1];
        for pair in products.windows(2) {
            assert!(key_of_product(pair[0]) < key_of_product(pair[1]), "{pair:?}");
        }
        products.iter().for_each(|n| assert_eq!(product_of_key(key_of_product(*n)), *n));
    }

    /// Every instruction set against plain sums in double precision, at lengths around those of the loops.
    #[test]
    fn all_instructions_agree_with_plain_sums() {
        let mut random = fastrand::Rng::with_seed(1);
        for dtype in Dtype::ALL {
            for metric in Metric::ALL {
                for dim in [1, 3, 8, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 200, 784, 2000] {
                    let intake = Intake { dtype, metric: Metric::L2, dim };
                    let low = if dtype == Dtype::I8 { -128 } else { 0 };
                    let mut row = |extreme: bool| {
                        let mut numbers = Vec::new();
                        for _ in 0..dim {
                            let n = if extreme { low + 255 } else { random.i32(low..low + 256) };
                            numbers.push(n as f32);
                        }
                        let mut bytes = vec![0; (dim * dtype.size()).next_multiple_of(PAD)];
                        let matrix = Matrix::of_f32(dim, &numbers).unwrap();
                        intake.take(&matrix, 0, &mut bytes).unwrap();
                        bytes
                    };
                    let (a, b) = (row(dim == 2000), row(false));
                    let (mut x, mut y) = (vec![0.0; dim], vec![0.0; dim]);
                    widen(dtype, &a, &mut x);
                    widen(dtype, &b, &mut y);
                    let both = || x.iter().zip(&y).map(|(x, y)| (f64::from(*x), f64::from(*y)));
                    let product: f64 = both().map(|(x, y)| x * y).sum();
                    let lengths: f64 = [&x, &y]
                        .map(|v| v.iter().map(|n| f64::from(*n).powi(2)).sum::<f64>().sqrt())
                        .iter()
                        .product();
                    let wanted = match metric {
                        Metric::L2 => both().map(|(x, y)| (x - y).powi(2)).sum(),
                        Metric::Cosine if dtype.integer() && lengths > 0.0 => 1.0 - product / lengths,
                        _ => 1.0 - product,
                    };
                    for (name, pair) in Distance::all(dtype, metric) {
                        let distance = Distance { dtype, metric, pair };
                        let found =
                            distance.value(distance.one((&a, distance.scale(&a)), (&b, distance.scale(&b))));
                        let slack = if dtype.integer() { 1e-6 } else { 1e-4 };
                        assert!(
                            (f64::from(found) - wanted).abs() <= slack * wanted.abs().max(1.0),
                            "{name} {dtype} {metric} {dim}: {found}, not {wanted}"
                        );
                        if dtype.integer() && metric == Metric::L2 {
                            let key = distance.one((&a, 0.0), (&b, 0.0));
                            assert_eq!(f64::from(key), wanted, "{name} {dtype} {dim}: exact");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn many_are_as_one_by_one() {
        let mut random = fastrand::Rng::with_seed(2);
        for (dtype, metric) in
            [(Dtype::U8, Metric::L2), (Dtype::I8, Metric::Cosine), (Dtype::F32, Metric::L2)]
        {
            let distance = Distance::new(dtype, metric);
            let dim = 40;
            let intake = Intake { dtype, metric, dim };
            let numbers: Vec<f32> = (0..dim * 50).map(|_| random.i32(0..100) as f32).collect();
            let matrix = Matrix::of_f32(dim, &numbers).unwrap();
            let mut rows = Rows::new(intake);
            rows.resize(50).unwrap();
            (0..50).for_each(|row| rows.set(row, &matrix, row as usize).unwrap());
            let ids: Vec<u32> = (0..77).map(|_| random.u32(0..50)).collect();
            let mut keys = vec![0; 77];
            distance.many(rows.get(7), &rows, &ids, &mut keys);
            for (id, key) in ids.iter().zip(&keys) {
                assert_eq!(*key, distance.one(rows.get(7), rows.get(*id)));
            }
        }
    }
}
