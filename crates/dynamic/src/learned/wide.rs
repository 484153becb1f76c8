//! The one product that the networks here are made of, in the widest vectors that the processor has.
//!
//! Every element of the result adds up its terms in the same order, whatever the width, and nothing is fused: the bits
//! are the same on every processor.

/// How many columns one block has.
const COLUMNS: usize = 32;

/// Adds the product of `a` (m × k) and `b` (k × n) to `c` (m × n), all row by row.
pub(super) fn multiply(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    assert!(a.len() == m * k && b.len() == k * n && c.len() == m * n, "{m} {k} {n}");
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has the instructions that the function was compiled for; it does the same otherwise.
            return unsafe { with_avx512(m, k, n, a, b, c) };
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { with_avx2(m, k, n, a, b, c) };
        }
    }
    plain(m, k, n, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    plain(m, k, n, a, b, c);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    plain(m, k, n, a, b, c);
}

#[inline(always)]
fn plain(m: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    let mut row = 0;
    while row + 4 <= m {
        rows::<4>(row, k, n, a, b, c);
        row += 4;
    }
    while row < m {
        rows::<1>(row, k, n, a, b, c);
        row += 1;
    }
}

#[inline(always)]
fn rows<const R: usize>(row: usize, k: usize, n: usize, a: &[f32], b: &[f32], c: &mut [f32]) {
    let a = &a[row * k..(row + R) * k];
    let c = &mut c[row * n..(row + R) * n];
    let mut column = 0;
    while column + COLUMNS <= n {
        let mut sums = [[0f32; COLUMNS]; R];
        for at in 0..k {
            let line = &b[at * n + column..at * n + column + COLUMNS];
            for (r, sums) in sums.iter_mut().enumerate() {
                let factor = a[r * k + at];
                for (sum, x) in sums.iter_mut().zip(line) {
                    *sum += factor * x;
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let out = &mut c[r * n + column..r * n + column + COLUMNS];
            out.iter_mut().zip(sums).for_each(|(x, sum)| *x += sum);
        }
        column += COLUMNS;
    }
    for r in 0..R {
        for j in column..n {
            let mut sum = 0f32;
            for at in 0..k {
                sum += a[r * k + at] * b[at * n + j];
            }
            c[r * n + j] += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_have_the_same_bits_in_any_width() {
        let mut random = fastrand::Rng::with_seed(3);
        for (m, k, n) in [(1, 7, 5), (4, 33, 64), (6, 128, 70), (9, 16, 31)] {
            let mut fill = |n: usize| (0..n).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
            let (a, b) = (fill(m * k), fill(k * n));
            let (mut wide, mut one) = (vec![0.5; m * n], vec![0.5; m * n]);
            multiply(m, k, n, &a, &b, &mut wide);
            for r in 0..m {
                for j in 0..n {
                    one[r * n + j] += (0..k).fold(0f32, |sum, at| sum + a[r * k + at] * b[at * n + j]);
                }
            }
            assert_eq!(wide, one);
        }
    }
}
