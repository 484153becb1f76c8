//! Convolutions and poolings. One-dimensional ones are images of one row.

use super::linear::spread;
use super::{Lowering, Outcome};
use crate::graph::{Conv, Init, Op, Pool, PoolKind, Shape, ValueId};
use crate::import::onnx::model::Node;

/// The window of a convolution or a pooling over an image.
struct Window {
    size: [u64; 2],
    stride: [u64; 2],
    dilation: [u64; 2],
    padding: [u64; 4],
}

/// A number that can be an extent of a window.
fn extent(number: i64, least: i64) -> Outcome<u64> {
    if (least..=1 << 32).contains(&number) {
        Ok(number as u64)
    } else {
        Err(format!("a window or step of {number}"))
    }
}

/// Two numbers of an attribute, for rows and columns; one row where the input has no rows.
fn pair(node: &Node<'_>, name: &str, axes: usize, default: u64, least: i64) -> Outcome<[u64; 2]> {
    let Some(list) = node.ints(name)?.filter(|list| !list.is_empty()) else { return Ok([default; 2]) };
    match list[..] {
        [columns] if axes == 1 => Ok([default, extent(columns, least)?]),
        [rows, columns] if axes == 2 => Ok([extent(rows, least)?, extent(columns, least)?]),
        _ => Err(format!("`{name}` has {} numbers for {axes} axes", list.len())),
    }
}

impl Window {
    /// Reads the attributes of a node over the image `x`; `size` is the window unless an attribute states it.
    fn read(node: &Node<'_>, x: Shape, axes: usize, size: Option<[u64; 2]>) -> Outcome<Window> {
        let size = match size {
            Some(size) => size,
            None if node.ints("kernel_shape")?.is_none() => {
                return Err("`kernel_shape` is missing".to_string());
            }
            None => pair(node, "kernel_shape", axes, 1, 1)?,
        };
        let stride = pair(node, "strides", axes, 1, 1)?;
        let dilation = pair(node, "dilations", axes, 1, 1)?;
        let mut padding = [0; 4];
        match node.text("auto_pad")? {
            "" | "NOTSET" => {
                if let Some(pads) = node.ints("pads")?.filter(|p| !p.is_empty()) {
                    padding = match pads[..] {
                        [left, right] if axes == 1 => [0, extent(left, 0)?, 0, extent(right, 0)?],
                        [top, left, bottom, right] if axes == 2 => {
                            [extent(top, 0)?, extent(left, 0)?, extent(bottom, 0)?, extent(right, 0)?]
                        }
                        _ => return Err(format!("`pads` has {} numbers for {axes} axes", pads.len())),
                    };
                }
            }
            "VALID" => {}
            same @ ("SAME_UPPER" | "SAME_LOWER") => {
                for axis in 0..2 {
                    let extent = x.dim(axis + 2);
                    let taps = (size[axis] - 1).saturating_mul(dilation[axis]).saturating_add(1);
                    let reach =
                        (extent.div_ceil(stride[axis]).saturating_sub(1)).saturating_mul(stride[axis]);
                    let missing = reach.saturating_add(taps).saturating_sub(extent);
                    let before = if same == "SAME_UPPER" { missing / 2 } else { missing.div_ceil(2) };
                    padding[axis] = before;
                    padding[axis + 2] = missing - before;
                }
            }
            other => return Err(format!("`auto_pad` of `{other}` is not supported")),
        }
        Ok(Window { size, stride, dilation, padding })
    }
}

/// The operand as an image, and how many axes its windows have.
fn image<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome<(ValueId, usize)> {
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    match shape.rank() {
        4 => Ok((x, 2)),
        3 => Ok((low.view(x, [shape.dim(0), shape.dim(1), 1, shape.dim(2)]), 1)),
        rank => Err(format!(
            "`{}` over {shape} is not supported; images have 4 axes and sequences 3, not {rank}",
            node.op
        )),
    }
}

/// The result of an image kernel, as a sequence again where it was one.
fn give<'a>(low: &mut Lowering<'a>, node: &Node<'a>, y: ValueId, axes: usize) {
    let shape = low.builder.shape(y);
    let y = if axes == 1 && shape.rank() == 4 {
        low.view(y, [shape.dim(0), shape.dim(1), shape.dim(3)])
    } else {
        y
    };
    low.give(node, y);
}

pub(super) fn conv<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    low.start(node);
    let transposed = node.op == "ConvTranspose";
    let (x, axes) = image(low, node)?;
    let own = low.shape(node.input(1))?;
    let weight = match *own.dims() {
        [out, inputs, columns] if axes == 1 => [out, inputs, 1, columns],
        [out, inputs, rows, columns] if axes == 2 => [out, inputs, rows, columns],
        _ => return Err(format!("a weight of {own} for {axes} axes of windows")),
    };
    let size = [weight[2].max(1), weight[3].max(1)];
    if node.ints("kernel_shape")?.is_some_and(|k| !k.is_empty())
        && pair(node, "kernel_shape", axes, 1, 1)? != size
    {
        return Err(format!("`kernel_shape` and the weight {own} differ"));
    }
    if transposed && node.text("auto_pad")?.starts_with("SAME") {
        return Err("`auto_pad` of a transposed convolution is not supported".to_string());
    }
    let window = Window::read(node, low.builder.shape(x), axes, Some(size))?;
    let groups = extent(node.int("group", 1)?, 1)?;
    let conv = Conv {
        stride: window.stride,
        padding: window.padding,
        dilation: window.dilation,
        groups,
        transposed,
        output_padding: if transposed { pair(node, "output_padding", axes, 0, 0)? } else { [0; 2] },
    };
    let fan_in = weight[1].saturating_mul(size[0]).saturating_mul(size[1]);
    let kernel = low.parameter(node.input(1), Shape::from(weight), spread(fan_in))?;
    let mut operands = vec![x, kernel];
    if !node.input(2).is_empty() {
        let channels = if transposed { weight[1].saturating_mul(groups) } else { weight[0] };
        operands.push(low.parameter(node.input(2), Shape::from([channels]), Init::Constant(0.0))?);
    }
    let y = low.builder.apply(Op::Conv(conv), &operands);
    give(low, node, y, axes);
    Ok(())
}

pub(super) fn pool<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    if low.wanted(node, 1) {
        return Err("the places of the maxima are not supported".to_string());
    }
    let (x, axes) = image(low, node)?;
    let window = Window::read(node, low.builder.shape(x), axes, None)?;
    if window.dilation != [1; 2] {
        return Err("`dilations` other than 1 are not supported".to_string());
    }
    let kind = match node.op {
        "MaxPool" => PoolKind::Max,
        _ => PoolKind::Average { count_padding: node.int("count_include_pad", 0)? != 0 },
    };
    let ceil = node.int("ceil_mode", 0)? != 0;
    let Window { size, stride, padding, .. } = window;
    let y = low.builder.apply(Op::Pool(Pool { kind, window: size, stride, padding, ceil }), &[x]);
    give(low, node, y, axes);
    Ok(())
}

pub(super) fn global_pool<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let (x, axes) = image(low, node)?;
    let shape = low.builder.shape(x);
    let op = if node.op == "GlobalAveragePool" {
        Op::GlobalPool
    } else {
        let window = [shape.dim(2), shape.dim(3)];
        Op::Pool(Pool { kind: PoolKind::Max, window, stride: [1; 2], padding: [0; 4], ceil: false })
    };
    let y = low.builder.apply(op, &[x]);
    give(low, node, y, axes);
    Ok(())
}
