//! What moves data around: views, transpositions, pieces, padding, look-ups, means.

use super::{Item, Lowering, Outcome, Reshaped};
use crate::graph::{Init, Op, Shape, ValueId};
use crate::import::onnx::constant::{Constant, Format, shape_of};
use crate::import::onnx::model::Node;
use crate::import::onnx::shapes::{self, axis_of, broadcast};

pub(super) fn identity<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let item = low.item(node.input(0))?;
    low.bind(node.output(0), item);
    Ok(())
}

/// All floating-point formats are the network's one. Whole numbers that become floating-point ones, such as a mask, come
/// from outside in that format.
pub(super) fn cast<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let to = Format::of(node.int("to", 0)?)?;
    let item = low.item(node.input(0))?;
    let Item::Data(value) = item else {
        low.bind(node.output(0), item);
        return Ok(());
    };
    let integer = low.builder.graph().values.get(value.index()).is_some_and(|v| v.dtype.is_integer());
    match (integer, to) {
        (false, Format::Int) => Err("a cast of data to whole numbers is not supported".to_string()),
        (true, Format::Float) => {
            let (shape, dtype) = (low.builder.shape(value), low.builder.dtype());
            let y = low.builder.outside(super::short(node.output(0)), shape, dtype, Init::Constant(1.0));
            low.give(node, y);
            Ok(())
        }
        _ => {
            low.give(node, value);
            Ok(())
        }
    }
}

/// Operators that change only the shape.
pub(super) fn reshape<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let axes = |low: &mut Lowering<'a>| match low.list(node, 1)? {
        Some(list) => Ok::<_, String>(Some(list)),
        None => node.ints("axes"),
    };
    let new = match node.op {
        "Flatten" => shapes::flattened(shape, node.int("axis", 1)?)?,
        "Squeeze" => shapes::squeezed(shape, axes(low)?.as_deref())?,
        "Unsqueeze" => shapes::unsqueezed(shape, &axes(low)?.ok_or("its axes are missing")?)?,
        _ => {
            let target = match low.list(node, 1)? {
                Some(list) => list,
                None => node.ints("shape")?.ok_or("its shape is missing")?,
            };
            let past = low.past.and_then(|past| Some((past.batch, past.reshapes.get(&node.at)?)));
            let new = match past.and_then(|(batch, past)| rebatched(batch, past, shape, &target)) {
                Some(new) => new,
                None => shapes::reshaped(shape, &target, node.int("allowzero", 0)? != 0)?,
            };
            low.reshapes.insert(node.at, Reshaped { from: shape, target, to: new });
            new
        }
    };
    let y = low.view(x, new);
    low.give(node, y);
    Ok(())
}

/// The shape that a stated target means under another batch: the operand grew along one axis, and so does the result, along
/// the axis that holds the same place. `None` where nothing is to be done.
fn rebatched(batch: u64, past: &Reshaped, now: Shape, target: &[i64]) -> Option<Shape> {
    if past.target != target || past.from.rank() != now.rank() {
        return None;
    }
    let mut grown = (0..now.rank()).filter(|axis| past.from.dim(*axis) != now.dim(*axis));
    let (axis, None) = (grown.next()?, grown.next()) else { return None };
    let ahead = |s: Shape, axis: usize| s.dims()[..axis].iter().fold(1u64, |p, d| p.saturating_mul(*d));
    // Where the axis that grew starts and ends, and the same of the axes of the result.
    let (start, end) = (ahead(now, axis), ahead(now, axis).saturating_mul(past.from.dim(axis)));
    let starts = |b: usize| ahead(past.to, b);
    let ends = |b: usize| ahead(past.to, b + 1);
    let axes = || 0..past.to.rank();
    // An axis as long as the file's batch inside the one that grew is the batch itself. Otherwise it went into the axis that
    // starts there, unless that is the last, which holds features: then into the one that ends there.
    let itself = axes().find(|b| past.to.dim(*b) == batch && start <= starts(*b) && ends(*b) <= end);
    let before = || axes().find(|b| ends(*b) == start && past.to.rank() > 1 && starts(b + 1) == start);
    let behind = axes()
        .find(|b| starts(*b) == start)
        .map(|b| if b + 1 == past.to.rank() && b > 0 { before().unwrap_or(b) } else { b });
    let around = || axes().find(|b| starts(*b) < start && start < ends(*b));
    let at = itself.or(behind).or_else(around)?;
    let grown = u128::from(past.to.dim(at)) * u128::from(now.dim(axis));
    let old = u128::from(past.from.dim(axis)).max(1);
    let extent = u64::try_from(grown / old).ok().filter(|_| grown % old == 0)?;
    let new = past.to.with(at, extent);
    (new.elements() == now.elements()).then_some(new)
}

pub(super) fn transpose<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let shape = low.shape(node.input(0))?;
    let order = shapes::order(node.ints("perm")?, shape.rank())?;
    if order.iter().copied().eq(0..shape.rank()) {
        return identity(low, node);
    }
    if let Item::Weight { name, shape, transposed } = low.item(node.input(0))?
        && shape.rank() == 2
    {
        low.bind(node.output(0), Item::Weight { name, shape, transposed: !transposed });
        return Ok(());
    }
    let x = low.operand(node, 0)?;
    // Moving axes of extent 1 moves no data.
    let moving = |axes: &[usize]| axes.iter().copied().filter(|a| shape.dim(*a) != 1).collect::<Vec<_>>();
    let y = if moving(&order).is_sorted() {
        let dims: Vec<u64> = order.iter().map(|a| shape.dim(*a)).collect();
        low.view(x, Shape::new(&dims).ok_or("too many axes")?)
    } else {
        low.builder.apply(Op::Transpose { order }, &[x])
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn concat<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mut parts = Vec::with_capacity(node.inputs.len());
    for at in 0..node.inputs.len() {
        // An empty piece, such as a cache that holds nothing yet, adds nothing.
        if low.shape(node.input(at)).is_ok_and(|s| s.elements() == 0) {
            continue;
        }
        parts.push(low.operand(node, at)?);
    }
    let y = match parts[..] {
        [] => return Err("nothing to concatenate".to_string()),
        [one] => one,
        _ => {
            let axis = axis_of(node.int("axis", 1)?, low.builder.shape(parts[0]).rank())?;
            low.builder.concat(&parts, axis)
        }
    };
    low.give(node, y);
    Ok(())
}

pub(super) fn slice<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mut lists = [None, None, None, None, None];
    for (at, list) in lists.iter_mut().enumerate().skip(1) {
        *list = low.list(node, at)?;
    }
    let mut x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let ranges =
        shapes::ranges(node, shape, |at| lists.get(at).cloned().flatten())?.ok_or("its range is missing")?;
    for range in ranges {
        let whole = low.builder.shape(x).dim(range.axis);
        if range.step != 1 && range.length > 1 {
            return Err(format!("a step of {} is not supported", range.step));
        }
        if range.start != 0 || range.length != whole {
            let op = Op::Slice { axis: range.axis, start: range.start, length: range.length };
            x = low.builder.apply(op, &[x]);
        }
    }
    low.give(node, x);
    Ok(())
}

pub(super) fn split<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let axis = axis_of(node.int("axis", 0)?, shape.rank())?;
    let stated = match low.list(node, 1)? {
        Some(list) => Some(list),
        None => node.ints("split")?.filter(|list| !list.is_empty()),
    };
    let (pieces, extent) = (node.outputs.len() as u64, shape.dim(axis));
    let sizes: Vec<u64> = match stated {
        Some(list) => list
            .iter()
            .map(|n| u64::try_from(*n).map_err(|_| format!("a piece of {n}")))
            .collect::<Result<_, _>>()?,
        None => {
            // Pieces of equal size, the last one perhaps smaller.
            let each = extent.div_ceil(pieces.max(1));
            (0..pieces).map(|i| each.min(extent.saturating_sub(i.saturating_mul(each)))).collect()
        }
    };
    if sizes.len() != node.outputs.len() {
        return Err(format!("{} pieces for {} results", sizes.len(), node.outputs.len()));
    }
    let pieces = match sizes.len() {
        1 => vec![x],
        _ => low.builder.apply_all(Op::Split { axis, sizes }, &[x]),
    };
    for (name, piece) in node.outputs.iter().zip(pieces) {
        low.bind(name, Item::Data(piece));
    }
    Ok(())
}

pub(super) fn pad<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mode = node.text("mode")?;
    if !matches!(mode, "" | "constant") {
        return Err(format!("padding in the mode `{mode}` is not supported"));
    }
    let value = match node.input(2) {
        "" => node.float("value", 0.0)?,
        name => low.number(name)?.ok_or("padding with a number that is not a constant is not supported")?,
    };
    if value != 0.0 {
        return Err(format!("padding with {value} is not supported; zeros are"));
    }
    let pads = match low.list(node, 1)? {
        Some(list) => list,
        None => node.ints("pads")?.ok_or("its pads are missing")?,
    };
    let mut x = low.operand(node, 0)?;
    let rank = low.builder.shape(x).rank();
    let axes: Vec<usize> = match low.list(node, 3)? {
        Some(list) => list.iter().map(|a| axis_of(*a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads for {} axes", pads.len(), axes.len()));
    }
    for (at, axis) in axes.iter().copied().enumerate() {
        let (before, after) = (pads[at], pads[at + axes.len()]);
        let extent = low.builder.shape(x).dim(axis);
        let cut = |n: i64| n.min(0).unsigned_abs();
        if before < 0 || after < 0 {
            let start = cut(before);
            let length = extent.saturating_sub(start).saturating_sub(cut(after));
            x = low.builder.apply(Op::Slice { axis, start, length }, &[x]);
        }
        if before > 0 || after > 0 {
            let (before, after) = (before.max(0) as u64, after.max(0) as u64);
            x = low.builder.apply(Op::Pad { axis, before, after }, &[x]);
        }
    }
    low.give(node, x);
    Ok(())
}

/// A look-up in a table, a piece of one axis, or a range of it.
pub(super) fn gather<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let shape = low.shape(node.input(0))?;
    let axis = axis_of(node.int("axis", 0)?, shape.rank())?;
    let extent = shape.dim(axis);
    if let Item::Constant(indices) = low.item(node.input(1))?
        && let Some(first) = consecutive(&indices, extent)
        && !matches!(low.item(node.input(0))?, Item::Weight { .. })
    {
        let x = low.operand(node, 0)?;
        let length = indices.shape.elements();
        let y = if length == extent {
            x
        } else {
            low.builder.apply(Op::Slice { axis, start: first, length }, &[x])
        };
        let dims = [&shape.dims()[..axis], indices.shape.dims(), &shape.dims()[axis + 1..]].concat();
        let y = low.view(y, Shape::new(&dims).ok_or("too many axes")?);
        low.give(node, y);
        return Ok(());
    }
    if axis != 0 || shape.rank() != 2 {
        return Err(format!("a look-up on axis {axis} of {shape} is not supported; rows of a table are"));
    }
    low.start(node);
    let table = low.parameter(node.input(0), shape, Init::Normal(0.02))?;
    let ids = low.operand(node, 1)?;
    low.bound(ids, extent);
    let y = low.builder.apply(Op::Embedding { bag: false }, &[table, ids]);
    low.give(node, y);
    Ok(())
}

/// The first of indices that follow one another.
fn consecutive(indices: &Constant, extent: u64) -> Option<u64> {
    let list = indices.as_ints()?;
    let first = list.first()?;
    let first = if *first < 0 { first.checked_add(i64::try_from(extent).ok()?)? } else { *first };
    let follow = list.windows(2).all(|pair| pair[0].checked_add(1) == Some(pair[1]));
    u64::try_from(first).ok().filter(|_| follow)
}

/// `x` repeated along axes of extent 1, by adding it to zeros.
pub(super) fn stretch(low: &mut Lowering<'_>, x: ValueId, full: Shape) -> Outcome<ValueId> {
    let shape = low.builder.shape(x);
    if shape == full {
        return Ok(x);
    }
    if shape.elements() == full.elements() {
        return Ok(low.view(x, full));
    }
    let zeros = low.builder.fill(full, 0.0);
    Ok(low.builder.apply(Op::Add, &[zeros, x]))
}

pub(super) fn expand<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let dims = low.list(node, 1)?.ok_or("its shape is missing")?;
    let x = low.operand(node, 0)?;
    let full = broadcast(low.builder.shape(x), shape_of(&dims)?)?;
    let y = stretch(low, x, full)?;
    low.give(node, y);
    Ok(())
}

/// Enlarging images by whole factors, every pixel repeated.
pub(super) fn resize<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let mode = node.text("mode")?;
    if !matches!(mode, "" | "nearest") {
        return Err(format!("resizing in the mode `{mode}` is not supported; `nearest` is"));
    }
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let factors = factors(low, node, shape)?;
    let [rows, columns] = match factors[..] {
        [1, 1, rows, columns] if shape.rank() == 4 => [rows, columns],
        _ => {
            return Err(format!(
                "resizing {shape} by {factors:?} is not supported; images by whole factors are"
            ));
        }
    };
    let [n, c, h, w] = [0, 1, 2, 3].map(|axis| shape.dim(axis));
    let y = if rows == 1 && columns == 1 {
        x
    } else {
        let pixels = low.view(x, [n, c, h, 1, w, 1]);
        let y = stretch(low, pixels, Shape::from([n, c, h, rows, w, columns]))?;
        low.view(y, [n, c, h.saturating_mul(rows), w.saturating_mul(columns)])
    };
    low.give(node, y);
    Ok(())
}

/// The whole factors by which every axis grows.
fn factors<'a>(low: &mut Lowering<'a>, node: &Node<'a>, shape: Shape) -> Outcome<Vec<u64>> {
    if let Some(sizes) = low.list(node, 3)? {
        let fits =
            |(new, old): (&i64, &u64)| u64::try_from(*new).ok().filter(|n| n % (*old).max(1) == 0 && *n > 0);
        let factors: Option<Vec<u64>> =
            sizes.iter().zip(shape.dims()).map(|pair| fits(pair).map(|n| n / pair.1.max(&1))).collect();
        return factors.filter(|f| f.len() == sizes.len()).ok_or(format!("resizing {shape} to {sizes:?}"));
    }
    let at = if node.op == "Upsample" { 1 } else { node.inputs.len().saturating_sub(1).min(2) };
    let scales = match low.optional(node.input(at))? {
        Some(Item::Constant(constant)) if constant.shape.elements() > 0 => constant.as_floats(),
        // An initializer of several floating-point numbers looks like a weight.
        Some(Item::Weight { name, .. }) => {
            let tensor = low.initializers.get(name).copied();
            tensor.map(|t| t.constant()).transpose()?.and_then(|c| c.as_floats())
        }
        _ => node.floats("scales")?,
    };
    let scales = scales.ok_or("its scales are not known")?;
    let whole = |s: &f32| (1.0..=1024.0).contains(s) && s.fract() == 0.0;
    if scales.iter().all(whole) {
        Ok(scales.iter().map(|s| *s as u64).collect())
    } else {
        Err(format!("resizing by {scales:?} is not supported; whole factors are"))
    }
}

/// Means and sums over some axes, by the kernel that takes the mean of a channel.
pub(super) fn reduce<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let x = low.operand(node, 0)?;
    let shape = low.builder.shape(x);
    let stated = match low.list(node, 1)? {
        Some(list) => Some(list),
        None => node.ints("axes")?,
    };
    let mut over = [false; Shape::MAX_RANK];
    match stated.filter(|axes| !axes.is_empty()) {
        Some(axes) => {
            for axis in axes {
                over[axis_of(axis, shape.rank())?] = true;
            }
        }
        None if node.int("noop_with_empty_axes", 0)? != 0 => return identity(low, node),
        None => over = [true; Shape::MAX_RANK],
    }
    let axes = |wanted: bool| (0..shape.rank()).filter(move |a| over[*a] == wanted);
    let count = |wanted| axes(wanted).fold(1u64, |p, a| p.saturating_mul(shape.dim(a)));
    let order: Vec<usize> = axes(false).chain(axes(true)).collect();
    let sorted = if order.is_sorted() { x } else { low.builder.apply(Op::Transpose { order }, &[x]) };
    // An image whose channels are averaged is what the kernel was made for.
    let image = shape.rank() == 4 && over[..4] == [false, false, true, true];
    let y = if image { sorted } else { low.view(sorted, [1, count(false), 1, count(true)]) };
    let mut y = low.builder.apply(Op::GlobalPool, &[y]);
    if node.op == "ReduceSum" {
        y = low.builder.apply(Op::Scale { factor: count(true) as f32 }, &[y]);
    }
    let keep = node.int("keepdims", 1)? != 0;
    let dims: Vec<u64> = (0..shape.rank())
        .filter(|a| keep || !over[*a])
        .map(|a| if over[a] { 1 } else { shape.dim(a) })
        .collect();
    let y = low.view(y, Shape::new(&dims).ok_or("too many axes")?);
    low.give(node, y);
    Ok(())
}
