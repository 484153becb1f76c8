//! Layout: offsets for buffers that live for a while, so that no two share a byte at the same moment.
//!
//! A planner that counts live bytes assumes that they can be packed; AutoTM (section 4.2) solves its problem again where
//! they cannot. The closer a packing comes to the peak of live bytes, the more rarely that happens.
//!
//! [`pack`] goes from quick to thorough and stops as soon as the capacity is met, or the gap asked for. [`verify`] holds a
//! packing against its buffers and shares no code with what packs them; [`pack`] calls it on everything that it returns.
//! [`table`] reads and writes the files of the MiniMalloc benchmark.
//!
//! ```
//! use tiercel_core::Bytes;
//! use tiercel_plan::Effort;
//! use tiercel_plan::layout::{Buffer, pack, verify};
//!
//! let buffers = [
//!     Buffer::new(0, 10, Bytes::mib(4)),
//!     Buffer::new(0, 4, Bytes::mib(2)).aligned(Bytes::kib(4)),
//!     Buffer::new(3, 8, Bytes::mib(1)),
//!     Buffer::new(4, 10, Bytes::mib(2)),
//! ];
//! let packing = pack(&buffers, Some(Bytes::mib(7)), &Effort::default())?;
//! assert_eq!(packing.peak, Bytes::mib(7));
//! assert_eq!(packing.lower_bound, Bytes::mib(7));
//! assert!(verify(&buffers, &packing.offsets, Some(Bytes::mib(7))).is_ok());
//! # Ok::<(), tiercel_plan::layout::LayoutError>(())
//! ```

mod abreast;
mod bedrock;
mod clock;
mod eject;
mod error;
mod exact;
mod fit;
mod levels;
mod meeting;
mod portfolio;
mod problem;
mod repair;
mod skyline;
mod solve;
pub mod table;
mod verify;

use std::time::Duration;

use tiercel_core::Bytes;

use crate::search::solve::Effort;
use bedrock::Bedrock;
use clock::Clock;
use problem::{Problem, Raw};
use solve::{Solver, gcd};

pub use error::{Fault, LayoutError, Shortfall};
pub use verify::verify;

/// Bytes that live for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first moment of its life.
    pub lower: u64,
    /// The moment after its last.
    pub upper: u64,
    /// How many bytes it takes.
    pub size: Bytes,
    /// What its offset must be a multiple of; any number from 1 on.
    pub alignment: Bytes,
}

impl Buffer {
    /// A buffer that may lie anywhere, and lives from `lower` up to but not at `upper`.
    pub fn new(lower: u64, upper: u64, size: Bytes) -> Buffer {
        Buffer { lower, upper, size, alignment: Bytes(1) }
    }

    /// The same, at multiples of `alignment` only.
    pub fn aligned(self, alignment: Bytes) -> Buffer {
        Buffer { alignment, ..self }
    }
}

/// Where each buffer lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    /// One offset a buffer, in their order.
    pub offsets: Vec<Bytes>,
    /// The highest end of a buffer.
    pub peak: Bytes,
    /// The most bytes alive at a moment, alignment counted: no packing has a lower peak.
    pub lower_bound: Bytes,
    /// What is proven beyond that: no packing has a peak below this.
    pub proven: Bytes,
    /// How long it took.
    pub time: Duration,
}

impl Packing {
    /// How far the peak is above the lower bound, as a share of it.
    pub fn gap(&self) -> f64 {
        (self.peak.0 - self.lower_bound.0) as f64 / self.lower_bound.0.max(1) as f64
    }

    /// Whether no packing has a lower peak.
    pub fn is_optimal(&self) -> bool {
        self.peak <= self.proven
    }
}

/// How far a packing has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The lowest peak so far.
    pub peak: Bytes,
    /// What no packing can undercut, as far as is known.
    pub proven: Bytes,
    /// Time since the start.
    pub time: Duration,
}

/// Packs buffers within a capacity; without one, as low as the effort allows.
///
/// With a capacity, any packing within it will do, and the effort's gap means nothing. Without, the search ends when the
/// peak is within the gap of the lower bound, or proven to be the lowest. The result depends on the seed alone unless the
/// time is over first.
///
/// What it costs, with n buffers: each of the first packings takes about n·√n steps at worst and n·log n where lifetimes
/// nest or are short, however many buffers live at once (plans of real networks with 300,000 buffers: well under a
/// second), and for most plans the first one or two suffice. Only then the search begins; it takes all the time that it is
/// given unless it succeeds. The first packing is always finished, even when the time is over. Memory is about
/// 200 bytes a buffer.
///
/// # Errors
/// [`LayoutError::DoesNotFit`] if no packing was found within the capacity, with the best that was found; else what is
/// wrong with the buffers.
pub fn pack(buffers: &[Buffer], capacity: Option<Bytes>, effort: &Effort) -> Result<Packing, LayoutError> {
    pack_watched(buffers, capacity, effort, &mut |_| {})
}

/// Packs buffers, and calls `watch` from time to time.
///
/// # Errors
/// Those of [`pack`].
pub fn pack_watched(
    buffers: &[Buffer],
    capacity: Option<Bytes>,
    effort: &Effort,
    watch: &mut dyn FnMut(Progress),
) -> Result<Packing, LayoutError> {
    let clock = Clock::new(effort);
    check(buffers)?;
    let unit = unit(buffers);
    let raw: Vec<Raw> = buffers.iter().map(|buffer| scaled(buffer, unit)).collect();
    let bedrock = Bedrock::new(&raw);
    let bytes = |above: u64| Bytes((bedrock.height + above) * unit);
    let bound = solve::bound(&bedrock.above);
    let goal = match capacity {
        Some(capacity) => (capacity.0 / unit).saturating_sub(bedrock.height),
        None => bound + ((bedrock.height + bound) as f64 * effort.gap.clamp(0.0, 1e6)) as u64,
    };
    let mut tell = |peak: u64, proven: u64| {
        watch(Progress { peak: bytes(peak), proven: bytes(proven), time: clock.elapsed() });
    };
    let mut solver = Solver::new(&bedrock.above, bound, goal, effort.seed, &clock, &mut tell);
    if capacity.is_none() || goal >= bound {
        solver.search();
    }
    let packing = Packing {
        offsets: bedrock.offsets(&solver.best).into_iter().map(|offset| Bytes(offset * unit)).collect(),
        peak: bytes(solver.peak),
        lower_bound: bytes(bound),
        proven: bytes(solver.proven),
        time: clock.elapsed(),
    };
    verify(buffers, &packing.offsets, Some(packing.peak)).map_err(LayoutError::Unsound)?;
    match capacity {
        Some(capacity) if packing.peak > capacity => {
            Err(LayoutError::DoesNotFit(Box::new(Shortfall::new(buffers, packing, capacity))))
        }
        _ => Ok(packing),
    }
}

/// Packs buffers within a capacity around others that lie already, each with its offset.
///
/// # Errors
/// Those of [`pack`].
pub(crate) fn pack_around(
    buffers: &[Buffer],
    lying: &[(Buffer, Bytes)],
    capacity: Bytes,
    effort: &Effort,
) -> Result<Vec<Bytes>, LayoutError> {
    let clock = Clock::new(effort);
    check(buffers)?;
    let ends: Vec<Buffer> =
        lying.iter().filter(|(_, at)| at.0 > 0).map(|(_, at)| Buffer::new(0, 1, *at)).collect();
    let all: Vec<Buffer> = buffers.iter().chain(lying.iter().map(|(b, _)| b)).chain(&ends).copied().collect();
    let unit = unit(&all);
    let raw: Vec<Raw> = buffers.iter().map(|buffer| scaled(buffer, unit)).collect();
    let lying: Vec<(Raw, u64)> =
        lying.iter().map(|(buffer, at)| (scaled(buffer, unit), at.0 / unit)).collect();
    let problem = Problem::new(&raw, &lying);
    let (bound, goal) = (solve::bound(&problem), capacity.0 / unit);
    let mut watch = |_, _| {};
    let mut solver = Solver::new(&problem, bound, goal, effort.seed, &clock, &mut watch);
    if goal >= bound {
        solver.search();
    }
    let offsets: Vec<Bytes> = solver.best.iter().map(|offset| Bytes(offset * unit)).collect();
    match Bytes(solver.peak * unit) {
        peak if peak <= capacity => Ok(offsets),
        peak => {
            let (lower_bound, proven) = (Bytes(bound * unit), Bytes(solver.proven * unit));
            let packing = Packing { offsets, peak, lower_bound, proven, time: clock.elapsed() };
            Err(LayoutError::DoesNotFit(Box::new(Shortfall::new(buffers, packing, capacity))))
        }
    }
}

/// Whether the buffers make sense.
fn check(buffers: &[Buffer]) -> Result<(), LayoutError> {
    let mut total = 0u64;
    for (at, buffer) in buffers.iter().enumerate() {
        let (lower, upper) = (buffer.lower, buffer.upper);
        if lower >= upper {
            return Err(LayoutError::Lifetime { buffer: at, lower, upper });
        }
        if buffer.size.0 == 0 {
            return Err(LayoutError::Empty { buffer: at });
        }
        if buffer.alignment.0 == 0 {
            return Err(LayoutError::Alignment { buffer: at });
        }
        let most = buffer.size.0.checked_add(buffer.alignment.0);
        total = most.and_then(|most| total.checked_add(most)).unwrap_or(u64::MAX);
        if total > 1 << 62 {
            return Err(LayoutError::TooLarge);
        }
    }
    Ok(())
}

/// What all sizes and alignments are multiples of. An alignment of one asks for nothing.
fn unit(buffers: &[Buffer]) -> u64 {
    let figures = buffers.iter().flat_map(|buffer| {
        let alignment = Some(buffer.alignment.0).filter(|alignment| *alignment > 1);
        [Some(buffer.size.0), alignment]
    });
    figures.flatten().fold(0, gcd).max(1)
}

fn scaled(buffer: &Buffer, unit: u64) -> Raw {
    let grain = (buffer.alignment.0 / unit).max(1);
    Raw { lower: buffer.lower, upper: buffer.upper, size: buffer.size.0 / unit, grain }
}
