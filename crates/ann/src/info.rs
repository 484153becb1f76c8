//! What an index file says of itself, without reading its vectors.

use std::path::Path;

use tiercel_core::Bytes;

use crate::error::AnnError;
use crate::file::{Kind, Opened, PAGE, Shape};
use crate::index::Spec;
use crate::links::width;
use crate::tier::{Slow, whole};

/// What an index file has in it.
#[derive(Clone, Debug)]
pub struct Info {
    /// What it was made for.
    pub spec: Spec,
    /// How many vectors.
    pub vectors: u64,
    /// How wide beams are that say nothing of it.
    pub ef: usize,
    /// The bytes of the file.
    pub file: Bytes,
    /// What it takes with everything in memory: vectors, links and labels.
    pub memory: Bytes,
    /// The fast memory that searches have; all where absent.
    pub fast: Option<Bytes>,
    /// Where other vectors are.
    pub slow: Slow,
    /// Links a node on level 0, on average.
    pub links: f64,
    /// Bits a number of its codes; none where it has none.
    pub code_bits: Option<u32>,
    /// Its sections by name.
    pub sections: Vec<(&'static str, Bytes)>,
}

/// What so many vectors of a kind would take: calculated, because few machines hold a billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Vectors, links and labels, with everything in memory.
    pub whole: Bytes,
    /// Codes of all vectors and all links among them: the fast memory of a search, of which each thread takes a byte and an eighth a
    /// vector more.
    pub codes: Bytes,
    /// Pages with vectors and labels, codes and links: the file.
    pub file: Bytes,
}

impl Needs {
    /// For vectors with so many links each on level 0, and codes of so many bits a number.
    pub fn of(spec: &Spec, vectors: u64, links: f64, bits: u32) -> Needs {
        let nodes = vectors as usize;
        // One node in m has a tower, of some m links.
        let towers = nodes / spec.m * (spec.m * 4 + 100);
        let codes = nodes * crate::codes::stride(spec.dim, bits) + crate::codes::shared(spec.dim, nodes);
        let lists = crate::links::packed(nodes, (links * vectors as f64) as u64);
        let shape = Shape::of(spec);
        let pages = nodes.div_ceil(shape.each.max(1)) * shape.pages * PAGE;
        let fast = (codes + lists + towers) as u64;
        Needs { whole: Bytes(whole(spec, vectors)), codes: Bytes(fast), file: Bytes(fast + pages as u64) }
    }
}

impl Info {
    /// Reads the first page of an index file.
    pub fn read(path: &Path) -> Result<Info, AnnError> {
        let opened = Opened::open(path)?;
        let head = &opened.head;
        let sections: Vec<(&'static str, Bytes)> =
            head.sections.iter().map(|section| (section.kind.name(), Bytes(section.len))).collect();
        let of =
            |name: &str| sections.iter().find(|(other, _)| *other == name).map_or(0, |(_, bytes)| bytes.0);
        let nodes = head.nodes.max(1);
        let stride = of(Kind::Codes.name()) / nodes;
        let same = |bits: &u32| crate::codes::stride(head.spec.dim, *bits) as u64 == stride;
        Ok(Info {
            spec: head.spec,
            vectors: head.nodes,
            ef: head.ef as usize,
            file: Bytes(opened.len),
            memory: Bytes(whole(&head.spec, head.nodes)),
            fast: (head.fast > 0).then_some(Bytes(head.fast)),
            slow: opened.slow()?,
            links: (of(Kind::Links.name()) * 8) as f64
                / f64::from(width(opened.nodes()).max(1))
                / nodes as f64,
            code_bits: crate::codes::WIDTHS.into_iter().find(same),
            sections,
        })
    }
}

/// The fast memory that searches of an index file have, all where absent, and where other vectors are.
pub fn memory_of(path: &Path) -> Result<(Option<Bytes>, Slow), AnnError> {
    let info = Info::read(path)?;
    Ok((info.fast, info.slow))
}
