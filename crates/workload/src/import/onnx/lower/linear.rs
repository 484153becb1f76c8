//! Products: linear layers, and products of data with data.

use super::{Item, Lowering, Outcome};
use crate::graph::{Init, Op, Shape, ValueId};
use crate::import::onnx::model::Node;

/// Random weights whose products keep the variance of `fan_in` summands.
pub(super) fn spread(fan_in: u64) -> Init {
    Init::Normal((2.0 / fan_in.max(1) as f64).sqrt() as f32)
}

/// `x` times a weight, plus a bias. The weight is output by input where `turned`, as a training kernel wants it, and input by
/// output otherwise; then it is stored the other way round if no other node reads it.
pub(super) fn linear<'a>(
    low: &mut Lowering<'a>,
    x: &'a str,
    weight: &'a str,
    bias: Option<&'a str>,
    turned: bool,
) -> Outcome<ValueId> {
    let x = low.data(x)?;
    let (name, file, turned) = match low.item(weight)? {
        Item::Weight { name, shape, transposed } => (name, shape, turned != transposed),
        Item::Constant(constant) => (weight, constant.shape, turned),
        Item::Data(value) => return product(low, x, value, turned, bias),
    };
    if file.rank() != 2 {
        let value = low.data(weight)?;
        return product(low, x, value, turned, bias);
    }
    let [inputs, outputs] = if turned { [file.dim(1), file.dim(0)] } else { [file.dim(0), file.dim(1)] };
    let alone = low.is_alone(weight) && low.is_alone(name);
    if !turned && !alone {
        let value = low.weight(name, 0, file, spread(inputs));
        return product(low, x, value, false, bias);
    }
    let value = low.weight(name, 0, Shape::from([outputs, inputs]), spread(inputs));
    match bias {
        None => Ok(low.builder.apply(Op::Linear, &[x, value])),
        // A bias of one number for all outputs, or one for every sample, is added by itself.
        Some(bias) if low.shape(bias)?.elements() != outputs || low.shape(bias)?.last() != outputs => {
            let y = low.builder.apply(Op::Linear, &[x, value]);
            let bias = low.data(bias)?;
            super::pointwise::sum(low, y, bias)
        }
        Some(bias) => {
            let bias = low.parameter(bias, Shape::from([outputs]), Init::Constant(0.0))?;
            Ok(low.builder.apply(Op::Linear, &[x, value, bias]))
        }
    }
}

/// A product of data, plus a bias.
fn product<'a>(
    low: &mut Lowering<'a>,
    x: ValueId,
    w: ValueId,
    turned: bool,
    bias: Option<&'a str>,
) -> Outcome<ValueId> {
    let y = multiply(low, x, w, turned)?;
    match bias {
        None => Ok(y),
        Some(bias) => {
            let bias = low.data(bias)?;
            super::pointwise::sum(low, y, bias)
        }
    }
}

/// `a · b` by the rules of numpy: leading axes broadcast, and a list is a row on the left and a column on the right.
fn multiply(low: &mut Lowering<'_>, a: ValueId, b: ValueId, transpose_b: bool) -> Outcome<ValueId> {
    let (mut left, mut right) = (low.builder.shape(a), low.builder.shape(b));
    if left.rank() == 0 || right.rank() == 0 {
        return Err("a product with a single number".to_string());
    }
    let (row, column) = (left.rank() == 1, right.rank() == 1);
    if row {
        left = Shape::from([1, left.dim(0)]);
    }
    if column {
        right = Shape::from([right.dim(0), 1]);
    }
    let op = Op::MatMul { transpose_a: false, transpose_b };
    let (m, n) = (left.dim(left.rank() - 2), right.dim(right.rank() - if transpose_b { 2 } else { 1 }));
    let y = if right.rank() == 2 && left.rank() > 2 {
        // One matrix on the right serves all rows on the left.
        let rows = left.elements() / left.last().max(1);
        let flat = low.view(a, [rows, left.last()]);
        let right = low.view(b, right);
        let y = low.builder.apply(op, &[flat, right]);
        low.view(y, left.with(left.rank() - 1, n))
    } else {
        let lead = |s: Shape| Shape::new(&s.dims()[..s.rank() - 2]).unwrap_or(s);
        let full = crate::import::onnx::shapes::broadcast(lead(left), lead(right))?;
        let with = |s: Shape| {
            let ends = &s.dims()[s.rank() - 2..];
            Shape::new(&[full.dims(), ends].concat()).ok_or("too many axes")
        };
        let (wide_a, wide_b) = (with(left)?, with(right)?);
        let a = low.view(a, left);
        let b = low.view(b, right);
        let a = super::data::stretch(low, a, wide_a)?;
        let b = super::data::stretch(low, b, wide_b)?;
        low.builder.apply(op, &[a, b])
    };
    let full = low.builder.shape(y);
    match (row, column) {
        (false, false) => Ok(y),
        _ if full.rank() < 2 => Err("a product without axes".to_string()),
        _ => {
            let mut dims = full.dims()[..full.rank() - 2].to_vec();
            dims.extend((!row).then_some(m));
            dims.extend((!column).then_some(n));
            Ok(low.view(y, Shape::new(&dims).ok_or("too many axes")?))
        }
    }
}

/// Whether a name stands for something that a layer can own.
fn is_weight(low: &mut Lowering<'_>, item: &Item<'_>) -> bool {
    match item {
        Item::Weight { .. } => true,
        Item::Constant(constant) => !constant.is_integer() && constant.shape.rank() == 2,
        // A weight that got its place already, under another name.
        Item::Data(value) => {
            let values = &low.builder.graph().values;
            values.get(value.index()).is_some_and(|v| v.role == crate::trace::Role::Weight)
        }
    }
}

pub(super) fn matmul<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let item = low.item(node.input(1))?;
    let y = if is_weight(low, &item) {
        low.start(node);
        linear(low, node.input(0), node.input(1), None, false)?
    } else {
        let (a, b) = (low.operand(node, 0)?, low.operand(node, 1)?);
        multiply(low, a, b, false)?
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn gemm<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    if node.int("transA", 0)? != 0 {
        return Err("`Gemm` with `transA` is not supported".to_string());
    }
    if node.float("alpha", 1.0)? != 1.0 || node.float("beta", 1.0)? != 1.0 {
        return Err("`Gemm` with `alpha` or `beta` other than 1 is not supported".to_string());
    }
    let turned = node.int("transB", 0)? != 0;
    if low.shape(node.input(0))?.rank() != 2 {
        return Err(format!("its first operand is {}, no matrix", low.shape(node.input(0))?));
    }
    low.start(node);
    let bias = Some(node.input(2)).filter(|name| !name.is_empty());
    let y = linear(low, node.input(0), node.input(1), bias, turned)?;
    low.give(node, y);
    Ok(())
}
