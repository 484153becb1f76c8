//! Which objects share pages, what that hides from a profiler, and how to put it right (Sentinel, sections III-B, IV-B).
//!
//! Where memory moves by the page, a page is as hot as all that lies on it. A program that allocates in the order in which
//! it computes puts objects side by side that have nothing in common, so cold objects are taken for hot ones: false
//! sharing. Laid out anew, objects share a page only if they live through just the same layers, the most accessed
//! first, and long-lived ones never share with short-lived ones. What a program allocates before it begins (weights,
//! inputs) cannot be laid out anew and has pages of its own, as has everything that fills at least one.

use std::collections::BTreeMap;

use tiercel_core::Bytes;
use tiercel_workload::lifetimes::{self, Class};
use tiercel_workload::trace::Role;
use tiercel_workload::{Lifetimes, TensorId, Trace};

use crate::accesses::Accesses;

/// What the start of every object is a multiple of.
const GRAIN: Bytes = Bytes(64);

/// When an object is there, in visits of layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Life {
    /// Before the first layer: weights, and what comes from outside.
    Given,
    /// Within one visit of a layer.
    Short {
        /// The visit.
        visit: u32,
    },
    /// From one visit to a later one.
    Long {
        /// The visit that makes it.
        birth: u32,
        /// The visit that uses it last.
        last: u32,
    },
}

/// What a layout needs to know of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Its size.
    pub bytes: Bytes,
    /// How often each of its bytes is accessed in memory.
    pub passes: f64,
    /// When it is there.
    pub life: Life,
}

/// The tensors of a trace as pieces, in the order in which the program allocates them.
pub fn pieces(trace: &Trace, accesses: &Accesses) -> Vec<(TensorId, Piece)> {
    let (all, visits) = (Lifetimes::new(trace), lifetimes::visits(trace));
    let visit = |step: tiercel_core::Step| visits[step.0 as usize];
    let piece = |at: usize| {
        let (id, tensor) = (TensorId(at as u32), &trace.tensors[at]);
        let life = all.of(id)?;
        let birth = if life.class == Class::Persistent { None } else { Some(life.birth) };
        let life = match life.class {
            _ if tensor.role == Role::Input => Life::Given,
            Class::Persistent => Life::Given,
            Class::Short => Life::Short { visit: visit(life.birth) },
            Class::Long => Life::Long { birth: visit(life.birth), last: visit(life.last) },
        };
        Some((birth, id, Piece { bytes: tensor.bytes, passes: accesses.of(id).passes(), life }))
    };
    let mut found: Vec<_> = (0..trace.tensors.len()).filter_map(piece).collect();
    found.sort_by_key(|(birth, id, _)| (*birth, *id));
    found.into_iter().map(|(_, id, piece)| (id, piece)).collect()
}

/// A place for every piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where each piece starts.
    pub offsets: Vec<Bytes>,
    /// Pieces that may share pages have the same number; `None` has pages of its own.
    pub groups: Vec<Option<u32>>,
    /// Where each group starts, and how long it is.
    pub extents: Vec<(Bytes, Bytes)>,
    /// Where the last page ends.
    pub end: Bytes,
}

fn rounded(bytes: Bytes, unit: Bytes) -> Bytes {
    Bytes(bytes.0.max(1).next_multiple_of(unit.0))
}

/// Pieces one behind the other in the order of allocation, each with addresses of its own, so that what is measured is
/// sharing and not reuse.
pub fn as_allocated(pieces: &[Piece]) -> Layout {
    let mut end = Bytes::ZERO;
    let place = |piece: &Piece| {
        let offset = end;
        end += rounded(piece.bytes, GRAIN);
        offset
    };
    let offsets = pieces.iter().map(place).collect();
    Layout { offsets, groups: vec![None; pieces.len()], extents: Vec::new(), end }
}

/// Pieces laid out anew: only small ones that live through just the same layers share pages, most accessed first.
pub fn reorganised(pieces: &[Piece], page: Bytes) -> Layout {
    let mut layout = Layout {
        offsets: vec![Bytes::ZERO; pieces.len()],
        groups: vec![None; pieces.len()],
        extents: Vec::new(),
        end: Bytes::ZERO,
    };
    let mut alike: BTreeMap<Life, Vec<usize>> = BTreeMap::new();
    for (at, piece) in pieces.iter().enumerate() {
        if piece.life == Life::Given || piece.bytes >= page {
            layout.offsets[at] = layout.end;
            layout.end += rounded(piece.bytes, page);
        } else {
            alike.entry(piece.life).or_default().push(at);
        }
    }
    for (group, (_, mut members)) in alike.into_iter().enumerate() {
        members.sort_by(|a, b| pieces[*b].passes.total_cmp(&pieces[*a].passes).then(a.cmp(b)));
        let start = layout.end;
        for at in members {
            (layout.offsets[at], layout.groups[at]) = (layout.end, Some(group as u32));
            layout.end += rounded(pieces[at].bytes, GRAIN);
        }
        layout.end = rounded(layout.end, page);
        layout.extents.push((start, layout.end - start));
    }
    layout
}

/// Objects and pages that are accessed about equally often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// At least so many accesses.
    pub least: u64,
    /// At most so many.
    pub most: u64,
    /// The bytes of objects with so many.
    pub objects: Bytes,
    /// The bytes of pages with so many.
    pub pages: Bytes,
}

/// What a profiler that sees pages makes of a layout, beside what is true of the objects (Observation 3).
#[derive(Clone, Debug, PartialEq)]
pub struct Sharing {
    /// By number of accesses, from few to many.
    pub rows: Vec<Row>,
    /// All pages.
    pub pages: u64,
    /// Pages that hold objects with different lives.
    pub shared: u64,
    /// Bytes of objects on pages that count as more accessed than the objects are: to be taken for hot, and not hot.
    pub mistaken: Bytes,
}

/// The limits between rows: the paper speaks of up to ten accesses and of more than a hundred.
const LIMITS: [u64; 4] = [0, 10, 100, u64::MAX];

/// Compares a layout as pages show it with the objects themselves.
pub fn measure(pieces: &[Piece], layout: &Layout, page: Bytes) -> Sharing {
    let row =
        |pair: &[u64]| Row { least: pair[0] + 1, most: pair[1], objects: Bytes::ZERO, pages: Bytes::ZERO };
    let mut rows: Vec<Row> =
        std::iter::once(Row { least: 0, most: 0, objects: Bytes::ZERO, pages: Bytes::ZERO })
            .chain(LIMITS.windows(2).map(row))
            .collect();
    let find = |rows: &mut Vec<Row>, passes: f64| {
        let passes = passes.ceil() as u64;
        rows.iter().position(|row| passes <= row.most).expect("the last row has no limit")
    };
    let pages = layout.end.0.div_ceil(page.0) as usize;
    let mut hot = vec![0.0_f64; pages];
    let mut lives: Vec<Option<Life>> = vec![None; pages];
    let mut shared = vec![false; pages];
    let span = |at: usize| {
        let start = layout.offsets[at].0;
        start / page.0..(start + pieces[at].bytes.0.max(1)).div_ceil(page.0)
    };
    for (at, piece) in pieces.iter().enumerate() {
        let objects = find(&mut rows, piece.passes);
        rows[objects].objects += piece.bytes;
        for page in span(at) {
            let page = page as usize;
            hot[page] += piece.passes;
            let alone = piece.life == Life::Given;
            shared[page] |= lives[page].is_some_and(|life| alone || life != piece.life);
            lives[page] = Some(piece.life);
        }
    }
    for passes in &hot {
        let at = find(&mut rows, *passes);
        rows[at].pages += page;
    }
    let mut mistaken = Bytes::ZERO;
    for (at, piece) in pieces.iter().enumerate() {
        let own = find(&mut rows, piece.passes);
        for covered in span(at) {
            let start = layout.offsets[at].0.max(covered * page.0);
            let end = (layout.offsets[at].0 + piece.bytes.0).min((covered + 1) * page.0);
            if find(&mut rows, hot[covered as usize]) > own {
                mistaken += Bytes(end.saturating_sub(start));
            }
        }
    }
    let shared = shared.into_iter().filter(|shared| *shared).count() as u64;
    Sharing { rows, pages: pages as u64, shared, mistaken }
}
