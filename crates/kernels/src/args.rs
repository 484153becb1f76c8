//! What a kernel function gets: the operands and results of its node as slices of numbers, scratch memory, threads.
//!
//! An operand whose memory a result takes over is one slice only, the result's: [`Args::maybe`] says so, and the
//! function works in place.

use crate::KernelError;
use tiercel_workload::graph::{DType, Graph, Node, Op, Shape};

use super::pool::Pool;
use super::samples::{MOST, Samples};
use super::simd::wide;
use tiercel_run::stage::View;

/// The shape and number format of one operand or result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Form {
    pub shape: Shape,
    pub dtype: DType,
    /// Elements of its memory that come before it.
    pub start: usize,
    /// Elements of its memory from one row (the last axis) to the next: more than a row has, where it is some columns of
    /// something wider.
    pub pitch: usize,
}

impl Form {
    /// The elements of its memory from the first to the last that it has.
    fn range(&self) -> std::ops::Range<usize> {
        let (elements, row) = (self.shape.elements() as usize, self.shape.last() as usize);
        self.start..self.start + elements + (self.pitch - row) * (elements / row.max(1)).saturating_sub(1)
    }

    /// Whether it is some columns of something wider.
    pub fn is_apart(&self) -> bool {
        self.pitch > self.shape.last() as usize
    }
}

/// A node as the kernels see it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub op: Op,
    pub inputs: Vec<Form>,
    pub outputs: Vec<Form>,
    /// In how many parts it takes a batch (`Node::parts`).
    pub parts: usize,
}

impl Call {
    pub fn new(graph: &Graph, node: &Node) -> Call {
        let form = |v: &tiercel_workload::graph::ValueId| {
            let value = graph.value(*v);
            let pitch = value.pitch.unwrap_or(value.shape.last()) as usize;
            Form { shape: value.shape, dtype: value.dtype, start: value.start as usize, pitch }
        };
        let (inputs, outputs) =
            (node.inputs.iter().map(form).collect(), node.outputs.iter().map(form).collect());
        Call { op: node.op.clone(), inputs, outputs, parts: node.parts() }
    }

    /// An extent of operand `at`.
    pub fn dim(&self, at: usize, axis: usize) -> usize {
        self.inputs[at].shape.dim(axis) as usize
    }

    /// The extent of the last axis of operand `at`.
    pub fn last(&self, at: usize) -> usize {
        self.inputs[at].shape.last() as usize
    }

    /// The shape of a batch whose first part is this one.
    pub fn whole(&self, first: &[Form]) -> Shape {
        let samples = first[..self.parts].iter().map(|part| part.shape.dim(0)).sum();
        first[0].shape.with(0, samples)
    }

    /// The elements of operand `at`.
    pub fn len(&self, at: usize) -> usize {
        self.inputs[at].shape.elements() as usize
    }
}

/// Where in a kernel's views the operands of a node are.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    pub inputs: Vec<usize>,
    pub outputs: Vec<usize>,
}

/// What training decides anew for every iteration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Seed of the whole run.
    pub seed: u64,
    /// Iterations before this one.
    pub iteration: u64,
    /// Multiplies the learning rate of every update.
    pub rate: f32,
}

/// The operands, results, scratch memory and threads of one call.
pub(super) struct Args<'a, 'v> {
    pub call: &'v Call,
    pub places: &'v Places,
    pub views: &'v mut [View<'a>],
    pub scratch: &'a mut [f32],
    pub pool: &'v mut Pool,
    pub moment: Moment,
}

/// The operands of a call, of which there may be any number.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, 'v> {
    pub call: &'v Call,
    pub places: &'v Places,
    pub views: &'v [View<'a>],
}

impl<'a> Inputs<'a, '_> {
    /// Operand `at`, or `None` where it lies in the memory of a result.
    pub fn maybe(&self, at: usize) -> Result<Option<&'a [f32]>, KernelError> {
        let form = self.call.inputs[at];
        match self.views[self.places.inputs[at]] {
            View::Read(bytes) => {
                if form.dtype != DType::F32 {
                    return Err(KernelError::Operand { at, found: form.dtype, wanted: "f32" });
                }
                let numbers: &[f32] = cast(bytes, "operand")?;
                Ok(Some(&numbers[form.range()]))
            }
            View::Write(_) => Ok(None),
        }
    }

    /// Operand `at`.
    pub fn read(&self, at: usize) -> Result<&'a [f32], KernelError> {
        self.maybe(at)?.ok_or(KernelError::Overwritten { at })
    }
}

/// Whole numbers of either width.
#[derive(Clone, Copy)]
pub(super) enum Ids<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Ids<'_> {
    pub fn len(&self) -> usize {
        match self {
            Ids::Short(ids) => ids.len(),
            Ids::Long(ids) => ids.len(),
        }
    }

    /// Number `at`, which must be below `below`.
    #[inline]
    pub fn get(&self, at: usize, below: usize) -> Result<usize, KernelError> {
        let id = match self {
            Ids::Short(ids) => i64::from(ids[at]),
            Ids::Long(ids) => ids[at],
        };
        match usize::try_from(id) {
            Ok(index) if index < below => Ok(index),
            _ => Err(KernelError::Id { id, at, below }),
        }
    }

    /// Says which number is not below `below`, if any.
    pub fn check(&self, below: usize) -> Result<(), KernelError> {
        // Usually none, which vectors find out; a negative one is large where there is no sign.
        let fine = match self {
            Ids::Short(ids) => largest(ids).is_none_or(|most| (most as usize) < below.min(1 << 31)),
            Ids::Long(ids) => ids.iter().fold(true, |fine, id| fine & ((*id as u64) < below as u64)),
        };
        if fine { Ok(()) } else { (0..self.len()).try_for_each(|at| self.get(at, below).map(drop)) }
    }

    /// One number of each row of `from`, for which those from `first` on say which, as many as there is room for; after
    /// [`Ids::check`].
    pub fn pick(&self, first: usize, from: &[f32], width: usize, to: &mut [f32]) {
        fn all(ids: impl Iterator<Item = usize>, from: &[f32], width: usize, to: &mut [f32]) {
            for ((to, id), row) in to.iter_mut().zip(ids).zip(from.chunks_exact(width)) {
                *to = row[id];
            }
        }
        match self {
            Ids::Short(ids) => all(ids[first..].iter().map(|id| *id as usize), from, width, to),
            Ids::Long(ids) => all(ids[first..].iter().map(|id| *id as usize), from, width, to),
        }
    }

    /// Number `at`, after [`Ids::check`].
    #[inline]
    pub fn at(&self, at: usize) -> usize {
        match self {
            Ids::Short(ids) => ids[at] as usize,
            Ids::Long(ids) => ids[at] as usize,
        }
    }
}

wide! {
    /// The largest number, where those that are less than zero are larger than all others.
    fn largest(ids: &[i32]) -> Option<u32> {
        ids.iter().map(|id| *id as u32).max()
    }
}

/// Elements that numbers are stored as.
fn cast<'a, T: bytemuck::Pod>(bytes: &'a [u8], what: &str) -> Result<&'a [T], KernelError> {
    bytemuck::try_cast_slice(bytes).map_err(|error| KernelError::Cast { what: what.to_string(), error })
}

fn cast_mut<'a, T: bytemuck::Pod>(bytes: &'a mut [u8], what: &str) -> Result<&'a mut [T], KernelError> {
    bytemuck::try_cast_slice_mut(bytes).map_err(|error| KernelError::Cast { what: what.to_string(), error })
}

impl<'a> Args<'a, '_> {
    /// All operands, for threads to look at.
    pub fn inputs(&self) -> Inputs<'a, '_> {
        Inputs { call: self.call, places: self.places, views: self.views }
    }

    /// Operand `at`, or `None` where it lies in the memory of a result.
    pub fn maybe(&self, at: usize) -> Result<Option<&'a [f32]>, KernelError> {
        self.inputs().maybe(at)
    }

    /// Operand `at`.
    pub fn read(&self, at: usize) -> Result<&'a [f32], KernelError> {
        self.inputs().read(at)
    }

    /// A batch whose first part is operand `first`, or `None` where it lies in the memory of results.
    pub fn maybe_samples(&self, first: usize) -> Result<Option<Samples<'a>>, KernelError> {
        let mut parts: [&[f32]; MOST] = [&[]; MOST];
        let mut absent = 0;
        for (part, to) in parts.iter_mut().enumerate().take(self.call.parts) {
            match self.maybe(first + part)? {
                Some(numbers) => *to = numbers,
                None => absent += 1,
            }
        }
        let shape = self.call.inputs[first].shape;
        let (step, size) = (shape.dim(0) as usize, shape.elements() / shape.dim(0).max(1));
        match absent {
            0 => Ok(Some(Samples::new(parts.into_iter(), step, size as usize))),
            all if all == self.call.parts => Ok(None),
            _ => Err(KernelError::BatchMixed { first }),
        }
    }

    /// A batch whose first part is operand `first`.
    pub fn samples(&self, first: usize) -> Result<Samples<'a>, KernelError> {
        self.maybe_samples(first)?.ok_or(KernelError::BatchOverwritten { first })
    }

    /// Operand `at`, where there is one.
    pub fn optional(&self, at: usize) -> Result<Option<&'a [f32]>, KernelError> {
        if at < self.call.inputs.len() { self.read(at).map(Some) } else { Ok(None) }
    }

    /// Operand `at` as whole numbers.
    pub fn ids(&self, at: usize) -> Result<Ids<'a>, KernelError> {
        let form = self.call.inputs[at];
        let View::Read(bytes) = self.views[self.places.inputs[at]] else {
            return Err(KernelError::Overwritten { at });
        };
        match form.dtype {
            DType::I32 => Ok(Ids::Short(&cast(bytes, "ids")?[form.range()])),
            DType::I64 => Ok(Ids::Long(&cast(bytes, "ids")?[form.range()])),
            found => Err(KernelError::Operand { at, found, wanted: "whole numbers" }),
        }
    }

    /// Result `at`; once only.
    pub fn write(&mut self, at: usize) -> Result<&'a mut [f32], KernelError> {
        let form = self.call.outputs[at];
        if form.dtype != DType::F32 {
            return Err(KernelError::Result { at, found: form.dtype });
        }
        match &mut self.views[self.places.outputs[at]] {
            View::Write(bytes) => Ok(&mut cast_mut(std::mem::take(bytes), "result")?[form.range()]),
            View::Read(_) => Err(KernelError::ReadOnly { at }),
        }
    }

    /// Result `at`, where there is one.
    pub fn write_optional(&mut self, at: usize) -> Result<Option<&'a mut [f32]>, KernelError> {
        if at < self.call.outputs.len() { self.write(at).map(Some) } else { Ok(None) }
    }

    /// All scratch memory; once only.
    pub fn scratch(&mut self) -> &'a mut [f32] {
        std::mem::take(&mut self.scratch)
    }
}
