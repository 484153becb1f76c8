//! Matrix products: panels are packed for the inner loop of `simd/product.rs`, straight from wherever the numbers lie.
//!
//! C = A · B is cut into pieces of a few rows by one or two vectors. A block of A is packed once and stays in the
//! second-level cache; a panel of B is packed just before it is used, meets all panels of A while it is in the first,
//! and is forgotten. What an operand *is* does not matter here: a [`Pack`] copies a panel of it, whether it is a
//! matrix, its transpose or an image as a convolution sees it, and a [`Take`] puts a finished piece where it belongs.
//! That makes convolutions products without an unfolded copy of the image.
//!
//! Every element of C is summed over blocks of depth in order, whatever the cut, so results do not depend on the
//! number of threads.

use std::cell::Cell;
use std::ops::Range;

use tiercel_workload::parts::ROWS as PART;

use super::pool::Pool;
use super::shares::{Block, Each, Lattice, Sheet};
use super::simd::{self, Layout, Soon, Tile};

/// About the most depth of a panel.
const DEPTH: usize = 256;

/// The most rows of A that are packed at a time.
const ROWS: usize = 448;

/// The most panels of B that are copied at once.
const PANELS: usize = 4;

/// The same where they are not deep: with vectors of 16 a page of every row.
const WIDE: usize = 32;

const _: () = assert!((PART as usize).is_multiple_of(DEPTH), "parts are whole blocks");
const _: () = assert!((PART as usize).is_multiple_of(Extent::SHALLOW), "parts are whole blocks");

/// An operand of which panels can be copied.
pub trait Pack: Sync {
    /// Copies the numbers of `depth` and `lines` (columns of B, rows of A): number (d, l) goes to
    /// `out[d * stride + l]`, counted from the start of the ranges. What lies between the last line and the stride
    /// need not be written: nobody looks at what becomes of it.
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]);

    /// The most whole panels that are better copied at once; 1 where it makes no difference.
    fn together(&self) -> usize {
        1
    }

    /// Copies several whole panels, `wide` lines each, one after the other.
    fn pack_all(&self, depth: Range<usize>, lines: Range<usize>, wide: usize, out: &mut [f32]) {
        let deep = depth.len();
        for (at, first) in lines.step_by(wide).enumerate() {
            self.pack(depth.clone(), first..first + wide, wide, &mut out[at * deep * wide..]);
        }
    }

    /// The numbers of a depth that will be copied soon, where they lie side by side; nothing otherwise.
    fn ahead(&self, _depth: usize, _lines: Range<usize>) -> &[f32] {
        &[]
    }
}

/// How finished pieces are put where they belong.
pub trait Take: Sync {
    /// Adds a piece, whose rows are `stride` long, to the rows and columns of C; `first` where nothing has been added
    /// there before.
    fn take(
        &self,
        to: &mut Block<'_, f32>,
        rows: Range<usize>,
        columns: Range<usize>,
        piece: (&[f32], usize),
        first: bool,
    );
}

/// The extents of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Rows of A and C.
    pub rows: usize,
    /// Columns of B and C.
    pub columns: usize,
    /// Columns of A and rows of B.
    pub depth: usize,
    /// The depth of a block: convolutions end theirs between channels.
    pub block: usize,
    /// The most panels of B that are copied at once.
    panels: usize,
}

impl Extent {
    /// The depth of a panel where there are few rows: what it takes to copy B then counts for more than what it takes to
    /// add to C again, and memory gives longer stretches of fewer rows faster.
    pub const SHALLOW: usize = 64;

    /// A product of these extents, in blocks of about equal depth.
    pub fn new(rows: usize, columns: usize, depth: usize) -> Extent {
        Extent::in_units(rows, columns, depth, 1)
    }

    /// The same with blocks of whole units of depth.
    pub fn in_units(rows: usize, columns: usize, units: usize, unit: usize) -> Extent {
        let depth = units * unit;
        let blocks = depth.div_ceil(DEPTH.max(unit)).max(1);
        let block = units.div_ceil(blocks).max(1) * unit;
        Extent { rows, columns, depth, block, panels: PANELS }
    }

    /// The same in blocks that end where those of parts of the depth do (`tiercel_workload::parts`): each may be multiplied
    /// by itself and added.
    pub fn deep(self) -> Extent {
        Extent { block: DEPTH, ..self }
    }

    /// The same for few rows, of a B that lies in rows far longer than a panel is wide.
    pub fn shallow(self) -> Extent {
        Extent { block: Extent::SHALLOW, panels: WIDE, ..self }
    }

    /// How many panels of B there is room for.
    fn panels(&self) -> usize {
        self.columns.div_ceil(Tile::here().columns()).clamp(1, self.panels)
    }

    /// Numbers of scratch memory that one thread needs.
    pub fn scratch(&self) -> usize {
        let tile = Tile::here();
        let block = self.block.min(self.depth);
        // Packing whole vectors may write a little beyond the last line.
        let panels = self.panels();
        block * self.rows.min(ROWS) + tile.rows * block + panels * block * tile.columns() + 64
    }

    /// How threads are laid over C, as rows by columns of them: so that they pack least.
    fn grid(&self, threads: usize) -> (usize, usize) {
        let cost = |down: usize| {
            let across = threads / down;
            // A thread packs its rows of A once, and its columns of B once for every block of rows.
            self.rows.div_ceil(down) + self.columns.div_ceil(across) * self.rows.div_ceil(down).div_ceil(ROWS)
        };
        let downs = (1..=threads).filter(|down| threads.is_multiple_of(*down));
        let down = downs.min_by_key(|down| cost(*down)).unwrap_or(1);
        (down, threads / down)
    }
}

/// C = A · B and what is added to it, on all threads of the pool. `scratch` holds [`Extent::scratch`] numbers for each
/// thread.
pub fn multiply(
    pool: &mut Pool,
    extent: Extent,
    a: &impl Pack,
    b: &impl Pack,
    c: &Rows<'_>,
    scratch: &mut [f32],
) {
    let numbers = c.numbers.take();
    let sheet = Sheet::new(numbers, Lattice::matrix(extent.rows, extent.columns, c.stride));
    multiply_into(pool, extent, a, b, (sheet, &Put::new(c.bias)), scratch);
    c.numbers.set(numbers);
}

/// The same for any C, as `how` says.
pub fn multiply_into(
    pool: &mut Pool,
    extent: Extent,
    a: &impl Pack,
    b: &impl Pack,
    (c, how): (Sheet<'_, f32>, &impl Take),
    scratch: &mut [f32],
) {
    let (threads, mut c) = (pool.threads(), c);
    let work = extent.rows * extent.columns * extent.depth;
    if threads == 1 || work < 64 << 10 {
        return multiply_part(extent, a, b, (&mut c.all(), how), scratch);
    }
    let (down, across) = extent.grid(threads);
    let cut = |length: usize, unit: usize, parts: usize| length.div_ceil(unit).div_ceil(parts) * unit;
    let rows = cut(extent.rows, if down > 1 { 2 } else { 1 }, down);
    let columns = cut(extent.columns, Tile::here().lanes, across);
    let shares = (Each::new(scratch, extent.scratch()), c.cut([rows, columns], across));
    pool.each(shares, |_, (scratch, mut block)| multiply_part(extent, a, b, (&mut block, how), scratch));
}

/// C += A · B for the rows and columns of a block of C, on this thread.
pub fn multiply_part(
    extent: Extent,
    a: &impl Pack,
    b: &impl Pack,
    (c, how): (&mut Block<'_, f32>, &impl Take),
    scratch: &mut [f32],
) {
    let (rows, columns) = (c.rows(), c.columns());
    let tile = Tile::here();
    let wide = tile.columns();
    let block = extent.block.min(extent.depth).max(1);
    let mut piece = [0f32; Tile::MOST];
    let panels = extent.panels();
    let (packed_b, packed) = scratch.split_at_mut(panels * block * wide + 32);
    let together = wide * b.together().min(panels);
    for top in rows.clone().step_by(ROWS) {
        let some = top..(top + ROWS).min(rows.end);
        for (at, start) in (0..extent.depth).step_by(block).enumerate() {
            let depth = start..(start + block).min(extent.depth);
            let deep = depth.len();
            // Where lines lie side by side, all panels go along together: a line of a cache is read once.
            let whole = if a.together() > 1 { some.len() / tile.rows * tile.rows } else { 0 };
            if whole > 0 {
                a.pack_all(depth.clone(), top..top + whole, tile.rows, packed);
            }
            for row in (top + whole..some.end).step_by(tile.rows) {
                let lines = row..(row + tile.rows).min(some.end);
                let stride = lines.len();
                a.pack(depth.clone(), lines, stride, &mut packed[(row - top) * deep..]);
            }
            for group in columns.clone().step_by(together) {
                let here = group..(group + together).min(columns.end);
                let whole = here.len() / wide * wide;
                if whole > wide {
                    b.pack_all(depth.clone(), group..group + whole, wide, packed_b);
                } else if whole > 0 {
                    b.pack(depth.clone(), group..group + whole, wide, packed_b);
                }
                if whole < here.len() {
                    let stride = (here.len() - whole).next_multiple_of(tile.lanes);
                    b.pack(depth.clone(), group + whole..here.end, stride, &mut packed_b[whole * deep..]);
                }
                // What is copied after these panels, the next ones or the first of the next block of depth, comes while
                // these are multiplied: a depth of it with every piece, where a depth is much.
                let (mut ahead, from) = match here.end {
                    _ if extent.panels < WIDE => (0..0, columns.start),
                    next if next < columns.end => (depth.clone(), next),
                    _ => (depth.end..(depth.end + block).min(extent.depth), columns.start),
                };
                let soon = from..(from + together).min(columns.end);
                let (panels, high) = (here.len().div_ceil(wide), some.len().div_ceil(tile.rows));
                for step in 0..panels * high {
                    // Many panels meet the same rows of A one after the other, so that rows of C are written in longer
                    // stretches, too; few stay in the first-level cache, and meet all rows.
                    let (nth, i) = match extent.panels < WIDE {
                        true => (step / high, step % high),
                        false => (step % panels, step / panels),
                    };
                    let lines = group + nth * wide..(group + (nth + 1) * wide).min(here.end);
                    let vectors = lines.len().div_ceil(tile.lanes);
                    let row = some.start + i * tile.rows;
                    let high = tile.rows.min(some.end - row);
                    c.expect(row..row + high, lines.clone());
                    let (packed, panel) = (&packed[i * tile.rows * deep..], &packed_b[nth * deep * wide..]);
                    let read = ahead.next().map_or(&[][..], |depth| b.ahead(depth, soon.clone()));
                    let soon = Soon { read, ..Soon::NOTHING };
                    simd::product_ahead(deep, (high, vectors), packed, panel, &mut piece, soon);
                    let stride = vectors * tile.lanes;
                    how.take(c, row..row + high, lines, (&piece, stride), at == 0);
                }
            }
        }
    }
}

/// A matrix in memory, as an operand.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    numbers: &'a [f32],
    /// The distance of neighbours along the depth.
    along: usize,
    /// The distance of neighbouring lines: rows of A, columns of B.
    across: usize,
}

impl<'a> Matrix<'a> {
    /// Numbers of which those of one line lie side by side: the rows of A, or B stored by columns.
    pub fn by_line(numbers: &'a [f32], depth: usize) -> Matrix<'a> {
        Matrix { numbers, along: 1, across: depth }
    }

    /// Numbers of which those of one depth lie side by side: A stored by columns, or the rows of B.
    pub fn by_depth(numbers: &'a [f32], lines: usize) -> Matrix<'a> {
        Matrix { numbers, along: lines, across: 1 }
    }

    /// The same with other distances along the depth and across lines; one of them is 1.
    pub fn strided(numbers: &'a [f32], along: usize, across: usize) -> Matrix<'a> {
        Matrix { numbers, along, across }
    }
}

impl Pack for Matrix<'_> {
    fn pack(&self, depth: Range<usize>, lines: Range<usize>, stride: usize, out: &mut [f32]) {
        let origin = depth.start * self.along + lines.start * self.across;
        if self.across == 1 {
            let (counts, from) = ([1, depth.len(), lines.len()], [0, self.along, 1]);
            simd::lay(Layout { counts, from, to: [0, stride] }, &self.numbers[origin..], 0.0, out);
        } else {
            simd::transpose(&self.numbers[origin..], self.across, lines.len(), depth.len(), stride, out);
        }
    }

    fn together(&self) -> usize {
        // Lines that lie side by side are read in longer stretches.
        if self.across == 1 { usize::MAX } else { 1 }
    }

    fn pack_all(&self, depth: Range<usize>, lines: Range<usize>, wide: usize, out: &mut [f32]) {
        let (deep, panels) = (depth.len(), lines.len() / wide);
        let origin = depth.start * self.along + lines.start;
        let layout =
            Layout { counts: [deep, panels, wide], from: [self.along, wide, 1], to: [wide, deep * wide] };
        simd::lay(layout, &self.numbers[origin..], 0.0, out);
    }

    fn ahead(&self, depth: usize, lines: Range<usize>) -> &[f32] {
        if self.across == 1 { &self.numbers[depth * self.along..][lines] } else { &[] }
    }
}

/// What is added to every row or column of a product.
#[derive(Clone, Copy)]
pub enum Bias<'a> {
    /// Nothing.
    None,
    /// A number for every column.
    Columns(&'a [f32]),
    /// The product is added to what is there already.
    Add,
}

/// A matrix of rows that a product becomes.
pub struct Rows<'a> {
    numbers: Cell<&'a mut [f32]>,
    stride: usize,
    bias: Bias<'a>,
}

impl<'a> Rows<'a> {
    /// Rows that are `stride` apart, and what is added to the product.
    pub fn new(numbers: &'a mut [f32], stride: usize, bias: Bias<'a>) -> Rows<'a> {
        Rows { numbers: Cell::new(numbers), stride, bias }
    }
}

/// Puts a product into a matrix.
#[derive(Clone, Copy)]
pub struct Put<'a> {
    bias: Bias<'a>,
}

impl<'a> Put<'a> {
    /// The product and something more.
    pub fn new(bias: Bias<'a>) -> Put<'a> {
        Put { bias }
    }
}

impl Take for Put<'_> {
    fn take(
        &self,
        to: &mut Block<'_, f32>,
        rows: Range<usize>,
        columns: Range<usize>,
        piece: (&[f32], usize),
        first: bool,
    ) {
        put(self, to, rows, columns, piece.0, piece.1, first);
    }
}

simd::wide! {
    /// Puts or adds a piece.
    fn put(
        how: &Put<'_>,
        to: &mut Block<'_, f32>,
        rows: Range<usize>,
        columns: Range<usize>,
        piece: &[f32],
        stride: usize,
        first: bool,
    ) {
        let mut to = to.stretch(columns.clone());
        for (at, row) in rows.enumerate() {
            let (out, piece) = (to.row(row), &piece[at * stride..][..stride]);
            match (first, how.bias) {
                // Of a plain copy the compiler would make a call, which takes longer than so few numbers do.
                (true, Bias::None) => out.iter_mut().zip(piece).for_each(|(out, p)| *out = p + 0.0),
                (true, Bias::Columns(bias)) => {
                    let bias = &bias[columns.clone()];
                    out.iter_mut().zip(piece).zip(bias).for_each(|((out, p), b)| *out = p + b);
                }
                _ => out.iter_mut().zip(piece).for_each(|(out, p)| *out += p),
            }
        }
    }
}
