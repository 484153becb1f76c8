//! The vectors of an index in memory: rows of one padded length, by their number.

use std::io;

use crate::arena::Arena;
use crate::distance::{Distance, PAD};
use crate::element::{Intake, Matrix};
use crate::error::AnnError;

/// Vectors in memory.
pub(crate) struct Rows {
    intake: Intake,
    stride: usize,
    bytes: Arena,
    /// One over each row's length, where distances want it.
    scales: Vec<f32>,
    distance: Distance,
    len: usize,
}

impl Rows {
    /// No rows yet.
    pub(crate) fn new(intake: Intake) -> Rows {
        Rows {
            intake,
            stride: padded(&intake),
            bytes: Arena::new(),
            scales: Vec::new(),
            distance: Distance::new(intake.dtype, intake.metric),
            len: 0,
        }
    }

    /// How rows come to be.
    pub(crate) fn intake(&self) -> &Intake {
        &self.intake
    }

    /// How far rows are from each other.
    pub(crate) fn distance(&self) -> &Distance {
        &self.distance
    }

    /// Makes it so many rows, zeros behind those that were there.
    pub(crate) fn resize(&mut self, len: usize) -> io::Result<()> {
        let bytes =
            len.checked_mul(self.stride).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        self.bytes.resize(bytes)?;
        if self.distance.scaled() {
            self.scales.resize(len, 0.0);
        }
        self.len = len;
        Ok(())
    }

    /// Takes a vector as a row.
    pub(crate) fn set(&mut self, row: u32, from: &Matrix<'_>, at: usize) -> Result<(), AnnError> {
        let start = row as usize * self.stride;
        self.intake.take(from, at, &mut self.bytes[start..start + self.stride])?;
        self.rescale(row);
        Ok(())
    }

    /// Takes the bytes of a row as they are kept.
    pub(crate) fn set_kept(&mut self, row: u32, bytes: &[u8]) {
        let start = row as usize * self.stride;
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.rescale(row);
    }

    fn rescale(&mut self, row: u32) {
        if self.distance.scaled() {
            let start = row as usize * self.stride;
            self.scales[row as usize] = self.distance.scale(&self.bytes[start..start + self.stride]);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many bytes from one to the next.
    pub(crate) fn stride(&self) -> usize {
        self.stride
    }

    /// How many of these are the vector's.
    pub(crate) fn kept(&self) -> usize {
        self.intake.dim * self.intake.dtype.size()
    }

    /// All of them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A row and its scale, for distances.
    pub(crate) fn get(&self, row: u32) -> (&[u8], f32) {
        let start = row as usize * self.stride;
        (&self.bytes[start..start + self.stride], self.scale(row))
    }

    /// One over a row's length, where distances want it.
    pub(crate) fn scale(&self, row: u32) -> f32 {
        if self.distance.scaled() { self.scales[row as usize] } else { 0.0 }
    }

    /// The bytes held.
    pub(crate) fn resident(&self) -> usize {
        self.bytes.len() + self.scales.len() * size_of::<f32>()
    }
}

/// How many bytes a row takes in memory.
pub(crate) fn padded(intake: &Intake) -> usize {
    (intake.dim * intake.dtype.size()).next_multiple_of(PAD)
}

/// A query as rows are: padded, with its scale.
pub(crate) struct Query {
    bytes: Vec<u8>,
    scale: f32,
}

impl Query {
    /// A vector as a query.
    pub(crate) fn new(intake: &Intake, from: &Matrix<'_>, at: usize) -> Result<Query, AnnError> {
        let mut bytes = vec![0; padded(intake)];
        intake.take(from, at, &mut bytes)?;
        let distance = Distance::new(intake.dtype, intake.metric);
        let scale = if distance.scaled() { distance.scale(&bytes) } else { 0.0 };
        Ok(Query { bytes, scale })
    }

    /// For distances.
    pub(crate) fn get(&self) -> (&[u8], f32) {
        (&self.bytes, self.scale)
    }
}
