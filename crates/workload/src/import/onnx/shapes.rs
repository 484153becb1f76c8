//! The arithmetic of shapes: what views, slices and broadcasting do to extents, with every number of a file in doubt.

use super::constant::shape_of;
use super::model::Node;
use crate::graph::Shape;

/// A range of an axis: where it starts, how many it takes, in which steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub axis: usize,
    pub start: u64,
    pub length: u64,
    pub step: u64,
}

/// The ranges that a `Slice` node takes, or `None` where they are computed from data.
pub(super) fn ranges(
    node: &Node<'_>,
    x: Shape,
    list: impl Fn(usize) -> Option<Vec<i64>>,
) -> Result<Option<Vec<Range>>, String> {
    let (starts, ends, axes, steps) = match node.ints("starts")? {
        Some(starts) => (Some(starts), node.ints("ends")?, node.ints("axes")?, None),
        None => (list(1), list(2), list(3), list(4)),
    };
    let given = |at: usize| !node.input(at).is_empty();
    let (Some(starts), Some(ends)) = (starts, ends) else { return Ok(None) };
    if (given(3) && axes.is_none()) || (given(4) && steps.is_none()) {
        return Ok(None);
    }
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Err("its starts, ends, axes and steps differ in number".to_string());
    }
    let mut ranges = Vec::new();
    for (((start, end), axis), step) in starts.iter().zip(&ends).zip(&axes).zip(&steps) {
        let axis = axis_of(*axis, x.rank())?;
        let extent = i64::try_from(x.dim(axis)).unwrap_or(i64::MAX);
        let place = |n: i64| (if n < 0 { n.saturating_add(extent) } else { n }).clamp(0, extent) as u64;
        let (start, end) = (place(*start), place(*end));
        let step = u64::try_from(*step)
            .ok()
            .filter(|s| *s > 0)
            .ok_or(format!("a step of {step} is not supported"))?;
        ranges.push(Range { axis, start, length: end.saturating_sub(start).div_ceil(step), step });
    }
    Ok(Some(ranges))
}

/// The shape to which both broadcast.
pub(super) fn broadcast(a: Shape, b: Shape) -> Result<Shape, String> {
    let rank = a.rank().max(b.rank());
    let mut dims = vec![1u64; rank];
    for (from_end, dim) in dims.iter_mut().rev().enumerate() {
        let of = |s: Shape| s.dims().iter().rev().nth(from_end).copied().unwrap_or(1);
        *dim = match (of(a), of(b)) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return Err(format!("{a} and {b} do not broadcast to one shape")),
        };
    }
    Shape::new(&dims).ok_or_else(|| "too many axes".to_string())
}

/// An axis that may be counted from the end.
pub(super) fn axis_of(axis: i64, rank: usize) -> Result<usize, String> {
    let counted = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    usize::try_from(counted).ok().filter(|a| *a < rank).ok_or(format!("there is no axis {axis} of {rank}"))
}

/// The order of axes of a `Transpose` node; reversed where it states none.
pub(super) fn order(perm: Option<Vec<i64>>, rank: usize) -> Result<Vec<usize>, String> {
    let Some(perm) = perm.filter(|p| !p.is_empty()) else { return Ok((0..rank).rev().collect()) };
    let order: Vec<usize> = perm.iter().map(|a| axis_of(*a, rank)).collect::<Result<_, _>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) {
        Ok(order)
    } else {
        Err(format!("{perm:?} is no order of {rank} axes"))
    }
}

/// The shape with axes of extent 1 inserted.
pub(super) fn unsqueezed(x: Shape, axes: &[i64]) -> Result<Shape, String> {
    let rank = x.rank() + axes.len();
    if rank > Shape::MAX_RANK {
        return Err(format!("{rank} axes; at most {} are supported", Shape::MAX_RANK));
    }
    let mut new = [false; Shape::MAX_RANK];
    for axis in axes {
        let axis = axis_of(*axis, rank)?;
        if std::mem::replace(&mut new[axis], true) {
            return Err(format!("axis {axis} is inserted twice"));
        }
    }
    let mut old = x.dims().iter();
    let dims: Vec<u64> =
        new[..rank].iter().map(|new| if *new { 1 } else { old.next().copied().unwrap_or(1) }).collect();
    Shape::new(&dims).ok_or_else(|| "too many axes".to_string())
}

/// The shape without these axes of extent 1, or without any of extent 1.
pub(super) fn squeezed(x: Shape, axes: Option<&[i64]>) -> Result<Shape, String> {
    let mut gone = [false; Shape::MAX_RANK];
    match axes {
        Some(axes) => {
            for axis in axes {
                let axis = axis_of(*axis, x.rank())?;
                if x.dim(axis) != 1 {
                    return Err(format!("axis {axis} of {x} is not of extent 1"));
                }
                gone[axis] = true;
            }
        }
        None => x.dims().iter().zip(&mut gone).for_each(|(dim, gone)| *gone = *dim == 1),
    }
    let dims: Vec<u64> = x.dims().iter().zip(gone).filter(|(_, gone)| !gone).map(|(dim, _)| *dim).collect();
    Shape::new(&dims).ok_or_else(|| "too many axes".to_string())
}

/// Two axes: all before `axis`, and all from it on.
pub(super) fn flattened(x: Shape, axis: i64) -> Result<Shape, String> {
    let axis = if axis == x.rank() as i64 { x.rank() } else { axis_of(axis, x.rank())? };
    let product = |dims: &[u64]| dims.iter().fold(1u64, |p, d| p.saturating_mul(*d));
    Ok(Shape::from([product(&x.dims()[..axis]), product(&x.dims()[axis..])]))
}

/// The shape that a `Reshape` to `target` gives: 0 copies an extent, one −1 takes what is left.
pub(super) fn reshaped(x: Shape, target: &[i64], allow_zero: bool) -> Result<Shape, String> {
    let mut dims = target.to_vec();
    if dims.len() > Shape::MAX_RANK {
        return Err(format!("{} axes; at most {} are supported", dims.len(), Shape::MAX_RANK));
    }
    for (axis, dim) in dims.iter_mut().enumerate() {
        if *dim == 0 && !allow_zero {
            let copied = x
                .dims()
                .get(axis)
                .ok_or(format!("{target:?} copies axis {axis}, which {x} does not have"))?;
            *dim = i64::try_from(*copied).map_err(|_| "too large an extent".to_string())?;
        }
    }
    if let Some(open) = dims.iter().position(|d| *d == -1) {
        dims[open] = 1;
        let rest = shape_of(&dims)?.elements();
        let left = x.elements().checked_div(rest).filter(|n| n.saturating_mul(rest) == x.elements());
        let left = left.ok_or(format!("{x} cannot be reshaped to {target:?}"))?;
        dims[open] = i64::try_from(left).map_err(|_| "too large an extent".to_string())?;
    }
    let shape = shape_of(&dims)?;
    if shape.elements() == x.elements() {
        Ok(shape)
    } else {
        Err(format!("{x} cannot be reshaped to {target:?}"))
    }
}
