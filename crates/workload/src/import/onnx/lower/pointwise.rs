//! Element by element: sums, products, functions.

use super::{Item, Lowering, Outcome};
use crate::graph::{Activation, Init, Op, Shape, ValueId};
use crate::import::onnx::model::Node;
use crate::import::onnx::shapes::broadcast;

/// `op` of two values, each stretched where the other is larger. The kernel stretches its second operand by itself.
fn combine(low: &mut Lowering<'_>, op: Op, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    let (left, right) = (low.builder.shape(a), low.builder.shape(b));
    let full = broadcast(left, right)?;
    if left == full {
        return Ok(low.builder.apply(op, &[a, b]));
    }
    if right == full {
        return Ok(low.builder.apply(op, &[b, a]));
    }
    let a = super::data::stretch(low, a, full)?;
    Ok(low.builder.apply(op, &[a, b]))
}

/// a + b.
pub(super) fn sum(low: &mut Lowering<'_>, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    combine(low, Op::Add, a, b)
}

/// factor · x.
fn scale(low: &mut Lowering<'_>, x: ValueId, factor: f32) -> ValueId {
    if factor == 1.0 { x } else { low.builder.apply(Op::Scale { factor }, &[x]) }
}

/// x + number.
fn shift(low: &mut Lowering<'_>, x: ValueId, number: f32) -> ValueId {
    if number == 0.0 {
        return x;
    }
    let dtype = low.builder.dtype();
    let constant = low.builder.outside("constant", Shape::from([1]), dtype, Init::Constant(number));
    low.builder.apply(Op::Add, &[x, constant])
}

fn activate(low: &mut Lowering<'_>, x: ValueId, function: Activation) -> ValueId {
    low.builder.apply(Op::Activate(function), &[x])
}

/// x to a constant power.
fn power(low: &mut Lowering<'_>, x: ValueId, exponent: f32) -> ValueId {
    match exponent {
        1.0 => x,
        2.0 => low.builder.apply(Op::Mul, &[x, x]),
        _ => activate(low, x, Activation::Power { exponent }),
    }
}

/// The number that an operand is, if stretching it does not change the result's shape.
fn factor<'a>(low: &mut Lowering<'a>, node: &Node<'a>, at: usize, other: usize) -> Outcome<Option<f32>> {
    let Some(number) = low.number(node.input(at))? else { return Ok(None) };
    let fits = low.shape(node.input(at))?.rank() <= low.shape(node.input(other))?.rank();
    Ok(fits.then_some(number))
}

pub(super) fn add<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mut y = low.operand(node, 0)?;
    for at in 1..node.inputs.len() {
        let next = low.operand(node, at)?;
        y = sum(low, y, next)?;
    }
    low.give(node, y);
    Ok(())
}

pub(super) fn sub<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let y = if let Some(number) = factor(low, node, 1, 0)? {
        let a = low.operand(node, 0)?;
        shift(low, a, -number)
    } else {
        let b = low.operand(node, 1)?;
        let minus = scale(low, b, -1.0);
        match factor(low, node, 0, 1)? {
            Some(number) => shift(low, minus, number),
            None => {
                let a = low.operand(node, 0)?;
                sum(low, a, minus)?
            }
        }
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn mul<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let y = if let Some(number) = factor(low, node, 1, 0)? {
        let a = low.operand(node, 0)?;
        scale(low, a, number)
    } else if let Some(number) = factor(low, node, 0, 1)? {
        let b = low.operand(node, 1)?;
        scale(low, b, number)
    } else {
        let (a, b) = (low.operand(node, 0)?, low.operand(node, 1)?);
        combine(low, Op::Mul, a, b)?
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn div<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let y = if let Some(number) = factor(low, node, 1, 0)? {
        let a = low.operand(node, 0)?;
        scale(low, a, 1.0 / number)
    } else {
        let b = low.operand(node, 1)?;
        let inverse = power(low, b, -1.0);
        match factor(low, node, 0, 1)? {
            Some(number) => scale(low, inverse, number),
            None => {
                let a = low.operand(node, 0)?;
                combine(low, Op::Mul, a, inverse)?
            }
        }
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn pow<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let Some(exponent) = low.number(node.input(1))? else {
        return Err("an exponent that is not a single constant is not supported".to_string());
    };
    let x = low.operand(node, 0)?;
    let y = power(low, x, exponent);
    low.give(node, y);
    Ok(())
}

/// Operators of one operand.
pub(super) fn function<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let x = low.operand(node, 0)?;
    let function = match node.op {
        "Relu" => Activation::Relu,
        "Sigmoid" => Activation::Sigmoid,
        "Tanh" => Activation::Tanh,
        "Erf" => Activation::Erf,
        "Exp" => Activation::Exp,
        "Gelu" => match node.text("approximate")? {
            "tanh" => Activation::GeluTanh,
            "" | "none" => Activation::Gelu,
            other => return Err(format!("`approximate` of `{other}` is not supported")),
        },
        "LeakyRelu" => match node.float("alpha", 0.01)? {
            slope if slope > 0.0 => Activation::LeakyRelu { slope },
            0.0 => Activation::Relu,
            slope => return Err(format!("a slope of {slope} is not supported")),
        },
        "Sqrt" => Activation::Power { exponent: 0.5 },
        "Reciprocal" => Activation::Power { exponent: -1.0 },
        _ => {
            let y = scale(low, x, -1.0);
            low.give(node, y);
            return Ok(());
        }
    };
    let y = activate(low, x, function);
    low.give(node, y);
    Ok(())
}

/// min(max(x, low), high), written with the one clipping kernel there is.
fn clipped(low: &mut Lowering<'_>, x: ValueId, min: f32, max: f32) -> Outcome<ValueId> {
    if min == 0.0 && max == f32::INFINITY {
        return Ok(activate(low, x, Activation::Relu));
    }
    let stretch = (max - min) / 6.0;
    if !(stretch.is_finite() && stretch > 0.0) {
        return Err(format!("a range from {min} to {max} is not supported"));
    }
    let x = shift(low, x, -min);
    let x = scale(low, x, 1.0 / stretch);
    let x = activate(low, x, Activation::Relu6);
    let x = scale(low, x, stretch);
    Ok(shift(low, x, min))
}

pub(super) fn clip<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mut limits = [node.float("min", f32::NEG_INFINITY)?, node.float("max", f32::INFINITY)?];
    for (at, limit) in limits.iter_mut().enumerate() {
        let name = node.input(at + 1);
        if !name.is_empty() {
            *limit = low.number(name)?.ok_or("a limit that is not a single constant is not supported")?;
        }
    }
    // The largest number of a format stands for no limit at all.
    let [min, max] = limits.map(|l| if l.abs() >= 3e38 { l * f32::INFINITY } else { l });
    let x = low.operand(node, 0)?;
    let y = if min == f32::NEG_INFINITY && max == f32::INFINITY { x } else { clipped(low, x, min, max)? };
    low.give(node, y);
    Ok(())
}

/// Hard sigmoid, and x times it.
pub(super) fn hard<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let swish = node.op == "HardSwish";
    let (alpha, beta) =
        if swish { (1.0 / 6.0, 0.5) } else { (node.float("alpha", 0.2)?, node.float("beta", 0.5)?) };
    let x = low.operand(node, 0)?;
    let y = scale(low, x, alpha);
    let y = shift(low, y, beta);
    let y = clipped(low, y, 0.0, 1.0)?;
    let y = if swish { low.builder.apply(Op::Mul, &[x, y]) } else { y };
    low.give(node, y);
    Ok(())
}

pub(super) fn dropout<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    if low.wanted(node, 1) {
        return Err("the mask of a dropout is not supported".to_string());
    }
    let rate = match node.input(1) {
        "" => node.float("ratio", 0.5)?,
        name => low.number(name)?.ok_or("a ratio that is not a constant is not supported")?,
    };
    if !(0.0..1.0).contains(&rate) {
        return Err(format!("a ratio of {rate}"));
    }
    let x = low.operand(node, 0)?;
    let y = if rate == 0.0 { x } else { low.builder.dropout(x, rate) };
    low.give(node, y);
    Ok(())
}

/// A choice by a constant mask, such as attention's: x · mask + other · (1 − mask), both masks known ahead.
pub(super) fn choose<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let Item::Constant(mask) = low.item(node.input(0))? else {
        return Err("a choice by data is not supported; it is by a constant mask".to_string());
    };
    let constant = |low: &mut Lowering<'a>, at| {
        Ok::<bool, String>(matches!(low.item(node.input(at))?, Item::Constant(_)))
    };
    let (x, other) = match (constant(low, 1)?, constant(low, 2)?) {
        (false, true) => (1, 2),
        (true, false) => (2, 1),
        _ => {
            return Err(
                "a choice between data and data is not supported; it is against a constant".to_string()
            );
        }
    };
    let full = broadcast(mask.shape, low.shape(node.input(other))?)?;
    let x = low.operand(node, x)?;
    let dtype = low.builder.dtype();
    let keep = low.builder.outside("mask", mask.shape, dtype, Init::Constant(1.0));
    let y = combine(low, Op::Mul, x, keep)?;
    let fill = low.builder.outside("mask.fill", full, dtype, Init::Constant(0.0));
    let y = sum(low, y, fill)?;
    low.give(node, y);
    Ok(())
}
