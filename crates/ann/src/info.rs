//! What an index file says of itself, without reading its vectors.

use std::path::Path;

use tiercel_core::Bytes;

use crate::error::AnnError;
use crate::file::Opened;
use crate::index::Spec;
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
    /// Its sections by name.
    pub sections: Vec<(&'static str, Bytes)>,
}

impl Info {
    /// Reads the first page of an index file.
    pub fn read(path: &Path) -> Result<Info, AnnError> {
        let opened = Opened::open(path)?;
        let head = &opened.head;
        Ok(Info {
            spec: head.spec,
            vectors: head.nodes,
            ef: head.ef as usize,
            file: Bytes(opened.len),
            memory: Bytes(whole(&head.spec, head.nodes)),
            fast: (head.fast > 0).then_some(Bytes(head.fast)),
            slow: opened.slow()?,
            sections: head.sections.iter().map(|section| (section.kind.name(), Bytes(section.len))).collect(),
        })
    }
}

/// The fast memory that searches of an index file have, all where absent, and where other vectors are.
pub fn memory_of(path: &Path) -> Result<(Option<Bytes>, Slow), AnnError> {
    let info = Info::read(path)?;
    Ok((info.fast, info.slow))
}
