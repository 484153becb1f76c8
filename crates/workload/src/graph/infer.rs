//! Shapes of results: one function that knows every forward kernel, and refuses operands that do not fit.

use super::op::{Conv, Op, Pool};
use super::shape::{DType, Shape};

/// The shape and the number format of one operand or result.
pub(super) type Form = (Shape, DType);

/// The forms of the results of `op`, less those that are changed in place, or a sentence that says what does not
/// fit.
pub(super) fn results(op: &Op, operands: &[Form]) -> Result<Vec<Form>, String> {
    let least = least_operands(op);
    if operands.len() < least {
        return Err(format!("needs {least} operands and has {}", operands.len()));
    }
    let (x, dtype) = operands.first().copied().unwrap_or((Shape::from([]), DType::F32));
    let second = operands.get(1).map_or(x, |o| o.0);
    let one = |shape: Shape| Ok(vec![(shape, dtype)]);
    match op {
        Op::Conv(conv) => {
            let features =
                if conv.transposed { second.dim(1).saturating_mul(conv.groups) } else { second.dim(0) };
            bias(operands, 2, features)?;
            one(convolved(conv, x, second)?)
        }
        Op::Linear => {
            if second.rank() != 2 || x.rank() < 1 || x.last() != second.dim(1) {
                return Err(format!("input {x} does not fit the weight {second}"));
            }
            bias(operands, 2, second.dim(0))?;
            one(x.with(x.rank() - 1, second.dim(0)))
        }
        Op::MatMul { transpose_a, transpose_b } => one(multiplied(x, *transpose_a, second, *transpose_b)?),
        Op::BatchNorm { .. } => batch_normed(operands),
        Op::LayerNorm { .. } => layer_normed(operands),
        Op::ResponseNorm(_) | Op::Activate(_) | Op::Scale { .. } | Op::Dropout { .. } | Op::Softmax => one(x),
        Op::Pool(pool) => one(pooled(pool, x)?),
        Op::GlobalPool => {
            image(x)?;
            one(Shape::from([x.dim(0), x.dim(1), 1, 1]))
        }
        Op::Add | Op::Mul if broadcasts(second, x) => one(x),
        Op::Add | Op::Mul => Err(format!("{second} does not broadcast to {x}")),
        Op::Concat { .. } | Op::Slice { .. } | Op::Pad { .. } | Op::Transpose { .. } => {
            one(arranged(op, operands)?)
        }
        Op::Split { axis, sizes } => {
            let sum = sizes.iter().fold(0u64, |sum, s| sum.saturating_add(*s));
            if *axis >= x.rank() || sum != x.dim(*axis) {
                return Err(format!("pieces of {sizes:?} do not make up axis {axis} of {x}"));
            }
            Ok(sizes.iter().map(|s| (x.with(*axis, *s), dtype)).collect())
        }
        Op::CrossEntropy => {
            if x.rank() < 1 || second.elements() != x.elements() / x.last().max(1) {
                return Err(format!("labels {second} do not fit the logits {x}"));
            }
            Ok(vec![(Shape::from([]), DType::F32), (x, dtype)])
        }
        Op::BinaryCrossEntropy | Op::MeanSquare => {
            if second.elements() != x.elements() {
                return Err(format!("targets {second} do not fit {x}"));
            }
            Ok(vec![(Shape::from([]), DType::F32)])
        }
        Op::Attention(attention) => attended(attention.heads, operands),
        Op::Embedding { bag } => one(looked_up(*bag, x, second)?),
        Op::LstmCell => cell(operands),
        Op::DotInteraction => {
            if x.rank() != 2 || operands.iter().any(|o| o.0 != x) {
                return Err(format!("features differ from {x} or are not of two axes"));
            }
            let n = operands.len() as u64;
            one(x.with(1, x.dim(1) + n * (n - 1) / 2))
        }
        other => Err(format!("{} is no forward kernel", other.name())),
    }
}

/// How many operands a kernel has at the least.
fn least_operands(op: &Op) -> usize {
    match op {
        Op::Fill { .. } => 0,
        Op::Conv(_) | Op::Linear | Op::MatMul { .. } | Op::Add | Op::Mul | Op::Embedding { .. } => 2,
        Op::CrossEntropy | Op::BinaryCrossEntropy | Op::MeanSquare => 2,
        Op::LayerNorm { .. } | Op::Attention(_) => 3,
        Op::BatchNorm { .. } => 5,
        Op::LstmCell => 6,
        _ => 1,
    }
}

/// A batch norm: what it makes, and the means and spreads of channels.
fn batch_normed(operands: &[Form]) -> Result<Vec<Form>, String> {
    let (x, dtype) = operands[0];
    if x.rank() < 2 || operands[1..5].iter().any(|o| o.0.elements() != x.dim(1)) {
        return Err(format!("input {x} does not have {} channels", operands[1].0.elements()));
    }
    let channels = Shape::from([x.dim(1)]);
    Ok(vec![(x, dtype), (channels, DType::F32), (channels, DType::F32)])
}

/// A layer norm: what it makes, and the means and spreads of rows.
fn layer_normed(operands: &[Form]) -> Result<Vec<Form>, String> {
    let (x, dtype) = operands[0];
    if x.rank() < 1 || operands[1..3].iter().any(|o| o.0.elements() != x.last()) {
        return Err(format!("input {x} does not end in {} features", operands[1].0.elements()));
    }
    let rows = Shape::from([x.elements() / x.last().max(1)]);
    Ok(vec![(x, dtype), (rows, DType::F32), (rows, DType::F32)])
}

/// What a kernel makes that only moves numbers.
fn arranged(op: &Op, operands: &[Form]) -> Result<Shape, String> {
    let x = operands[0].0;
    match op {
        Op::Concat { axis } => {
            let mut extent = 0u64;
            for (shape, _) in operands {
                if *axis >= shape.rank() || shape.with(*axis, 1) != x.with(*axis, 1) {
                    return Err(format!("{shape} does not line up with {x} on axis {axis}"));
                }
                extent = extent.saturating_add(shape.dim(*axis));
            }
            Ok(x.with(*axis, extent))
        }
        Op::Slice { axis, start, length } => {
            if *axis >= x.rank() || *length == 0 || start.saturating_add(*length) > x.dim(*axis) {
                return Err(format!("no range {start}..+{length} on axis {axis} of {x}"));
            }
            Ok(x.with(*axis, *length))
        }
        Op::Pad { axis, .. } if *axis >= x.rank() => Err(format!("{x} has no axis {axis}")),
        Op::Pad { axis, before, after } => {
            Ok(x.with(*axis, x.dim(*axis).saturating_add(*before).saturating_add(*after)))
        }
        Op::Transpose { order } => {
            let mut seen: Vec<usize> = order.clone();
            seen.sort_unstable();
            if !seen.iter().copied().eq(0..x.rank()) {
                return Err(format!("{order:?} is not an order of the axes of {x}"));
            }
            let dims: Vec<u64> = order.iter().map(|axis| x.dim(*axis)).collect();
            Ok(Shape::new(&dims).unwrap_or(x))
        }
        other => Err(format!("{} does more than move numbers", other.name())),
    }
}

/// Attention: what it makes, and the scores of every head.
fn attended(heads: u64, operands: &[Form]) -> Result<Vec<Form>, String> {
    let (x, dtype) = operands[0];
    if x.rank() != 3 || operands[1..3].iter().any(|o| o.0 != x) {
        return Err(format!("query {x}, key {} and value differ or are not of three axes", operands[1].0));
    }
    if heads == 0 || x.dim(2) % heads != 0 {
        return Err(format!("{heads} heads do not divide the width {}", x.dim(2)));
    }
    Ok(vec![(x, dtype), (Shape::from([x.dim(0), heads, x.dim(1), x.dim(1)]), dtype)])
}

/// Rows of a table by their ids; of a bag, the sum of those that the last axis names.
fn looked_up(bag: bool, table: Shape, ids: Shape) -> Result<Shape, String> {
    let all = ids.dims();
    let kept = if bag { &all[..all.len().saturating_sub(1)] } else { all };
    let dims: Vec<u64> = kept.iter().copied().chain([table.last()]).collect();
    let shape = Shape::new(&dims).filter(|_| table.rank() == 2);
    shape.ok_or_else(|| format!("ids {ids} cannot index a table {table}"))
}

/// A cell of an LSTM: its output, its state, and its gates.
fn cell(operands: &[Form]) -> Result<Vec<Form>, String> {
    let ((x, dtype), h) = (operands[0], operands[1].0);
    let (wx, wh, n) = (operands[3].0, operands[4].0, h.last());
    let fits = x.rank() == 2
        && h == Shape::from([x.dim(0), n])
        && operands[2].0 == h
        && wx == Shape::from([4 * n, x.dim(1)])
        && wh == Shape::from([4 * n, n])
        && operands[5].0 == Shape::from([4 * n]);
    if !fits {
        return Err(format!("input {x}, state {h} and weights {wx}, {wh} do not fit"));
    }
    Ok(vec![(h, dtype), (h, dtype), (Shape::from([x.dim(0), 4 * n]), dtype)])
}

/// Whether `small` can be stretched to `large` by the usual rules: aligned at the end, extents equal or 1.
fn broadcasts(small: Shape, large: Shape) -> bool {
    small.rank() <= large.rank()
        && small.dims().iter().rev().zip(large.dims().iter().rev()).all(|(s, l)| s == l || *s == 1)
}

fn bias(operands: &[Form], at: usize, features: u64) -> Result<(), String> {
    match operands.get(at) {
        Some((shape, _)) if shape.elements() != features => {
            Err(format!("bias {shape} does not have {features} elements"))
        }
        _ => Ok(()),
    }
}

fn image(x: Shape) -> Result<(), String> {
    if x.rank() == 4 {
        Ok(())
    } else {
        Err(format!("input {x} is not an image (batch, channels, height, width)"))
    }
}

/// How many windows fit, or `None` where not even one does.
fn windows(extent: u64, padding: u64, window: u64, stride: u64, ceil: bool) -> Option<u64> {
    let room = extent.checked_add(padding)?.checked_sub(window)?;
    if window == 0 || stride == 0 {
        return None;
    }
    Some(if ceil { room.div_ceil(stride) } else { room / stride } + 1)
}

fn convolved(conv: &Conv, x: Shape, w: Shape) -> Result<Shape, String> {
    image(x)?;
    let groups = conv.groups;
    let (wanted, out) = if conv.transposed {
        (w.dim(0), w.dim(1).saturating_mul(groups))
    } else {
        (w.dim(1).saturating_mul(groups), w.dim(0))
    };
    if w.rank() != 4 || groups == 0 || wanted != x.dim(1) || out % groups != 0 {
        return Err(format!("input {x} does not fit the weight {w} in {groups} groups"));
    }
    let mut y = x.with(1, out);
    for axis in 0..2 {
        let padding = conv.padding[axis].saturating_add(conv.padding[axis + 2]);
        let taps = w.dim(axis + 2);
        let window = taps
            .checked_sub(1)
            .and_then(|t| t.checked_mul(conv.dilation[axis]))
            .and_then(|t| t.checked_add(1));
        let extent = match (window, conv.transposed) {
            (Some(window), false) => windows(x.dim(axis + 2), padding, window, conv.stride[axis], false),
            (Some(window), true) => (x.dim(axis + 2).saturating_sub(1))
                .checked_mul(conv.stride[axis])
                .and_then(|e| e.checked_add(window))
                .and_then(|e| e.checked_add(conv.output_padding[axis]))
                .and_then(|e| e.checked_sub(padding))
                .filter(|e| *e > 0),
            (None, _) => None,
        };
        let Some(extent) = extent else {
            return Err(format!("a window of {}x{} does not fit the input {x}", w.dim(2), w.dim(3)));
        };
        y = y.with(axis + 2, extent);
    }
    Ok(y)
}

fn pooled(pool: &Pool, x: Shape) -> Result<Shape, String> {
    image(x)?;
    let mut y = x;
    for axis in 0..2 {
        let padding = pool.padding[axis].saturating_add(pool.padding[axis + 2]);
        let (extent, stride) = (x.dim(axis + 2), pool.stride[axis]);
        let Some(mut n) = windows(extent, padding, pool.window[axis], stride, pool.ceil) else {
            return Err(format!(
                "a window of {}x{} does not fit the input {x}",
                pool.window[0], pool.window[1]
            ));
        };
        // The last partial window must start inside the image or its leading padding.
        if pool.ceil && (n - 1) * stride >= extent.saturating_add(pool.padding[axis]) {
            n -= 1;
        }
        y = y.with(axis + 2, n);
    }
    Ok(y)
}

fn multiplied(a: Shape, transpose_a: bool, b: Shape, transpose_b: bool) -> Result<Shape, String> {
    let rank = a.rank();
    let misfit = || format!("{a} and {b} cannot be multiplied");
    if rank < 2 || b.rank() != rank || a.dims()[..rank - 2] != b.dims()[..rank - 2] {
        return Err(misfit());
    }
    let ends = |s: Shape, transposed: bool| {
        let (rows, columns) = (s.dim(rank - 2), s.dim(rank - 1));
        if transposed { (columns, rows) } else { (rows, columns) }
    };
    let ((m, k), (k2, n)) = (ends(a, transpose_a), ends(b, transpose_b));
    if k != k2 { Err(misfit()) } else { Ok(a.with(rank - 2, m).with(rank - 1, n)) }
}
