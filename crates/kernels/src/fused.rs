//! All that changes a linear layer's weights, or a part of them, in one go: gradients by the layer's operand, those of the weights, and
//! the update.
//!
//! The gradients of the samples come first, from the weights as they were. Then the weights are cut into pieces, of which a
//! thread computes the gradient in scratch memory and uses it while it is in a cache. So no gradient of the weights is ever
//! written to memory and read again (LOMO, Lv et al. 2023, "Full parameter fine-tuning for large language models with limited
//! resources"). Every number is summed over the samples in the order in which `linear.rs` sums it, whatever the pieces, and
//! weights change element by element, so bits are the same.

use crate::KernelError;
use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::{Op, Optimizer};
use tiercel_workload::parts::fused::PIECE;

use super::args::{Args, Call};
use super::gemm::{Bias, Extent, Matrix, Pack, Put, multiply_part};
use super::linear::{self, SOME, column_sums};
use super::room;
use super::shallow;
use super::shares::{Boxes, Each, Lattice, OneBox, Sheet};
use super::simd::{Finish, Lying, Panels, STRIP, Strip, Tile, strip};
use super::update::{Rule, Weights};

/// The product that the gradients of the weights are.
fn extent(call: &Call) -> Extent {
    Extent::new(call.dim(2, 0), call.dim(2, 1), call.len(0) / call.last(0)).deep()
}

/// The product that the gradients of the samples are.
fn samples(e: Extent) -> Extent {
    Extent::new(e.depth, e.columns, e.rows)
}

/// Rows and columns of weights whose gradient is computed at a time.
#[derive(Clone, Copy)]
struct Piece {
    rows: usize,
    columns: usize,
}

impl Piece {
    fn new(e: Extent, threads: usize) -> Piece {
        let (wide, most) = (Tile::here().columns(), PIECE.0 as usize / 4 / threads);
        if e.depth <= SOME {
            // A few rows of it are there at a time, so it may have as many as there are.
            let columns = e.columns.div_ceil(threads).next_multiple_of(wide);
            let columns = columns.min(shallow::band(e)).min(most / STRIP / wide * wide).max(wide);
            let across = e.columns.div_ceil(columns);
            return Piece { rows: e.rows.div_ceil(threads.div_ceil(across)), columns };
        }
        // Both sides are packed for every piece, so neither should be much the shorter one.
        let high = most.isqrt().min(most / wide).max(1);
        let rows = e.rows.div_ceil(e.rows.div_ceil(high));
        Piece { rows, columns: (most / rows / wide * wide).clamp(wide, e.columns.next_multiple_of(wide)) }
    }

    /// The product that its gradient is.
    fn extent(self, e: Extent) -> Extent {
        Extent::new(self.rows, self.columns, e.depth).deep()
    }

    /// Numbers of the gradient that are there at a time.
    fn held(self, e: Extent) -> usize {
        room(if e.depth <= SOME { STRIP } else { self.rows } * self.columns)
    }

    /// Scratch numbers of one thread.
    fn scratch(self, e: Extent) -> usize {
        let packed = if e.depth <= SOME { e.depth * self.columns } else { self.extent(e).scratch() };
        self.held(e) + room(packed)
    }
}

/// Scratch numbers that a call needs: pieces of gradients, and room to pack in.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    let e = extent(call);
    let data = match call.op {
        Op::LinearBackwardUpdate { data: true, .. } => linear::data_scratch(samples(e), call.inputs[1].pitch),
        _ => 0,
    };
    let each = Piece::new(e, threads).scratch(e).max(data);
    // The gradient of a bias comes last.
    (threads * each).max(room(e.rows))
}

/// Changes a weight, or a part of it, and its bias where asked to; returns whether they are finite, and the bias's gradient.
pub(super) fn change(
    mut args: Args<'_, '_>,
    optimizer: Optimizer,
    data: bool,
    bias: bool,
) -> Result<bool, KernelError> {
    let count = 1 + optimizer.states().len();
    let changed = if bias { 2 * count } else { count };
    let (e, pitch, add) =
        (extent(args.call), args.call.inputs[1].pitch, args.call.inputs.len() > 2 + changed);
    let (x, dy) = (args.read(0)?, args.read(1)?);
    let Weights { w, first, second } = weights(&mut args, 0, count)?;
    let b = if bias { Some(weights(&mut args, count, count)?) } else { None };
    let dx = if data { Some(args.write(changed)?) } else { None };
    let db = args.write_optional(changed + usize::from(data))?;
    let scratch = args.scratch();
    if let Some(dx) = dx {
        linear::data(args.pool, samples(e), w, (dy, pitch), (dx, add), scratch);
    }
    let finite = AtomicBool::new(true);
    let (rule, piece) = (Rule::new(optimizer, args.moment), Piece::new(e, args.pool.threads()));
    let boxes = |numbers| Boxes::new(numbers, [e.rows, 1, 1, e.columns], [piece.rows, 1, 1, piece.columns]);
    let (first, second) = ((count > 1).then(|| boxes(first)), (count > 2).then(|| boxes(second)));
    let all = (Each::new(scratch, piece.scratch(e)), boxes(w), first, second);
    args.pool.each_of(e.rows * e.columns * e.depth, all, |_, (scratch, mut w, mut first, mut second)| {
        for unit in w.units() {
            let some = Changed {
                w: w.get(unit),
                first: first.as_mut().map(|first| first.get(unit)),
                second: second.as_mut().map(|second| second.get(unit)),
                rule,
            };
            if !some.change(e, piece, (x, dy, pitch), scratch) {
                finite.store(false, Ordering::Relaxed);
            }
        }
    });
    let mut finite = finite.into_inner();
    if let Some(db) = db {
        column_sums(args.pool, dy, pitch, db, false);
        finite &= db.iter().all(|number| number.is_finite());
    }
    if let Some(b) = b {
        let db = &mut scratch[..e.rows];
        column_sums(args.pool, dy, pitch, db, false);
        finite &= rule.apply(b, db);
    }
    Ok(finite)
}

/// A weight and its states, so many in all, from result `at` on.
fn weights<'a>(args: &mut Args<'a, '_>, at: usize, count: usize) -> Result<Weights<'a>, KernelError> {
    let w = args.write(at)?;
    let first = if count > 1 { args.write(at + 1)? } else { &mut [] };
    let second = if count > 2 { args.write(at + 2)? } else { &mut [] };
    Ok(Weights { w, first, second })
}

/// The weights of a piece, with what the optimizer remembers of them.
struct Changed<'s> {
    w: OneBox<'s, f32>,
    first: Option<OneBox<'s, f32>>,
    second: Option<OneBox<'s, f32>>,
    rule: Rule,
}

impl Changed<'_> {
    /// Computes their gradients and changes them; returns whether they are finite.
    fn change(
        mut self,
        e: Extent,
        piece: Piece,
        (x, dy, pitch): (&[f32], &[f32], usize),
        scratch: &mut [f32],
    ) -> bool {
        let [rows, _, _, columns] = self.w.ranges().clone();
        let (gradient, packed) = scratch.split_at_mut(piece.held(e));
        let (dy, b) = (&dy[rows.start..], Matrix::by_depth(&x[columns.start..], e.columns));
        if e.depth > SOME {
            let (own, a) =
                (Extent::new(rows.len(), columns.len(), e.depth).deep(), Matrix::by_depth(dy, pitch));
            let to = &mut gradient[..rows.len() * columns.len()];
            let mut sheet = Sheet::new(to, Lattice::matrix(rows.len(), columns.len(), columns.len()));
            multiply_part(own, &a, &b, (&mut sheet.all(), &Put::new(Bias::None)), packed);
            return self.step(rows.start, gradient, rows.len(), columns.len());
        }
        let (wide, some, mut finite) = (Tile::here().columns(), STRIP.min(Tile::here().rows), true);
        let panels = packed.chunks_exact_mut(e.depth * wide);
        for (left, panel) in (0..columns.len()).step_by(wide).zip(panels) {
            b.pack(0..e.depth, left..columns.len().min(left + wide), wide, panel);
        }
        let panels = Panels { numbers: packed, deep: e.depth };
        for top in (0..rows.len()).step_by(some) {
            let (high, a) = (some.min(rows.len() - top), Lying { numbers: &dy[top..], row: 1, along: pitch });
            let mut to = Strip::new(gradient, [high, columns.len()], columns.len());
            strip(e.depth, a, panels, Finish { factor: 1.0, add: false }, &mut to);
            finite &= self.step(rows.start + top, gradient, high, columns.len());
        }
        finite
    }

    /// Changes some rows by their gradients.
    fn step(&mut self, top: usize, gradient: &[f32], rows: usize, columns: usize) -> bool {
        let mut finite = true;
        for (row, gradient) in gradient.chunks_exact(columns).take(rows).enumerate() {
            let at = [top + row, 0, 0];
            let first = self.first.as_mut().map_or(&mut [][..], |first| first.run(at));
            let second = self.second.as_mut().map_or(&mut [][..], |second| second.run(at));
            finite &= self.rule.apply(Weights { w: self.w.run(at), first, second }, gradient);
        }
        finite
    }
}
