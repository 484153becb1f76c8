//! Shapes and number formats: what turns a tensor of a network into bytes.

use std::fmt;

use tiercel_core::Bytes;

/// The number format of a tensor's elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit floating point.
    #[default]
    F32,
    /// 16-bit floating point with the exponent of `F32`.
    Bf16,
    /// 32-bit integers: token ids, labels, rows of a table.
    I32,
    /// 64-bit integers: the ids of imported graphs.
    I64,
}

impl DType {
    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            DType::Bf16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::I64 => 8,
        }
    }

    /// Whether elements are whole numbers, for which no gradient exists.
    pub fn is_integer(self) -> bool {
        matches!(self, DType::I32 | DType::I64)
    }

    /// The name that files and the command line use.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::Bf16 => "bf16",
            DType::I32 => "i32",
            DType::I64 => "i64",
        }
    }
}

/// The extents of a tensor, outermost first: images are batch, channels, height, width.
///
/// Shapes are small values without a heap allocation of their own, because a long trace holds millions of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    dims: [u64; Shape::MAX_RANK],
    rank: u8,
}

impl Shape {
    /// The most axes that a shape can have.
    pub const MAX_RANK: usize = 6;

    /// A shape with these extents, or `None` where there are more than [`Shape::MAX_RANK`].
    pub fn new(dims: &[u64]) -> Option<Shape> {
        let mut all = [1; Shape::MAX_RANK];
        all.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(Shape { dims: all, rank: dims.len() as u8 })
    }

    /// The extents.
    pub fn dims(&self) -> &[u64] {
        &self.dims[..usize::from(self.rank)]
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The extent of one axis; 1 for an axis beyond the last.
    pub fn dim(&self, axis: usize) -> u64 {
        self.dims().get(axis).copied().unwrap_or(1)
    }

    /// The extent of the last axis; 1 for a single number.
    pub fn last(&self) -> u64 {
        self.dims().last().copied().unwrap_or(1)
    }

    /// The number of elements, or the largest number where there are more than 64 bits can count.
    pub fn elements(&self) -> u64 {
        self.dims().iter().fold(1, |n: u64, d| n.saturating_mul(*d))
    }

    /// The same shape with another extent on one axis.
    pub fn with(mut self, axis: usize, extent: u64) -> Shape {
        if let Some(dim) = self.dims.get_mut(axis) {
            *dim = extent;
        }
        self
    }

    /// The memory that the elements need in this number format.
    pub fn bytes(&self, dtype: DType) -> Bytes {
        Bytes(self.elements().saturating_mul(dtype.size()))
    }
}

impl<const N: usize> From<[u64; N]> for Shape {
    /// A shape written out in a program.
    fn from(dims: [u64; N]) -> Shape {
        const { assert!(N <= Shape::MAX_RANK) };
        let mut all = [1; Shape::MAX_RANK];
        all[..N].copy_from_slice(&dims);
        Shape { dims: all, rank: N as u8 }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rank == 0 {
            return f.pad("1");
        }
        let text: Vec<String> = self.dims().iter().map(u64::to_string).collect();
        f.pad(&text.join("x"))
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
