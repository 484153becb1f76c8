//! What can be wrong with buffers, with a packing, and with a wish for one.

use std::fmt;

use thiserror::Error;
use tiercel_core::Bytes;

use super::{Buffer, Packing};

/// Why there is no packing. Buffers are named by their position.
#[derive(Debug, Error)]
pub enum LayoutError {
    /// A lifetime that is no lifetime.
    #[error("buffer {buffer} lives from {lower} to {upper}: the upper end must be the greater")]
    Lifetime {
        /// The buffer.
        buffer: usize,
        /// Its first moment.
        lower: u64,
        /// The moment after its last.
        upper: u64,
    },
    /// A buffer of no bytes.
    #[error("buffer {buffer} has no bytes")]
    Empty {
        /// The buffer.
        buffer: usize,
    },
    /// An alignment of zero.
    #[error("buffer {buffer} has an alignment of zero; one is the least")]
    Alignment {
        /// The buffer.
        buffer: usize,
    },
    /// More bytes than can be counted.
    #[error("the buffers add up to more bytes than 62 bits count")]
    TooLarge,
    /// No packing was found within the capacity.
    #[error("{0}")]
    DoesNotFit(Box<Shortfall>),
    /// A packing that its verification refuses: a mistake of the packer.
    #[error("the packing is wrong, which is a mistake of the packer: {0}")]
    Unsound(Fault),
}

/// How far a packing came that does not fit.
#[derive(Clone, Debug)]
pub struct Shortfall {
    /// What was wanted.
    pub capacity: Bytes,
    /// The best packing that was found.
    pub best: Packing,
    /// A moment that is the most crowded of those at which the peak is reached.
    pub moment: u64,
    /// The buffers alive at that moment, largest first.
    pub alive: Vec<usize>,
}

impl Shortfall {
    pub(super) fn new(buffers: &[Buffer], best: Packing, capacity: Bytes) -> Shortfall {
        let top = (0..buffers.len()).max_by_key(|at| best.offsets[*at].0 + buffers[*at].size.0);
        let moment = top.map_or(0, |at| crowded(buffers, buffers[at].lower, buffers[at].upper));
        let alive = |at: &usize| buffers[*at].lower <= moment && moment < buffers[*at].upper;
        let mut alive: Vec<usize> = (0..buffers.len()).filter(alive).collect();
        alive.sort_by_key(|at| std::cmp::Reverse(buffers[*at].size));
        Shortfall { capacity, best, moment, alive }
    }

    /// Whether it is proven that nothing fits.
    pub fn is_proven(&self) -> bool {
        self.best.proven > self.capacity
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Packing { peak, lower_bound, proven, .. } = self.best;
        write!(f, "the buffers do not fit into {} bytes: ", self.capacity.0)?;
        write!(f, "the best packing found takes {} bytes, ", peak.0)?;
        if lower_bound > self.capacity {
            return write!(f, "and {} are alive at once", lower_bound.0);
        }
        write!(f, "{} are alive at once, ", lower_bound.0)?;
        if self.is_proven() {
            write!(f, "and it is proven that no packing takes less than {}", proven.0)
        } else {
            write!(f, "and it is not proven that no packing fits")
        }
    }
}

/// The moment from `lower` up to `upper` at which most bytes live.
fn crowded(buffers: &[Buffer], lower: u64, upper: u64) -> u64 {
    let mut events = Vec::new();
    for buffer in buffers.iter().filter(|buffer| buffer.lower < upper && lower < buffer.upper) {
        events.push((buffer.lower.max(lower), true, buffer.size.0));
        events.push((buffer.upper.min(upper), false, buffer.size.0));
    }
    events.sort_unstable();
    let (mut live, mut most, mut moment) = (0, 0, lower);
    for (at, birth, size) in events {
        if birth {
            live += size;
            if live > most {
                (most, moment) = (live, at);
            }
        } else {
            live -= size;
        }
    }
    moment
}

/// What is wrong with a packing. Buffers are named by their position.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// Not one offset a buffer.
    #[error("{buffers} buffers have {offsets} offsets")]
    Count {
        /// How many buffers there are.
        buffers: usize,
        /// How many offsets there are.
        offsets: usize,
    },
    /// A buffer that ends above the capacity.
    #[error("buffer {buffer}, {} bytes at offset {}, ends beyond the capacity of {} bytes", size.0, offset.0, capacity.0)]
    Beyond {
        /// The buffer.
        buffer: usize,
        /// Where it lies.
        offset: Bytes,
        /// Its size.
        size: Bytes,
        /// What there is.
        capacity: Bytes,
    },
    /// An offset that is no multiple of the alignment.
    #[error("buffer {buffer} lies at {}, which is no multiple of its alignment {}", offset.0, alignment.0)]
    Misaligned {
        /// The buffer.
        buffer: usize,
        /// Where it lies.
        offset: Bytes,
        /// What that should be a multiple of.
        alignment: Bytes,
    },
    /// Two buffers that share a byte at some moment.
    #[error("buffer {a} at {} and buffer {b} at {} overlap at moment {moment}", a_offset.0, b_offset.0)]
    Overlap {
        /// The one.
        a: usize,
        /// Where it lies.
        a_offset: Bytes,
        /// The other.
        b: usize,
        /// Where it lies.
        b_offset: Bytes,
        /// The first moment at which both live.
        moment: u64,
    },
}
