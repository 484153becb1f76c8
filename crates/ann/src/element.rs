//! What vectors are made of, how near two of them are, and matrices of them.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use crate::error::{AnnError, MAX_DIM};

/// The type of a vector's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 32-bit floating point.
    F32,
    /// 16-bit floating point, IEEE.
    F16,
    /// 16-bit floating point with the range of `f32`.
    Bf16,
    /// Whole numbers from 0 to 255.
    U8,
    /// Whole numbers from −128 to 127.
    I8,
}

impl Dtype {
    /// Every type, in the order of their numbers in files.
    pub const ALL: [Dtype; 5] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8, Dtype::I8];

    /// How many bytes a number takes.
    pub fn size(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U8 | Dtype::I8 => 1,
        }
    }

    /// Whether distances are counted in whole numbers, and so exact.
    pub fn integer(self) -> bool {
        matches!(self, Dtype::U8 | Dtype::I8)
    }

    fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::U8 => "u8",
            Dtype::I8 => "i8",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Dtype {
    type Err = String;

    fn from_str(text: &str) -> Result<Dtype, String> {
        let found = Dtype::ALL.into_iter().find(|dtype| dtype.name() == text);
        found.ok_or_else(|| format!("no element type `{text}`; there are f32, f16, bf16, u8 and i8"))
    }
}

/// How near two vectors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Metric {
    /// Squared Euclidean distance.
    L2,
    /// One less the inner product.
    InnerProduct,
    /// One less the cosine of the angle.
    Cosine,
}

impl Metric {
    /// Every metric, in the order of their numbers in files.
    pub const ALL: [Metric; 3] = [Metric::L2, Metric::InnerProduct, Metric::Cosine];

    fn name(self) -> &'static str {
        match self {
            Metric::L2 => "l2",
            Metric::InnerProduct => "ip",
            Metric::Cosine => "cosine",
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Metric, String> {
        let found = Metric::ALL.into_iter().find(|metric| metric.name() == text);
        found.ok_or_else(|| format!("no metric `{text}`; there are l2, ip and cosine"))
    }
}

/// Vectors of one length one after the other, owned or somebody else's.
#[derive(Clone, Debug)]
pub struct Matrix<'a> {
    dtype: Dtype,
    dim: usize,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Matrix<'a> {
    /// Vectors in these bytes, in the machine's byte order.
    pub fn new(dtype: Dtype, dim: usize, bytes: impl Into<Cow<'a, [u8]>>) -> Result<Matrix<'a>, AnnError> {
        if dim == 0 || dim > MAX_DIM {
            return Err(AnnError::NoSuchDimension(dim));
        }
        let bytes = bytes.into();
        let row = dim * dtype.size();
        if !bytes.len().is_multiple_of(row) {
            return Err(AnnError::Dimension { wanted: dim, found: bytes.len() % row / dtype.size() });
        }
        Ok(Matrix { dtype, dim, bytes })
    }

    /// Vectors of `f32`.
    pub fn of_f32(dim: usize, numbers: &'a [f32]) -> Result<Matrix<'a>, AnnError> {
        Matrix::new(Dtype::F32, dim, bytemuck::cast_slice(numbers))
    }

    /// What the numbers are.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// How many numbers a vector has.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How many vectors there are.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.row_bytes()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes a vector takes.
    pub fn row_bytes(&self) -> usize {
        self.dim * self.dtype.size()
    }

    /// The bytes of a vector.
    pub fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes()..][..self.row_bytes()]
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The vectors from one up to another.
    pub fn slice(&self, rows: std::ops::Range<usize>) -> Matrix<'_> {
        let bytes = &self.bytes[rows.start * self.row_bytes()..rows.end * self.row_bytes()];
        Matrix { dtype: self.dtype, dim: self.dim, bytes: Cow::Borrowed(bytes) }
    }

    /// Some of the vectors, copied.
    pub fn pick(&self, rows: impl IntoIterator<Item = usize>) -> Matrix<'static> {
        let bytes: Vec<u8> = rows.into_iter().flat_map(|row| self.row(row)).copied().collect();
        Matrix { dtype: self.dtype, dim: self.dim, bytes: Cow::Owned(bytes) }
    }

    /// The numbers of a vector as `f32`.
    pub fn numbers(&self, row: usize) -> Vec<f32> {
        let mut numbers = vec![0.0; self.dim];
        widen(self.dtype, self.row(row), &mut numbers);
        numbers
    }
}

/// Turns the bytes of a vector into `f32`.
pub(crate) fn widen(dtype: Dtype, bytes: &[u8], into: &mut [f32]) {
    let pairs = || bytes.chunks_exact(2).map(|pair| u16::from_ne_bytes([pair[0], pair[1]]));
    match dtype {
        Dtype::F32 => {
            let quads = bytes.chunks_exact(4).map(|q| f32::from_ne_bytes([q[0], q[1], q[2], q[3]]));
            into.iter_mut().zip(quads).for_each(|(to, from)| *to = from);
        }
        Dtype::F16 => into.iter_mut().zip(pairs()).for_each(|(to, from)| *to = f16::from_bits(from).to_f32()),
        Dtype::Bf16 => {
            into.iter_mut().zip(pairs()).for_each(|(to, from)| *to = bf16::from_bits(from).to_f32())
        }
        Dtype::U8 => into.iter_mut().zip(bytes).for_each(|(to, from)| *to = f32::from(*from)),
        Dtype::I8 => into.iter_mut().zip(bytes).for_each(|(to, from)| *to = f32::from(*from as i8)),
    }
}

/// Turns numbers into bytes of a type, or says which of them it cannot hold. Whole types hold whole numbers alone.
fn narrow(dtype: Dtype, numbers: &[f32], into: &mut [u8]) -> Result<(), usize> {
    let whole = |low: f32, high: f32| {
        numbers.iter().position(|n| !(n.fract() == 0.0 && (low..=high).contains(n))).map_or(Ok(()), Err)
    };
    match dtype {
        Dtype::F32 => into.copy_from_slice(bytemuck::cast_slice(numbers)),
        Dtype::F16 => {
            for (at, (to, from)) in into.chunks_exact_mut(2).zip(numbers).enumerate() {
                let short = f16::from_f32(*from);
                if !short.is_finite() {
                    return Err(at);
                }
                to.copy_from_slice(&short.to_bits().to_ne_bytes());
            }
        }
        Dtype::Bf16 => {
            for (at, (to, from)) in into.chunks_exact_mut(2).zip(numbers).enumerate() {
                let short = bf16::from_f32(*from);
                if !short.is_finite() {
                    return Err(at);
                }
                to.copy_from_slice(&short.to_bits().to_ne_bytes());
            }
        }
        Dtype::U8 => {
            whole(0.0, 255.0)?;
            into.iter_mut().zip(numbers).for_each(|(to, from)| *to = *from as u8);
        }
        Dtype::I8 => {
            whole(-128.0, 127.0)?;
            into.iter_mut().zip(numbers).for_each(|(to, from)| *to = *from as i8 as u8);
        }
    }
    Ok(())
}

/// Turns vectors as they come into those that an index keeps: its own type, and of length one where angles count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intake {
    pub(crate) dtype: Dtype,
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
}

impl Intake {
    /// Writes one vector as it is kept.
    pub(crate) fn take(&self, from: &Matrix<'_>, row: usize, into: &mut [u8]) -> Result<(), AnnError> {
        if from.dim() != self.dim {
            return Err(AnnError::Dimension { wanted: self.dim, found: from.dim() });
        }
        let into = &mut into[..self.dim * self.dtype.size()];
        if from.dtype() == self.dtype && self.dtype.integer() {
            into.copy_from_slice(from.row(row));
            return Ok(());
        }
        let mut numbers = from.numbers(row);
        if let Some(column) = numbers.iter().position(|n| !n.is_finite()) {
            return Err(AnnError::NotFinite { row, column });
        }
        if self.metric == Metric::Cosine && !self.dtype.integer() {
            let length = numbers.iter().map(|n| f64::from(*n).powi(2)).sum::<f64>().sqrt();
            if length > 0.0 {
                numbers.iter_mut().for_each(|n| *n = (f64::from(*n) / length) as f32);
            }
        }
        narrow(self.dtype, &numbers, into).map_err(|column| AnnError::NotHeld {
            row,
            column,
            value: f64::from(numbers[column]),
            dtype: self.dtype,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_what_came() {
        let whole = Matrix::of_f32(3, &[0.0, 255.0, 7.0]).unwrap();
        let mut kept = [0; 12];
        let intake = |dtype| Intake { dtype, metric: Metric::L2, dim: 3 };
        intake(Dtype::U8).take(&whole, 0, &mut kept).unwrap();
        assert_eq!(kept[..3], [0, 255, 7]);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            intake(dtype).take(&whole, 0, &mut kept).unwrap();
            let mut back = [0.0; 3];
            widen(dtype, &kept, &mut back);
            assert_eq!(back, [0.0, 255.0, 7.0], "{dtype}");
        }
        let error = intake(Dtype::I8).take(&whole, 0, &mut kept).unwrap_err().to_string();
        assert_eq!(error, "vector 0 has 255 at 1, which i8 cannot hold");
        let odd = Matrix::of_f32(3, &[0.5, f32::NAN, 1e30]).unwrap();
        let error = intake(Dtype::F32).take(&odd, 0, &mut kept).unwrap_err().to_string();
        assert_eq!(error, "vector 0 has a number that is not finite, at 1");
        let large = Matrix::of_f32(3, &[0.5, 1.0, 1e30]).unwrap();
        assert!(intake(Dtype::F16).take(&large, 0, &mut kept).is_err());
        assert!(intake(Dtype::Bf16).take(&large, 0, &mut kept).is_ok());
    }

    #[test]
    fn angles_make_vectors_of_length_one() {
        let from = Matrix::of_f32(2, &[3.0, 4.0, 0.0, 0.0]).unwrap();
        let intake = Intake { dtype: Dtype::F32, metric: Metric::Cosine, dim: 2 };
        let mut kept = [0; 8];
        intake.take(&from, 0, &mut kept).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&kept), [0.6, 0.8]);
        intake.take(&from, 1, &mut kept).unwrap();
        assert_eq!(bytemuck::cast_slice::<u8, f32>(&kept), [0.0, 0.0]);
    }

    #[test]
    fn matrices_know_their_shape() {
        assert!(Matrix::new(Dtype::U8, 0, vec![]).is_err());
        assert!(Matrix::new(Dtype::F32, 2, vec![0; 12]).is_err());
        let matrix = Matrix::new(Dtype::U8, 2, vec![1, 2, 3, 4]).unwrap();
        assert_eq!((matrix.len(), matrix.row(1), matrix.numbers(1)), (2, &[3u8, 4][..], vec![3.0, 4.0]));
        assert_eq!(matrix.pick([1, 0]).bytes(), [3, 4, 1, 2]);
    }
}
