//! Tensors that are known when a file is imported: shapes, axes, factors.
//!
//! Exported graphs compute shapes with ordinary operators on small integer tensors. Those are evaluated here (`fold.rs`), so
//! that what remains is arithmetic on data. A constant with many elements keeps its shape and gives up its elements: no
//! shape depends on them, and a hostile file cannot make them grow.

use std::rc::Rc;

use super::model::Tensor;
use crate::graph::Shape;

/// The most elements that a constant keeps.
pub(super) const MOST_ELEMENTS: u64 = 4096;

/// A tensor that is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    /// Its extents.
    pub shape: Shape,
    /// Its elements.
    pub data: Data,
}

/// The elements of a constant.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Data {
    /// Whole numbers; truths are 0 and 1.
    Ints(Rc<[i64]>),
    /// Floating-point numbers.
    Floats(Rc<[f32]>),
    /// Too many to keep, or in another file.
    Unknown {
        /// Whether they are whole numbers.
        integer: bool,
    },
}

impl Constant {
    /// Whole numbers.
    pub fn ints(shape: Shape, data: Vec<i64>) -> Constant {
        Constant { shape, data: Data::Ints(data.into()) }
    }

    /// Floating-point numbers.
    pub fn floats(shape: Shape, data: Vec<f32>) -> Constant {
        Constant { shape, data: Data::Floats(data.into()) }
    }

    /// A list of whole numbers.
    pub fn list(data: Vec<i64>) -> Constant {
        Constant::ints(Shape::from([data.len() as u64]), data)
    }

    /// A constant of which only the shape is known.
    pub fn unknown(shape: Shape, integer: bool) -> Constant {
        Constant { shape, data: Data::Unknown { integer } }
    }

    /// Whether its elements are whole numbers.
    pub fn is_integer(&self) -> bool {
        match self.data {
            Data::Ints(_) => true,
            Data::Floats(_) => false,
            Data::Unknown { integer } => integer,
        }
    }

    /// Its elements as whole numbers, where they are known and whole.
    pub fn as_ints(&self) -> Option<&[i64]> {
        match &self.data {
            Data::Ints(data) => Some(data),
            _ => None,
        }
    }

    /// Its elements as floating-point numbers, where they are known.
    pub fn as_floats(&self) -> Option<Vec<f32>> {
        match &self.data {
            Data::Ints(data) => Some(data.iter().map(|n| *n as f32).collect()),
            Data::Floats(data) => Some(data.to_vec()),
            Data::Unknown { .. } => None,
        }
    }

    /// Its one element, where it has one and that is known.
    pub fn scalar(&self) -> Option<f32> {
        match &self.data {
            Data::Ints(data) if data.len() == 1 => data.first().map(|n| *n as f32),
            Data::Floats(data) if data.len() == 1 => data.first().copied(),
            _ => None,
        }
    }

    /// The same elements under another shape.
    pub fn reshaped(&self, shape: Shape) -> Constant {
        Constant { shape, data: self.data.clone() }
    }
}

/// What a number format of ONNX means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Floating-point numbers, which take the network's number format.
    Float,
    /// Whole numbers and truths.
    Int,
}

impl Format {
    /// The meaning of a number format, or a sentence that says that it has none here.
    pub fn of(format: i64) -> Result<Format, String> {
        match format {
            1 | 10 | 11 | 16 => Ok(Format::Float),
            2..=7 | 9 | 12 | 13 => Ok(Format::Int),
            0 => Err("a tensor without a data type".to_string()),
            8 => Err("the data type `string` is not supported".to_string()),
            14 | 15 => Err("complex numbers are not supported".to_string()),
            other => Err(format!("data type {other} is not supported")),
        }
    }
}

impl Tensor<'_> {
    /// Its extents, or a sentence that says what is wrong with them.
    pub fn extents(&self) -> Result<Shape, String> {
        let most = Shape::MAX_RANK;
        self.shape.ok_or_else(|| format!("a tensor of more than {most} axes, or with a negative extent"))
    }

    /// The tensor with its elements, as far as they are few and in the file.
    pub fn constant(&self) -> Result<Constant, String> {
        let shape = self.extents()?;
        let integer = Format::of(self.format)? == Format::Int;
        if shape.elements() > MOST_ELEMENTS {
            return Ok(Constant::unknown(shape, integer));
        }
        let (mut ints, mut floats, mut raw, mut elsewhere) = (Vec::new(), Vec::new(), None, false);
        self.message
            .fields(|f| {
                match f.number {
                    4 => f.floats(&mut floats)?,
                    5 | 7 | 11 => f.ints(&mut ints)?,
                    9 => raw = Some(f.message()?.bytes),
                    10 => f.doubles(&mut floats)?,
                    13 => elsewhere = true,
                    14 => elsewhere |= f.int()? == 1,
                    _ => {}
                }
                Ok(())
            })
            .map_err(|error| error.to_string())?;
        if elsewhere {
            return Ok(Constant::unknown(shape, integer));
        }
        if let Some(raw) = raw {
            decode(self.format, raw, &mut ints, &mut floats)?;
        } else if matches!(self.format, 10 | 16) {
            // 16-bit numbers without raw data stand among the whole numbers.
            floats = ints.iter().map(|bits| small_float(self.format, *bits as u16)).collect();
        }
        let found = if integer { ints.len() } else { floats.len() };
        if found as u64 != shape.elements() {
            return Err(format!("a tensor of {shape} has {found} elements"));
        }
        Ok(if integer { Constant::ints(shape, ints) } else { Constant::floats(shape, floats) })
    }
}

/// A shape of extents that a file states.
pub(super) fn shape_of(dims: &[i64]) -> Result<Shape, String> {
    let mut extents = Vec::with_capacity(dims.len().min(Shape::MAX_RANK));
    if dims.len() > Shape::MAX_RANK {
        return Err(format!("a tensor of {} axes; at most {} are supported", dims.len(), Shape::MAX_RANK));
    }
    for dim in dims {
        extents.push(u64::try_from(*dim).map_err(|_| format!("an extent of {dim}"))?);
    }
    Shape::new(&extents).ok_or_else(|| "too many axes".to_string())
}

/// Elements that stand as they are in memory.
fn decode(format: i64, raw: &[u8], ints: &mut Vec<i64>, floats: &mut Vec<f32>) -> Result<(), String> {
    let width = match format {
        2 | 3 | 9 => 1,
        4 | 5 | 10 | 16 => 2,
        1 | 6 | 12 => 4,
        _ => 8,
    };
    if !raw.len().is_multiple_of(width) {
        return Err(format!("{} bytes of raw data are no elements of {width} bytes", raw.len()));
    }
    for bytes in raw.chunks_exact(width) {
        let mut wide = [0; 8];
        wide[..width].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        match format {
            1 => floats.push(f32::from_bits(bits as u32)),
            11 => floats.push(f64::from_bits(bits) as f32),
            10 | 16 => floats.push(small_float(format, bits as u16)),
            3 => ints.push(i64::from(bits as i8)),
            5 => ints.push(i64::from(bits as i16)),
            6 => ints.push(i64::from(bits as i32)),
            _ => ints.push(bits as i64),
        }
    }
    Ok(())
}

/// A 16-bit floating-point number: IEEE half precision (format 10), or the upper half of an `f32` (16).
fn small_float(format: i64, bits: u16) -> f32 {
    if format == 16 {
        return f32::from_bits(u32::from(bits) << 16);
    }
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 31, f32::from(bits & 1023));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(i32::from(exponent) - 25),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::small_float;

    #[test]
    fn halves() {
        let shown: Vec<f32> =
            [0x3c00, 0xc000, 0x3555, 0x0001, 0x7bff, 0x7c00].map(|bits| small_float(10, bits)).to_vec();
        assert_eq!(shown, [1.0, -2.0, 0.333_251_95, 5.960_464_5e-8, 65504.0, f32::INFINITY]);
        assert_eq!(small_float(16, 0x3fc0), 1.5);
    }
}
