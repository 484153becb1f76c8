//! Gradients of some samples, more than a handful and fewer than make packing worth it: the weights are read once, as they
//! lie, and only the few rows they meet are packed.
//!
//! The weights are taken some rows and columns at a time, which stay in the second-level cache until all samples have met them, while
//! memory is asked for the rows that come next. Every element is summed over these in order, so results do not depend on the
//! number of threads.

use std::ops::Range;

use super::gemm::Extent;
use super::pool::Pool;
use super::room;
use super::shares::{Each, OneBox};
use super::simd::{Shifts, Tile, foresee, shifted, transpose, wide};
use super::small_batch::columns;

/// Rows of weights that are taken at a time, at most, and about how many columns: they stay in the second-level cache, and a few
/// vectors of all rows in the first, even where rows are a power of two apart and a cache has few places for them.
const DEEP: usize = PART.div_ceil(3);
const BAND: usize = 256;

/// Where weights may be parted (`tiercel_workload::parts`): each part may be multiplied by itself and added.
const PART: usize = tiercel_workload::parts::ROWS as usize;

/// The rows that are taken at a time, of which none belong to two parts.
fn blocks(depth: usize) -> impl Iterator<Item = Range<usize>> {
    let parts = (0..depth).step_by(PART).map(move |part| part..depth.min(part + PART));
    parts.flat_map(|part| part.clone().step_by(DEEP).map(move |first| first..part.end.min(first + DEEP)))
}

/// Whether a product can be computed this way: a row of the weights has a vector at least.
pub(super) fn applies(e: Extent) -> bool {
    e.columns >= Tile::here().lanes
}

/// Scratch numbers of one thread: samples that are packed.
pub(super) fn scratch(e: Extent) -> usize {
    room(e.rows * DEEP.min(e.depth))
}

wide! {
    /// Puts numbers into a row, or adds them to it.
    fn put(row: &mut [f32], numbers: &[f32], add: bool) {
        match add {
            true => row.iter_mut().zip(numbers).for_each(|(row, number)| *row += number),
            // Of a plain copy the compiler would make a call, which takes longer than so few numbers do.
            false => row.iter_mut().zip(numbers).for_each(|(row, number)| *row = number + 0.0),
        }
    }
}

/// The gradients of samples, rows a pitch apart, on top of what is there already where `add`: sums of the rows of weights.
pub(super) fn slopes(
    pool: &mut Pool,
    e: Extent,
    w: &[f32],
    (dy, pitch): (&[f32], usize),
    (dx, add): (&mut [f32], bool),
    scratch: &mut [f32],
) {
    let lanes = Tile::here().lanes;
    // All pieces have about as many rows.
    let high = e.rows.div_ceil(e.rows.div_ceil(Tile::here().rows));
    let shares = (Each::new(scratch, self::scratch(e)), columns(dx, e, pool.threads()));
    pool.each_of(e.rows * e.columns * e.depth, shares, |_, (packed, mut some)| {
        let distances: [u32; DEEP] = std::array::from_fn(|k| (k * e.columns) as u32);
        for unit in some.units() {
            let mut dx = some.get(unit);
            let own = dx.ranges()[3].clone();
            let band = own.len().div_ceil(own.len().div_ceil(BAND)).next_multiple_of(lanes);
            let bands = own.clone().step_by(band).map(|left| left..own.end.min(left + band));
            for (here, block) in
                bands.flat_map(|band| blocks(e.depth).map(move |block| (band.clone(), block)))
            {
                let (first, deep) = (block.start, block.len());
                for top in (0..e.rows).step_by(high) {
                    let rows = high.min(e.rows - top);
                    let packed = &mut packed[top * deep..][..rows * deep];
                    transpose(&dy[top * pitch + first..], pitch, rows, deep, rows, packed);
                }
                let next = &w[block.end * e.columns..(block.end + DEEP).min(e.depth) * e.columns];
                let soon = next.chunks_exact(e.columns).map(|row| &row[here.clone()]);
                let block = (Shifts::new(&distances[..deep]), &w[first * e.columns..]);
                meet(block, here.clone(), (packed, e.rows, high), (&mut dx, add || first > 0), soon);
            }
        }
    });
}

/// What some columns of a block of weights add to the gradients of samples, of which so many are packed together; memory is
/// asked for the rows that come soon.
fn meet<'w>(
    (shifts, w): (Shifts<'_>, &'w [f32]),
    here: Range<usize>,
    (packed, samples, high): (&[f32], usize, usize),
    (dx, add): (&mut OneBox<'_, f32>, bool),
    mut soon: impl ExactSizeIterator<Item = &'w [f32]>,
) {
    let (lanes, most) = (Tile::here().lanes, Shifts::vectors(high));
    let pieces = samples.div_ceil(high) * here.len().div_ceil(most * lanes);
    let (start, each) = (dx.ranges()[3].start, soon.len().div_ceil(pieces));
    let mut piece = [0f32; Tile::MOST];
    let mut done = here.start;
    while done < here.end {
        let wide = lanes * ((here.end - done) / lanes).clamp(1, most);
        // Where they are no whole vectors, the last one sees some of them again.
        let at = done.min(here.end.saturating_sub(wide));
        let end = here.end.min(at + wide);
        for top in (0..samples).step_by(high) {
            let (rows, packed) = (high.min(samples - top), &packed[top * shifts.count()..]);
            soon.by_ref().take(each).for_each(foresee);
            shifted(shifts, (rows, wide / lanes), packed, &w[at..], (&mut piece, wide));
            for (row, piece) in piece.chunks_exact(wide).take(rows).enumerate() {
                let dx = &mut dx.run([top + row, 0, 0])[done - start..end - start];
                put(dx, &piece[done - at..end - at], add);
            }
        }
        done = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_samples_have_what_one_computes_by_hand() {
        let mut random = fastrand::Rng::with_seed(9);
        let mut numbers = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
        for (rows, columns, depth) in
            [(1, 16, 1), (13, 17, 5), (20, 650, 300), (15, 600, 128), (64, 33, 129), (29, 1000, 40)]
        {
            let (e, pitch) = (Extent::new(rows, columns, depth), depth + 3);
            let (w, dy) = (numbers(columns * depth), numbers(rows * pitch));
            let gradients = |threads: usize, before: Option<f32>| {
                let (mut memory, mut dx) =
                    (vec![7f32; threads * scratch(e)], vec![before.unwrap_or(7.0); rows * columns]);
                let to = (&mut dx[..], before.is_some());
                slopes(&mut Pool::new(threads), e, &w, (&dy, pitch), to, &mut memory);
                dx
            };
            let (dx, more) = (gradients(1, None), gradients(2, Some(0.5)));
            assert_eq!(dx, gradients(3, None), "whatever the threads: {rows} by {columns} by {depth}");
            let mut parted = vec![0f32; rows * columns];
            for first in (0..depth).step_by(PART) {
                let e = Extent::new(rows, columns, PART.min(depth - first));
                let (mut memory, to) = (vec![7f32; scratch(e)], (&mut parted[..], first > 0));
                let (w, dy) = (&w[first * columns..], (&dy[first..], pitch));
                slopes(&mut Pool::new(1), e, &w[..e.depth * columns], dy, to, &mut memory);
            }
            assert_eq!(dx, parted, "whatever the parts: {rows} by {columns} by {depth}");
            for (at, (dx, more)) in dx.iter().zip(&more).enumerate() {
                let product = |k: usize| {
                    f64::from(dy[at / columns * pitch + k]) * f64::from(w[k * columns + at % columns])
                };
                let expected: f64 = (0..depth).map(product).sum();
                assert!((f64::from(*dx) - expected).abs() < 1e-5, "{dx} for {expected} at {at}");
                assert!((dx + 0.5 - more).abs() < 1e-5, "added to what is there: {more} at {at}");
            }
        }
    }
}
