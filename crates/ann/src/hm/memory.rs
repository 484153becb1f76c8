//! Memory by the formulas of section 3.3.4: how many nodes level 1 may have, and what any number of vectors takes.
//!
//! ```text
//! fast = Σ (Ni · Mi) · bytes of a link + N1 · bytes of a vector        i from 1 up
//! slow = (N0 · M0) · bytes of a link + (N0 − N1) · bytes of a vector
//! ```
//!
//! M0 and M1 are 2M, all above M, and every level above 1 has one in M of the nodes below.

use tiercel_core::Bytes;

use crate::index::Spec;

/// The bytes of a link.
const LINK: f64 = 4.0;

/// What the migration space takes (section 3.3.2), and every search's note of the nodes that it has seen: four bytes a node here, for
/// each of four searches at a time. The chapter does not say the latter; so much leads to both of its rates of promotion.
const MIGRATION: f64 = (2u64 << 30) as f64;
const SEEN: f64 = 4.0 * 4.0;

/// What an index of HM-ANN takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// Nodes on level 1, as a share of all.
    pub promoted: f64,
    /// Bytes in fast memory: levels 1 and up.
    pub fast: Bytes,
    /// Bytes in slow memory: level 0.
    pub slow: Bytes,
}

fn vector(spec: &Spec) -> f64 {
    (spec.dim * spec.dtype.size()) as f64
}

/// The bytes of fast memory that a promoted node takes: its vector, 2M links, and its share of the levels above.
pub(crate) fn promoted_bytes(spec: &Spec) -> f64 {
    let m = spec.m as f64;
    // One in M has M links more, one in M of those again, and so on.
    let above = m / (m - 1.0) * LINK;
    2.0 * m * LINK + above + vector(spec)
}

impl Memory {
    /// HM-ANN with such a share of nodes on level 1.
    pub fn of(spec: &Spec, vectors: u64, promoted: f64) -> Memory {
        let (n, n1) = (vectors as f64, vectors as f64 * promoted);
        let slow = n * 2.0 * spec.m as f64 * LINK + (n - n1) * vector(spec);
        Memory { promoted, fast: Bytes((n1 * promoted_bytes(spec)) as u64), slow: Bytes(slow as u64) }
    }

    /// HM-ANN with as many nodes on level 1 as so much fast memory has room for beside the migration space and searches.
    pub fn within(spec: &Spec, vectors: u64, fast: Bytes) -> Memory {
        let room = (fast.0 as f64 - MIGRATION - SEEN * vectors as f64).max(0.0);
        let most = room / promoted_bytes(spec) / (vectors as f64).max(1.0);
        Memory::of(spec, vectors, most.min(1.0))
    }

    /// Both together.
    pub fn all(&self) -> Bytes {
        Bytes(self.fast.0 + self.slow.0)
    }

    /// HNSW: vectors, 2M links on level 0, M links for one in M on the level above, and so on.
    pub fn of_hnsw(spec: &Spec, vectors: u64) -> Bytes {
        let m = spec.m as f64;
        Bytes((vectors as f64 * (vector(spec) + 2.0 * m * LINK + m / (m - 1.0) * LINK)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::{Dtype, Metric};

    /// Table 3.1: a billion vectors of 128 bytes and of 384, M 48; the chapter's GB are powers of two.
    #[test]
    fn sizes_are_those_of_the_chapter() {
        let gib = |bytes: Bytes| bytes.0 as f64 / (1u64 << 30) as f64;
        let near = |ours: f64, paper: f64| assert!((ours / paper - 1.0).abs() < 0.02, "{ours} {paper}");
        for (dim, dtype, rate, hnsw, all, slow) in
            [(128, Dtype::U8, 0.16, 475.0, 536.0, 462.0), (96, Dtype::F32, 0.11, 723.0, 756.0, 681.0)]
        {
            let spec = Spec { m: 48, ..Spec::new(dim, Metric::L2, dtype) };
            let memory = Memory::of(&spec, 1_000_000_000, rate);
            near(gib(Memory::of_hnsw(&spec, 1_000_000_000)), hnsw);
            near(gib(memory.all()), all);
            near(gib(memory.slow), slow);
            let within = Memory::within(&spec, 1_000_000_000, Bytes(96 << 30));
            assert!((within.promoted - rate).abs() < 0.01, "{}", within.promoted);
        }
        assert_eq!(Memory::within(&Spec::new(4, Metric::L2, Dtype::U8), 1000, Bytes(1)).promoted, 0.0);
    }
}
