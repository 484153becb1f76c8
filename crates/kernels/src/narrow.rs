//! bf16: numbers are stored in 16 bits and computed with in 32.
//!
//! A kernel with bf16 operands gets f32 copies of them in its workspace, and its results are rounded (to the nearest,
//! ties to even) when it has ended.

use super::pool::Pool;
use super::simd::wide;

/// The number that 16 bits stand for.
#[inline(always)]
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest number of 16 bits.
#[inline(always)]
pub fn round(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1)) >> 16;
    // A NaN must not become an infinity.
    (if x.is_nan() { (bits >> 16) | 0x40 } else { rounded }) as u16
}

wide! {
    fn widen_part(from: &[u16], to: &mut [f32]) {
        from.iter().zip(to).for_each(|(from, to)| *to = widen(*from));
    }
}

wide! {
    fn round_part(from: &[f32], to: &mut [u16]) {
        from.iter().zip(to).for_each(|(from, to)| *to = round(*from));
    }
}

/// Copies bf16 to f32.
pub fn widen_all(pool: &mut Pool, from: &[u16], to: &mut [f32]) {
    pool.rows(to, 1, |start, to| widen_part(&from[start..start + to.len()], to));
}

/// Copies f32 to bf16.
pub fn round_all(pool: &mut Pool, from: &[f32], to: &mut [u16]) {
    pool.rows(to, 1, |start, to| round_part(&from[start..start + to.len()], to));
}
