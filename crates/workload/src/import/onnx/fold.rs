//! Evaluating operators on constants: the shape arithmetic of exported graphs.
//!
//! An operator that is not listed here, or whose elements are too many, leaves the constants to the rules for data. Time and
//! memory are bounded: results keep at most [`MOST_ELEMENTS`] elements each, and a file has a budget for all of them.

use super::constant::{Constant, Data, Format, MOST_ELEMENTS};
use super::model::Node;
use super::shapes::{Range, axis_of, broadcast, flattened, order, ranges, reshaped, squeezed, unsqueezed};
use crate::graph::Shape;

/// Constants of one file, with what they may still cost.
pub(super) struct Folder {
    budget: u64,
    /// The batch that the file states, where another is wanted.
    stated: Option<u64>,
}

/// Operators that [`Folder::fold`] knows and no rule for data does.
pub(super) const FOLDED: [&str; 22] = [
    "And",
    "Ceil",
    "Constant",
    "ConstantOfShape",
    "Equal",
    "Floor",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Log",
    "Max",
    "Min",
    "Mod",
    "Not",
    "Or",
    "Range",
    "ReduceProd",
    "Shape",
    "Size",
    "Trilu",
    "Round",
];

type Folded = Result<Option<Constant>, String>;

impl Folder {
    /// A folder for a file of so many bytes, and of this batch where another is wanted.
    pub fn new(bytes: usize, stated: Option<u64>) -> Folder {
        Folder { budget: (1 << 20) + 4 * bytes as u64, stated }
    }

    /// The result of `node` on these operands, or `None` where it must be computed from data.
    pub fn fold(&mut self, node: &Node<'_>, operands: &[Option<Constant>]) -> Folded {
        let operand = |at: usize| operands.get(at).and_then(Option::as_ref);
        let folded = match node.op {
            "Constant" => Some(literal(node)?),
            "ConstantOfShape" => of_shape(node, operand(0))?,
            "Range" => range(operand(0), operand(1), operand(2))?,
            _ => match operand(0) {
                Some(x) => self.on(node, x, operands)?,
                None => None,
            },
        };
        Ok(folded.map(|constant| self.charge(constant)))
    }

    /// Takes the elements of a constant off the budget; what is beyond it loses them.
    fn charge(&mut self, constant: Constant) -> Constant {
        let elements = constant.shape.elements();
        let known = !matches!(constant.data, Data::Unknown { .. });
        match self.budget.checked_sub(elements.saturating_add(1)) {
            Some(left) if known && elements <= MOST_ELEMENTS => {
                self.budget = left;
                constant
            }
            _ => Constant::unknown(constant.shape, constant.is_integer()),
        }
    }

    /// `x` stretched to `wanted`. A constant made for the file's batch, such as a first state, serves any other one.
    fn expanded(&self, x: &Constant, wanted: Shape) -> Result<Constant, String> {
        match (broadcast(x.shape, wanted), self.stated) {
            (Ok(shape), _) => Ok(stretched(x, shape)),
            (Err(error), None) => Err(error),
            (Err(_), Some(stated)) => {
                let mut own = x.shape;
                let ahead = wanted.rank().saturating_sub(own.rank());
                for axis in
                    (0..own.rank()).filter(|a| x.shape.dim(*a) == stated && wanted.dim(a + ahead) != stated)
                {
                    own = own.with(axis, 1);
                }
                Ok(Constant::unknown(broadcast(own, wanted)?, x.is_integer()))
            }
        }
    }

    fn on(&self, node: &Node<'_>, x: &Constant, operands: &[Option<Constant>]) -> Folded {
        let operand = |at: usize| operands.get(at).and_then(Option::as_ref);
        // One element is as good as a list of it where axes and indices are wanted.
        let numbers = |at: usize| operand(at).and_then(Constant::as_ints);
        Ok(match node.op {
            "Identity" => Some(x.clone()),
            "Cast" => Some(cast(x, Format::of(node.int("to", 0)?)?)),
            "Unsqueeze" | "Squeeze" | "Reshape" | "Flatten" => {
                let list = if operands.len() > 1 { numbers(1).map(<[i64]>::to_vec) } else { None };
                let given = list.or(node.ints(if node.op == "Reshape" { "shape" } else { "axes" })?);
                Some(x.reshaped(match node.op {
                    "Unsqueeze" => unsqueezed(x.shape, &given.ok_or("its axes are not known")?)?,
                    "Squeeze" => squeezed(x.shape, given.as_deref())?,
                    "Reshape" => reshaped(
                        x.shape,
                        &given.ok_or("its shape is not known")?,
                        node.int("allowzero", 0)? != 0,
                    )?,
                    _ => flattened(x.shape, node.int("axis", 1)?)?,
                }))
            }
            "Gather" => match operand(1) {
                Some(indices) => Some(gathered(x, indices, axis_of(node.int("axis", 0)?, x.shape.rank())?)?),
                None => None,
            },
            "Concat" => {
                let parts: Option<Vec<&Constant>> = operands.iter().map(Option::as_ref).collect();
                match parts {
                    Some(parts) => Some(concatenated(&parts, node.int("axis", 0)?)?),
                    None => None,
                }
            }
            "Slice" => {
                let ranges = ranges(node, x.shape, |at| numbers(at).map(<[i64]>::to_vec))?;
                ranges.map(|ranges| sliced(x, &ranges))
            }
            "Transpose" => {
                let order = order(node.ints("perm")?, x.shape.rank())?;
                let dims: Vec<u64> = order.iter().map(|a| x.shape.dim(*a)).collect();
                let shape = Shape::new(&dims).ok_or("too many axes")?;
                let alone = x.shape.dims().iter().filter(|d| **d != 1).count() <= 1;
                Some(if alone { x.reshaped(shape) } else { Constant::unknown(shape, x.is_integer()) })
            }
            "Expand" => match numbers(1) {
                Some(dims) => Some(self.expanded(x, super::constant::shape_of(dims)?)?),
                None => None,
            },
            "ReduceProd" => match x.as_ints() {
                Some(data) if node.int("keepdims", 1)? == 0 => {
                    let product = data.iter().fold(1i64, |p, n| p.saturating_mul(*n));
                    Some(Constant::ints(Shape::from([]), vec![product]))
                }
                _ => None,
            },
            "Trilu" => Some(Constant::unknown(x.shape, x.is_integer())),
            "Where" => match (operand(1), operand(2)) {
                (Some(a), Some(b)) => Some(chosen(x, a, b)?),
                _ => None,
            },
            "Neg" | "Not" | "Floor" | "Ceil" | "Round" | "Sqrt" | "Log" | "Abs" => Some(unary(node.op, x)),
            _ if BINARY.contains(&node.op) => all(node.op, operands)?,
            _ => None,
        })
    }
}

const BINARY: [&str; 17] = [
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Mod",
    "Pow",
    "Min",
    "Max",
    "Sum",
    "Equal",
    "Less",
    "LessOrEqual",
    "Greater",
    "GreaterOrEqual",
    "And",
    "Or",
    "Xor",
];

/// A binary operator over all its operands from left to right.
fn all(op: &str, operands: &[Option<Constant>]) -> Folded {
    let known: Option<Vec<&Constant>> = operands.iter().map(Option::as_ref).collect();
    let Some(known) = known else { return Ok(None) };
    let Some((first, rest)) = known.split_first() else { return Ok(None) };
    let mut sum = (*first).clone();
    for next in rest {
        sum = binary(op, &sum, next)?;
    }
    Ok(Some(sum))
}

/// The value of a `Constant` node.
fn literal(node: &Node<'_>) -> Result<Constant, String> {
    if let Some(tensor) = node.tensor("value")? {
        return tensor.constant();
    }
    let names = node.attribute_names()?;
    let Some(name) = names.first() else { return Err("a constant without a value".to_string()) };
    match *name {
        "value_int" => Ok(Constant::ints(Shape::from([]), vec![node.int(name, 0)?])),
        "value_float" => Ok(Constant::floats(Shape::from([]), vec![node.float(name, 0.0)?])),
        "value_ints" => Ok(Constant::list(node.ints(name)?.unwrap_or_default())),
        "value_floats" => {
            let data = node.floats(name)?.unwrap_or_default();
            Ok(Constant::floats(Shape::from([data.len() as u64]), data))
        }
        other => Err(format!("a constant given as `{other}` is not supported")),
    }
}

fn of_shape(node: &Node<'_>, dims: Option<&Constant>) -> Folded {
    let Some(dims) = dims.and_then(Constant::as_ints) else { return Ok(None) };
    let shape = super::constant::shape_of(dims)?;
    let value = match node.tensor("value")? {
        Some(tensor) => tensor.constant()?,
        None => Constant::floats(Shape::from([1]), vec![0.0]),
    };
    Ok(Some(stretched(&value.reshaped(Shape::from([])), shape)))
}

fn range(start: Option<&Constant>, limit: Option<&Constant>, step: Option<&Constant>) -> Folded {
    let one = |c: Option<&Constant>| c.and_then(Constant::as_ints).and_then(|d| d.first().copied());
    let (Some(start), Some(limit), Some(step)) = (one(start), one(limit), one(step)) else { return Ok(None) };
    if step <= 0 {
        return Err(format!("a range with the step {step} is not supported"));
    }
    let count = (i128::from(limit) - i128::from(start) + i128::from(step) - 1) / i128::from(step);
    let count = u64::try_from(count.max(0)).map_err(|_| "a range without end".to_string())?;
    let shape = Shape::from([count]);
    if count > MOST_ELEMENTS {
        return Ok(Some(Constant::unknown(shape, true)));
    }
    let data = (0..count as i64).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect();
    Ok(Some(Constant::ints(shape, data)))
}

fn cast(x: &Constant, to: Format) -> Constant {
    match (&x.data, to) {
        (Data::Floats(data), Format::Int) => {
            Constant::ints(x.shape, data.iter().map(|f| *f as i64).collect())
        }
        (Data::Ints(_), Format::Float) => Constant::floats(x.shape, x.as_floats().unwrap_or_default()),
        (Data::Unknown { .. }, to) => Constant::unknown(x.shape, to == Format::Int),
        _ => x.clone(),
    }
}

fn unary(op: &str, x: &Constant) -> Constant {
    let int = |n: i64| match op {
        "Neg" => n.wrapping_neg(),
        "Not" => i64::from(n == 0),
        "Abs" => n.wrapping_abs(),
        _ => n,
    };
    let float = |f: f32| match op {
        "Neg" => -f,
        "Floor" => f.floor(),
        "Ceil" => f.ceil(),
        "Round" => f.round_ties_even(),
        "Sqrt" => f.sqrt(),
        "Log" => f.ln(),
        "Abs" => f.abs(),
        _ => f,
    };
    let data = match &x.data {
        Data::Ints(data) => Data::Ints(data.iter().map(|n| int(*n)).collect()),
        Data::Floats(data) => Data::Floats(data.iter().map(|f| float(*f)).collect()),
        unknown => unknown.clone(),
    };
    Constant { shape: x.shape, data }
}

fn binary(op: &str, a: &Constant, b: &Constant) -> Result<Constant, String> {
    let shape = broadcast(a.shape, b.shape)?;
    let truth = !matches!(op, "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "Min" | "Max" | "Sum");
    let integer = truth || (a.is_integer() && b.is_integer());
    if shape.elements() > MOST_ELEMENTS {
        return Ok(Constant::unknown(shape, integer));
    }
    if let (Some(x), Some(y)) = (a.as_ints(), b.as_ints()) {
        let pairs = positions(a.shape, shape).zip(positions(b.shape, shape));
        let mut data = Vec::with_capacity(shape.elements() as usize);
        for (i, j) in pairs {
            data.push(
                whole(op, at(x, i), at(y, j))
                    .ok_or_else(|| format!("{op} of {} by {}", at(x, i), at(y, j)))?,
            );
        }
        return Ok(Constant::ints(shape, data));
    }
    let (Some(x), Some(y)) = (a.as_floats(), b.as_floats()) else {
        return Ok(Constant::unknown(shape, integer));
    };
    let pairs = positions(a.shape, shape).zip(positions(b.shape, shape));
    if truth {
        return Ok(Constant::unknown(shape, true));
    }
    let float = |x: f32, y: f32| match op {
        "Add" | "Sum" => x + y,
        "Sub" => x - y,
        "Mul" => x * y,
        "Div" => x / y,
        "Mod" => x % y,
        "Pow" => x.powf(y),
        "Min" => x.min(y),
        _ => x.max(y),
    };
    Ok(Constant::floats(shape, pairs.map(|(i, j)| float(at(&x, i), at(&y, j))).collect()))
}

/// A binary operator on whole numbers, or `None` where it has no result.
fn whole(op: &str, x: i64, y: i64) -> Option<i64> {
    Some(match op {
        "Add" | "Sum" => x.wrapping_add(y),
        "Sub" => x.wrapping_sub(y),
        "Mul" => x.wrapping_mul(y),
        "Div" => x.checked_div(y)?,
        "Mod" => x.checked_rem_euclid(y)?,
        "Pow" => x.checked_pow(u32::try_from(y).ok()?)?,
        "Min" => x.min(y),
        "Max" => x.max(y),
        "Equal" => i64::from(x == y),
        "Less" => i64::from(x < y),
        "LessOrEqual" => i64::from(x <= y),
        "Greater" => i64::from(x > y),
        "GreaterOrEqual" => i64::from(x >= y),
        "And" => i64::from(x != 0 && y != 0),
        "Or" => i64::from(x != 0 || y != 0),
        _ => i64::from((x != 0) != (y != 0)),
    })
}

/// The element at a position; the default where a position is beyond the end, which no caller lets happen.
fn at<T: Copy + Default>(data: &[T], position: usize) -> T {
    data.get(position).copied().unwrap_or_default()
}

/// For every element of `full` in order, the position of the element of `x` that broadcasting puts there.
fn positions(x: Shape, full: Shape) -> impl Iterator<Item = usize> {
    let ahead = full.rank().saturating_sub(x.rank());
    let dims: Vec<usize> = full.dims().iter().map(|d| *d as usize).collect();
    let mut strides = vec![0; dims.len()];
    let mut stride = 1usize;
    for axis in (0..x.rank()).rev() {
        if x.dim(axis) != 1 {
            strides[ahead + axis] = stride;
        }
        stride = stride.wrapping_mul(x.dim(axis) as usize);
    }
    (0..full.elements() as usize).map(move |mut flat| {
        let mut position = 0;
        for (dim, stride) in dims.iter().zip(&strides).rev() {
            position += flat % dim * stride;
            flat /= dim;
        }
        position
    })
}

/// `x` stretched to a shape that it broadcasts to.
fn stretched(x: &Constant, shape: Shape) -> Constant {
    if shape.elements() > MOST_ELEMENTS {
        return Constant::unknown(shape, x.is_integer());
    }
    pick(x, shape, positions(x.shape, shape))
}

/// The elements of `x` at these positions.
fn pick(x: &Constant, shape: Shape, positions: impl Iterator<Item = usize>) -> Constant {
    let data = match &x.data {
        Data::Ints(data) => Data::Ints(positions.map(|i| at(data, i)).collect()),
        Data::Floats(data) => Data::Floats(positions.map(|i| at(data, i)).collect()),
        unknown => unknown.clone(),
    };
    Constant { shape, data }
}

fn chosen(truth: &Constant, a: &Constant, b: &Constant) -> Result<Constant, String> {
    let shape = broadcast(broadcast(truth.shape, a.shape)?, b.shape)?;
    let integer = a.is_integer() && b.is_integer();
    if shape.elements() > MOST_ELEMENTS {
        return Ok(Constant::unknown(shape, integer));
    }
    match (truth.as_ints(), a.as_ints(), b.as_ints()) {
        (Some(truth_data), Some(x), Some(y)) => {
            let places =
                positions(truth.shape, shape).zip(positions(a.shape, shape)).zip(positions(b.shape, shape));
            let data =
                places.map(|((t, i), j)| if at(truth_data, t) != 0 { at(x, i) } else { at(y, j) }).collect();
            Ok(Constant::ints(shape, data))
        }
        _ => Ok(Constant::unknown(shape, integer)),
    }
}

fn gathered(x: &Constant, indices: &Constant, axis: usize) -> Result<Constant, String> {
    let dims: Vec<u64> =
        [&x.shape.dims()[..axis], indices.shape.dims(), &x.shape.dims()[axis + 1..]].concat();
    let shape = Shape::new(&dims).ok_or("too many axes")?;
    let Some(wanted) = indices.as_ints().filter(|_| shape.elements() <= MOST_ELEMENTS) else {
        return Ok(Constant::unknown(shape, x.is_integer()));
    };
    let extent = x.shape.dim(axis) as i64;
    let inner: u64 = x.shape.dims()[axis + 1..].iter().fold(1, |p, d| p.saturating_mul(*d));
    let outer: u64 = x.shape.dims()[..axis].iter().fold(1, |p, d| p.saturating_mul(*d));
    let mut places = Vec::with_capacity(shape.elements() as usize);
    if shape.elements() > 0 {
        for o in 0..outer {
            for index in wanted {
                let index = if *index < 0 { index.saturating_add(extent) } else { *index };
                if !(0..extent).contains(&index) {
                    return Err(format!("no element {index} on axis {axis} of {}", x.shape));
                }
                // Only a constant without known elements is large enough to wrap, and then no place is looked at.
                let start = o.wrapping_mul(extent as u64).wrapping_add(index as u64).wrapping_mul(inner);
                places.extend((start..start.wrapping_add(inner)).map(|p| p as usize));
            }
        }
    }
    Ok(pick(x, shape, places.into_iter()))
}

fn concatenated(parts: &[&Constant], axis: i64) -> Result<Constant, String> {
    let Some(first) = parts.first() else { return Err("nothing to concatenate".to_string()) };
    let axis = axis_of(axis, first.shape.rank())?;
    let mut extent = 0u64;
    for part in parts {
        if part.shape.rank() != first.shape.rank() || part.shape.with(axis, 1) != first.shape.with(axis, 1) {
            return Err(format!("{} does not line up with {}", part.shape, first.shape));
        }
        extent = extent.saturating_add(part.shape.dim(axis));
    }
    let shape = first.shape.with(axis, extent);
    let integer = first.is_integer();
    if first.shape.rank() != 1 || shape.elements() > MOST_ELEMENTS {
        return Ok(Constant::unknown(shape, integer));
    }
    let ints: Option<Vec<&[i64]>> = parts.iter().map(|p| p.as_ints()).collect();
    if let Some(ints) = ints {
        return Ok(Constant::ints(shape, ints.concat()));
    }
    let floats: Option<Vec<Vec<f32>>> = parts.iter().map(|p| p.as_floats()).collect();
    Ok(match floats {
        Some(floats) => Constant::floats(shape, floats.concat()),
        None => Constant::unknown(shape, integer),
    })
}

fn sliced(x: &Constant, ranges: &[Range]) -> Constant {
    let mut shape = x.shape;
    let mut starts = [0u64; Shape::MAX_RANK];
    let mut steps = [1u64; Shape::MAX_RANK];
    for range in ranges {
        starts[range.axis] = range.start;
        steps[range.axis] = range.step;
        shape = shape.with(range.axis, range.length);
    }
    if shape.elements() > MOST_ELEMENTS || matches!(x.data, Data::Unknown { .. }) {
        return Constant::unknown(shape, x.is_integer());
    }
    let dims = shape.dims().to_vec();
    let from = x.shape;
    let places = (0..shape.elements()).map(move |mut flat| {
        let (mut position, mut stride) = (0u64, 1u64);
        for axis in (0..dims.len()).rev() {
            position += (starts[axis] + flat % dims[axis] * steps[axis]) * stride;
            flat /= dims[axis];
            stride = stride.wrapping_mul(from.dim(axis));
        }
        position as usize
    });
    pick(x, shape, places)
}
