//! The first page of an index file, and how vectors are laid out on pages.

use std::path::Path;

use crate::element::{Dtype, Metric};
use crate::error::AnnError;
use crate::index::Spec;

/// What a file begins with.
const MAGIC: &[u8; 8] = b"TIERCEL\x01";

/// What of the format this writes; it reads this and the first, which has no labels by themselves.
const VERSION: u32 = 2;

/// The bytes of a page.
pub(crate) const PAGE: usize = 4096;

/// What of a page is not its checksum.
pub(crate) const ROOM: usize = PAGE - 4;

/// The most sections that fit.
const SECTIONS: usize = 16;

/// What a section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// How many links each node has on level 0.
    Counts,
    /// These links.
    Links,
    /// The lists above level 0.
    Towers,
    /// What all codes share.
    Coder,
    /// The codes.
    Codes,
    /// Which settings reach which recall.
    Settings,
    /// Where vectors are that are not in fast memory.
    Slow,
    /// The pages of vectors and labels.
    Pages,
    /// All labels by themselves: for filters, which want no vectors.
    Labels,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::Counts,
        Kind::Links,
        Kind::Towers,
        Kind::Coder,
        Kind::Codes,
        Kind::Settings,
        Kind::Pages,
        Kind::Slow,
        Kind::Labels,
    ];

    /// What it is called.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Counts => "counts",
            Kind::Links => "links",
            Kind::Towers => "towers",
            Kind::Coder => "coder",
            Kind::Codes => "codes",
            Kind::Settings => "settings",
            Kind::Slow => "slow",
            Kind::Pages => "pages",
            Kind::Labels => "labels",
        }
    }
}

/// A stretch of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Section {
    pub(crate) kind: Kind,
    pub(crate) sum: u32,
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// What the first page says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) spec: Spec,
    pub(crate) nodes: u64,
    pub(crate) entry: u32,
    pub(crate) arrivals: u64,
    pub(crate) ef: u32,
    /// The fast memory that searches have; 0 for all.
    pub(crate) fast: u64,
    pub(crate) sections: Vec<Section>,
}

impl Head {
    /// The first page.
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut page = Vec::with_capacity(PAGE);
        page.extend(MAGIC);
        page.extend(VERSION.to_le_bytes());
        let place = |found: Option<usize>| found.map_or(u32::MAX, |at| at as u32);
        let Spec { dim, metric, dtype, m, ef_construction, seed } = self.spec;
        let words = [
            dim as u32,
            place(Metric::ALL.iter().position(|other| *other == metric)),
            place(Dtype::ALL.iter().position(|other| *other == dtype)),
            m as u32,
            ef_construction as u32,
            self.entry,
            self.ef,
            self.sections.len() as u32,
        ];
        words.iter().for_each(|word| page.extend(word.to_le_bytes()));
        [seed, self.nodes, self.arrivals, self.fast].iter().for_each(|long| page.extend(long.to_le_bytes()));
        for section in &self.sections {
            page.extend(place(Kind::ALL.iter().position(|kind| *kind == section.kind)).to_le_bytes());
            page.extend(section.sum.to_le_bytes());
            page.extend(section.start.to_le_bytes());
            page.extend(section.len.to_le_bytes());
        }
        page.resize(ROOM, 0);
        page.extend(crc32fast::hash(&page).to_le_bytes());
        page
    }

    /// Reads the first page of a file that is so long.
    pub(crate) fn read(path: &Path, page: &[u8], len: u64) -> Result<Head, AnnError> {
        let wrong = |what: &str| AnnError::damaged(path, what);
        if page.len() < PAGE || page[..8] != *MAGIC {
            return Err(wrong("this is no index of Tiercel"));
        }
        let word = |at: usize| u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if crc32fast::hash(&page[..ROOM]) != word(ROOM) {
            return Err(wrong("its first page is damaged"));
        }
        if !(1..=VERSION).contains(&word(8)) {
            return Err(wrong(&format!(
                "its format is version {}, and this reads versions 1 to {VERSION}",
                word(8)
            )));
        }
        let strange = || wrong("its first page makes no sense");
        let spec = Spec {
            dim: word(12) as usize,
            metric: *Metric::ALL.get(word(16) as usize).ok_or_else(strange)?,
            dtype: *Dtype::ALL.get(word(20) as usize).ok_or_else(strange)?,
            m: word(24) as usize,
            ef_construction: word(28) as usize,
            seed: long(44),
        };
        spec.check()?;
        let (nodes, count) = (long(52), word(40) as usize);
        if nodes > crate::graph::MOST as u64 || count > SECTIONS || u64::from(word(32)) >= nodes.max(1) {
            return Err(strange());
        }
        let mut sections = Vec::new();
        for at in (0..count).map(|section| 76 + section * 24) {
            let kind = *Kind::ALL.get(word(at) as usize).ok_or_else(strange)?;
            let section = Section { kind, sum: word(at + 4), start: long(at + 8), len: long(at + 16) };
            match section.start.checked_add(section.len) {
                Some(end) if end <= len => sections.push(section),
                _ => return Err(wrong(&format!("it ends at {len} bytes, before its {kind:?} do"))),
            }
        }
        Ok(Head { spec, nodes, entry: word(32), arrivals: long(60), ef: word(36), fast: long(68), sections })
    }

    /// A section that must be there.
    pub(crate) fn section(&self, path: &Path, kind: Kind) -> Result<Section, AnnError> {
        let found = self.sections.iter().find(|section| section.kind == kind).copied();
        found.ok_or_else(|| AnnError::damaged(path, format!("it has no {kind:?}")))
    }

    /// A section that may be missing.
    pub(crate) fn try_section(&self, kind: Kind) -> Option<Section> {
        self.sections.iter().find(|section| section.kind == kind).copied()
    }

    /// How vectors lie on pages.
    pub(crate) fn shape(&self) -> Shape {
        Shape::of(&self.spec)
    }
}

/// How vectors with their labels lie on pages: several on one, or one on several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The bytes of a vector.
    pub(crate) vector: usize,
    /// Vectors on a page, at least one.
    pub(crate) each: usize,
    /// Pages of a vector, at least one.
    pub(crate) pages: usize,
}

impl Shape {
    /// The shape for an index.
    pub(crate) fn of(spec: &Spec) -> Shape {
        let vector = spec.dim * spec.dtype.size();
        let record = vector + 8;
        Shape { vector, each: (ROOM / record).max(1), pages: record.div_ceil(ROOM) }
    }

    /// The first page of a vector.
    pub(crate) fn page(&self, node: u32) -> u64 {
        node as u64 / self.each as u64 * self.pages as u64
    }

    /// How many pages so many vectors take.
    pub(crate) fn total(&self, nodes: u64) -> u64 {
        nodes.div_ceil(self.each as u64) * self.pages as u64
    }

    /// Takes a vector's bytes and its label out of its pages, which lie one after the other.
    pub(crate) fn take(&self, node: u32, pages: &[u8], vector: &mut [u8]) -> u64 {
        let mut label = [0; 8];
        let start = node as usize % self.each * (self.vector + 8);
        self.pieces(start, pages, &mut vector[..self.vector]);
        self.pieces(start + self.vector, pages, &mut label);
        u64::from_le_bytes(label)
    }

    fn pieces(&self, start: usize, pages: &[u8], mut into: &mut [u8]) {
        let mut at = start;
        while !into.is_empty() {
            let (page, offset) = (at / ROOM, at % ROOM);
            let piece = (ROOM - offset).min(into.len());
            let (now, rest) = into.split_at_mut(piece);
            now.copy_from_slice(&pages[page * PAGE + offset..][..piece]);
            into = rest;
            at += piece;
        }
    }
}

/// The checksum of a page at its place.
pub(crate) fn page_sum(page: u64, room: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&page.to_le_bytes());
    sum.update(room);
    sum.finalize()
}
