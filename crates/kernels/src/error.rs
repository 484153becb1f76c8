//! Why a kernel cannot run: what it was given, and what it takes.
//!
//! Whoever plays kernels as parts of a world hears it as text, with the kernel's name in front.

use bytemuck::PodCastError;
use tiercel_core::Bytes;
use tiercel_workload::graph::DType;

use crate::simd::UnknownLevel;

/// Why a kernel, or a library of them, cannot do what was asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum KernelError {
    /// The environment asks for vectors that are none.
    #[error(transparent)]
    Vectors(#[from] UnknownLevel),
    /// The system starts no more threads.
    #[error("the system starts {there} threads of {wanted}")]
    Threads {
        /// How many are to compute.
        wanted: usize,
        /// How many there are.
        there: usize,
    },
    /// An operand is in another number format than the kernel computes in.
    #[error("operand {at} is {} and must be {wanted}", found.name())]
    Operand {
        /// Which operand.
        at: usize,
        /// Its format.
        found: DType,
        /// What it must be.
        wanted: &'static str,
    },
    /// A result is in another number format than the kernel computes in.
    #[error("result {at} is {} and must be f32", found.name())]
    Result {
        /// Which result.
        at: usize,
        /// Its format.
        found: DType,
    },
    /// An operand lies where a result will be, and is still needed then.
    #[error("operand {at} is overwritten by a result, which it must not be")]
    Overwritten {
        /// Which operand.
        at: usize,
    },
    /// The same of a batch in parts.
    #[error("the batch from operand {first} on is overwritten, which it must not be")]
    BatchOverwritten {
        /// Its first operand.
        first: usize,
    },
    /// A batch of which some parts lie where results will be and some do not.
    #[error("some parts of the batch from operand {first} on are overwritten by results")]
    BatchMixed {
        /// Its first operand.
        first: usize,
    },
    /// A result lies where nothing may be written.
    #[error("result {at} may only be read")]
    ReadOnly {
        /// Which result.
        at: usize,
    },
    /// A number that should name a row or a class names none.
    #[error("id {id} at position {at} is not below {below}")]
    Id {
        /// The number.
        id: i64,
        /// Where it stands.
        at: usize,
        /// How many rows or classes there are.
        below: usize,
    },
    /// More rows, or more numbers that name rows, than can be counted.
    #[error("{ids} ids of {rows} rows; 32 bits count them")]
    Rows {
        /// The numbers.
        ids: usize,
        /// The rows.
        rows: usize,
    },
    /// Bytes that are no whole numbers of the kind, or lie where such numbers must not.
    #[error("{what}: {error}")]
    Cast {
        /// Whose bytes.
        what: String,
        /// Why not.
        error: PodCastError,
    },
    /// A new order of axes that leaves one out.
    #[error("the order lacks the last axis")]
    Axis,
    /// An operand that is used again and again lies where the result will be.
    #[error("a stretched operand cannot lie in the result")]
    Stretched,
    /// The trace has no tensor for an operand of a kernel.
    #[error("{kernel} lacks a tensor")]
    Tensor {
        /// The kernel.
        kernel: String,
    },
    /// The trace has less scratch memory for a kernel than it takes.
    #[error("{kernel} needs {need} of workspace with {threads} threads; {there} there")]
    Workspace {
        /// The kernel.
        kernel: String,
        /// What it takes.
        need: Bytes,
        /// What the trace has.
        there: Bytes,
        /// With so many threads.
        threads: usize,
    },
    /// A tensor that the program does not know.
    #[error("the program has no value `{0}`")]
    Value(String),
    /// A kernel that the program does not have.
    #[error("the program has no kernel {0}")]
    Kernel(usize),
    /// A kernel of a program failed.
    #[error("{kernel}: {why}")]
    Failed {
        /// The kernel.
        kernel: String,
        /// Why.
        why: Box<KernelError>,
    },
}

impl KernelError {
    /// The same, with the kernel in which it happened.
    pub(crate) fn of(self, kernel: &str) -> KernelError {
        KernelError::Failed { kernel: kernel.to_string(), why: Box::new(self) }
    }
}

/// For worlds, which tell of anything that goes wrong as text.
impl From<KernelError> for String {
    fn from(error: KernelError) -> String {
        error.to_string()
    }
}
