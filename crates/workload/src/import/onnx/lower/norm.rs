//! Norms and softmax.

use super::{Lowering, Outcome};
use crate::graph::{Init, Op, ResponseNorm, Shape, ValueId};
use crate::import::onnx::model::Node;
use crate::import::onnx::shapes::{axis_of, flattened};
use crate::trace::Role;

/// A batch norm with the batch's own statistics, as training does it; the file's mean and variance are the running ones.
pub(super) fn batch_norm<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    if node.int("spatial", 1)? != 1 {
        return Err("`spatial` of 0 is not supported".to_string());
    }
    if (1..node.outputs.len()).any(|at| low.wanted(node, at)) {
        return Err("the statistics as results are not supported".to_string());
    }
    let x = low.operand(node, 0)?;
    let channels = Shape::from([low.builder.shape(x).dim(1)]);
    let gamma = low.parameter(node.input(1), channels, Init::Constant(1.0))?;
    let beta = low.parameter(node.input(2), channels, Init::Constant(0.0))?;
    let mean = running(low, node.input(3), channels, 0.0)?;
    let variance = running(low, node.input(4), channels, 1.0)?;
    if mean == variance {
        return Err("mean and variance are one tensor".to_string());
    }
    let epsilon = node.float("epsilon", 1e-5)?;
    // ONNX states the share of the old statistics, the kernel that of the new ones.
    let momentum = 1.0 - node.float("momentum", 0.9)?;
    let y = low.builder.apply(Op::BatchNorm { epsilon, momentum }, &[x, gamma, beta, mean, variance]);
    low.give(node, y);
    Ok(())
}

/// Running statistics: state that outlives the iteration, and no parameter.
fn running<'a>(low: &mut Lowering<'a>, name: &'a str, channels: Shape, init: f32) -> Outcome<ValueId> {
    let own = low.shape(name)?;
    if own.elements() != channels.elements() {
        return Err(format!("running statistics of {own} for {channels} channels"));
    }
    if let Some(known) = low.weights.get(&(name, u8::MAX)) {
        return Ok(*known);
    }
    let dtype = crate::graph::DType::F32;
    let path = super::short(name).to_string();
    let value = low.builder.declare(path, channels, dtype, Role::State, true, Init::Constant(init));
    low.weights.insert((name, u8::MAX), value);
    Ok(value)
}

pub(super) fn layer_norm<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    if low.wanted(node, 1) || low.wanted(node, 2) {
        return Err("the statistics as results are not supported".to_string());
    }
    let shape = low.shape(node.input(0))?;
    let axis = axis_of(node.int("axis", -1)?, shape.rank())?;
    let names = [node.input(0), node.input(1), node.input(2)];
    let y = normalised(low, names, shape.rank() - axis, node.float("epsilon", 1e-5)?)?;
    low.give(node, y);
    Ok(())
}

/// A layer norm over the last `axes` axes; x, gamma and beta, which may be absent.
pub(super) fn normalised<'a>(
    low: &mut Lowering<'a>,
    [x, gamma, beta]: [&'a str; 3],
    axes: usize,
    epsilon: f32,
) -> Outcome<ValueId> {
    let x = low.data(x)?;
    let shape = low.builder.shape(x);
    let flat = flattened(shape, shape.rank().saturating_sub(axes) as i64)?;
    let features = Shape::from([flat.dim(1)]);
    let gamma = low.parameter(gamma, features, Init::Constant(1.0))?;
    let beta = match beta {
        "" => {
            let dtype = low.builder.dtype();
            low.builder.outside("zeros", features, dtype, Init::Constant(0.0))
        }
        name => low.parameter(name, features, Init::Constant(0.0))?,
    };
    if axes == 1 {
        return Ok(low.builder.apply(Op::LayerNorm { epsilon }, &[x, gamma, beta]));
    }
    let rows = low.view(x, flat);
    let y = low.builder.apply(Op::LayerNorm { epsilon }, &[rows, gamma, beta]);
    Ok(low.view(y, shape))
}

pub(super) fn response_norm<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let size = node.int("size", 0)?;
    let Some(size) = u64::try_from(size).ok().filter(|s| (1..=1 << 20).contains(s)) else {
        return Err(format!("a window of {size} channels"));
    };
    let norm = ResponseNorm {
        size,
        alpha: node.float("alpha", 1e-4)?,
        beta: node.float("beta", 0.75)?,
        bias: node.float("bias", 1.0)?,
    };
    let x = low.operand(node, 0)?;
    let y = low.builder.apply(Op::ResponseNorm(norm), &[x]);
    low.give(node, y);
    Ok(())
}

/// The shape whose last axis is the one that softmax sums over, or the axis to move there.
pub(in crate::import::onnx) enum Softened {
    /// A view makes it the last.
    View(Shape),
    /// It must be moved.
    Move(usize),
}

/// How a softmax lines up with a kernel that works on the last axis: before version 13 it takes all axes from the stated
/// one on as one.
pub(in crate::import::onnx) fn softened(opset: i64, node: &Node<'_>, x: Shape) -> Outcome<Softened> {
    let old = opset < 13;
    let stated = node.int("axis", if old { 1 } else { -1 })?;
    if old {
        return Ok(Softened::View(flattened(x, stated)?));
    }
    let axis = axis_of(stated, x.rank())?;
    if x.dims()[axis + 1..].iter().all(|d| *d == 1) {
        return Ok(Softened::View(Shape::new(&x.dims()[..=axis]).unwrap_or(x)));
    }
    Ok(Softened::Move(axis))
}

pub(super) fn softmax<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let y = match softened(low.opset, node, shape)? {
        Softened::View(view) => {
            let x = low.view(x, view);
            let y = low.builder.apply(Op::Softmax, &[x]);
            low.view(y, shape)
        }
        Softened::Move(axis) => {
            let mut order: Vec<usize> = (0..shape.rank()).collect();
            order.swap(axis, shape.rank() - 1);
            let x = low.builder.apply(Op::Transpose { order: order.clone() }, &[x]);
            let y = low.builder.apply(Op::Softmax, &[x]);
            low.builder.apply(Op::Transpose { order }, &[y])
        }
    };
    low.give(node, y);
    Ok(())
}
