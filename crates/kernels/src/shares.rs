//! Numbers that several threads write at once, each its own: the one place that knows that parts do not overlap.
//!
//! A kernel says how numbers fall apart (by thread, into boxes, into the blocks of a matrix, at given rows), and
//! [`Pool::each`](super::pool::Pool::each) gives every thread its part, once. A part hands out slices of what is in it
//! and panics at anything else, so that kernels need no promise of their own.

use std::marker::PhantomData;
use std::ops::Range;

use super::pool::part;
use super::simd;

/// Numbers that fall apart into one part for every thread.
///
/// # Safety
/// Parts of different threads have no number in common.
pub unsafe trait Split: Sync {
    /// What a thread gets.
    type Part;

    /// The part of thread `index` of `threads`.
    ///
    /// # Safety
    /// Every part is asked for once only, and `threads` is always the same.
    unsafe fn part(&self, threads: usize, index: usize) -> Self::Part;
}

/// A slice that is taken apart.
struct Raw<'a, T> {
    start: *mut T,
    len: usize,
    lives: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Raw<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Raw<'_, T> {}

// SAFETY: only parts reach the numbers, and those of different threads have none in common.
unsafe impl<T: Send> Send for Raw<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Raw<'_, T> {}

impl<'a, T> Raw<'a, T> {
    fn new(slice: &'a mut [T]) -> Raw<'a, T> {
        Raw { start: slice.as_mut_ptr(), len: slice.len(), lives: PhantomData }
    }

    /// A range of it.
    ///
    /// # Safety
    /// No other slice that overlaps it is in use at the same time.
    #[inline(always)]
    unsafe fn range<'s>(self, range: Range<usize>) -> &'s mut [T]
    where
        'a: 's,
    {
        assert!(range.start <= range.end && range.end <= self.len, "a range within the slice");
        // SAFETY: the range is within the slice, and the caller promises that it is used by one.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// Asks for the memory of what there is of a range.
    #[inline]
    fn expect(self, range: Range<usize>) {
        let count = range.end.min(self.len).saturating_sub(range.start);
        simd::expect(self.start.wrapping_add(range.start), count);
    }
}

/// As many numbers for every thread: scratch memory.
pub struct Each<'a, T> {
    numbers: Raw<'a, T>,
    size: usize,
}

impl<'a, T> Each<'a, T> {
    /// `size` numbers for every thread.
    pub fn new(numbers: &'a mut [T], size: usize) -> Each<'a, T> {
        Each { numbers: Raw::new(numbers), size }
    }
}

// SAFETY: neighbouring ranges of one length.
unsafe impl<'a, T: Send> Split for Each<'a, T> {
    type Part = &'a mut [T];

    unsafe fn part(&self, _threads: usize, index: usize) -> &'a mut [T] {
        // SAFETY: every thread has its own range, and asks once.
        unsafe { self.numbers.range(index * self.size..(index + 1) * self.size) }
    }
}

/// Rows of one length, shared out evenly: a thread gets the number of its first and the rows.
pub struct Rows<'a, T> {
    numbers: Raw<'a, T>,
    row: usize,
    units: usize,
}

impl<'a, T> Rows<'a, T> {
    /// As many rows of this length, which are all numbers.
    pub fn new(numbers: &'a mut [T], row: usize, units: usize) -> Rows<'a, T> {
        assert_eq!(numbers.len(), units * row, "whole rows, as many as there are");
        Rows { numbers: Raw::new(numbers), row, units }
    }
}

// SAFETY: parts of the rows do not overlap.
unsafe impl<'a, T: Send> Split for Rows<'a, T> {
    type Part = (usize, &'a mut [T]);

    unsafe fn part(&self, threads: usize, index: usize) -> (usize, &'a mut [T]) {
        let part = part(self.units, threads, index);
        // SAFETY: every thread has its own range, and asks once.
        (part.start, unsafe { self.numbers.range(part.start * self.row..part.end * self.row) })
    }
}

/// Rows that are cut between given ones: each thread has those from its own bound to that of the next.
pub struct Cut<'a, T> {
    numbers: Raw<'a, T>,
    row: usize,
    bounds: &'a [u32],
}

impl<'a, T> Cut<'a, T> {
    /// Rows of this length, with one bound for every thread and one for the end, in order.
    pub fn new(numbers: &'a mut [T], row: usize, bounds: &'a [u32]) -> Cut<'a, T> {
        assert!(bounds.is_sorted(), "bounds in order");
        Cut { numbers: Raw::new(numbers), row, bounds }
    }
}

// SAFETY: bounds are in order, and cannot change while they are lent.
unsafe impl<'a, T: Send> Split for Cut<'a, T> {
    type Part = &'a mut [T];

    unsafe fn part(&self, _threads: usize, index: usize) -> &'a mut [T] {
        let [first, end] = [index, index + 1].map(|at| self.bounds[at] as usize);
        // SAFETY: every thread has its own range, and asks once.
        unsafe { self.numbers.range(first * self.row..end * self.row) }
    }
}

/// A contiguous array of four axes that is cut into boxes; a thread has neighbouring boxes, in an order.
pub struct Boxes<'a, T> {
    numbers: Raw<'a, T>,
    extents: [usize; 4],
    /// The extents of a box; those at the end of an axis may be smaller.
    sizes: [usize; 4],
    /// How many boxes lie along each axis.
    counts: [usize; 4],
    /// The axes from the one along which neighbouring boxes differ last, to the one along which they differ first.
    order: [usize; 4],
}

impl<'a, T> Boxes<'a, T> {
    /// An array of these extents in boxes of these sizes, in order of axes.
    pub fn new(numbers: &'a mut [T], extents: [usize; 4], sizes: [usize; 4]) -> Boxes<'a, T> {
        assert_eq!(numbers.len(), extents.iter().product::<usize>(), "an array without gaps");
        let sizes = sizes.map(|size| size.max(1));
        let counts = std::array::from_fn(|axis| extents[axis].div_ceil(sizes[axis]));
        Boxes { numbers: Raw::new(numbers), extents, sizes, counts, order: [0, 1, 2, 3] }
    }

    /// The same with boxes in another order.
    pub fn ordered(mut self, order: [usize; 4]) -> Boxes<'a, T> {
        assert!((0..4).all(|axis| order.contains(&axis)), "all axes");
        self.order = order;
        self
    }

    /// How many boxes there are.
    pub fn count(&self) -> usize {
        self.counts.iter().product()
    }
}

/// The boxes of one thread.
pub struct SomeBoxes<'s, T> {
    numbers: Raw<'s, T>,
    extents: [usize; 4],
    sizes: [usize; 4],
    counts: [usize; 4],
    order: [usize; 4],
    units: Range<usize>,
}

impl<T> SomeBoxes<'_, T> {
    /// The numbers of the boxes.
    pub fn units(&self) -> Range<usize> {
        self.units.clone()
    }

    /// One of them, while no other is in use.
    pub fn get(&mut self, unit: usize) -> OneBox<'_, T> {
        assert!(self.units.contains(&unit), "a box of this thread");
        let mut ranges = self.extents.map(|extent| 0..extent);
        let mut left = unit;
        // Most axes are not cut, and divisions take long.
        for axis in self.order.into_iter().rev().filter(|axis| self.counts[*axis] > 1) {
            let (count, size) = (self.counts[axis], self.sizes[axis]);
            let (at, rest) = if left < count { (left, 0) } else { (left % count, left / count) };
            ranges[axis] = at * size..(at * size + size).min(self.extents[axis]);
            left = rest;
        }
        OneBox { numbers: self.numbers, extents: self.extents, ranges }
    }
}

/// A box of an array: what is in it is one thread's.
pub struct OneBox<'s, T> {
    numbers: Raw<'s, T>,
    extents: [usize; 4],
    ranges: [Range<usize>; 4],
}

impl<'s, T> OneBox<'s, T> {
    /// The indices of the box on every axis.
    pub fn ranges(&self) -> &[Range<usize>; 4] {
        &self.ranges
    }

    /// Where in the array the numbers of the last axis are that are in the box, for indices of the others in the whole
    /// array.
    #[inline(always)]
    pub fn place(&self, at: [usize; 3]) -> Range<usize> {
        let [first, second, third, last] = &self.ranges;
        let inside = first.contains(&at[0]) & second.contains(&at[1]) & third.contains(&at[2]);
        assert!(inside, "indices within the box");
        let [_, b, c, d] = self.extents;
        let start = ((at[0] * b + at[1]) * c + at[2]) * d;
        start + last.start..start + last.end
    }

    /// Asks for the memory of some numbers of the array that will be written later.
    #[inline]
    pub fn expect_early(&self, range: Range<usize>)
    where
        T: bytemuck::Pod,
    {
        let count = range.len() * size_of::<T>() / size_of::<f32>();
        simd::fetch_early(self.numbers.start.wrapping_add(range.start).cast(), count);
    }

    /// These numbers, to be written.
    #[inline(always)]
    pub fn run(&mut self, at: [usize; 3]) -> &mut [T] {
        let place = self.place(at);
        // SAFETY: the cells of a box are within the array and one thread's, and it is borrowed as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.numbers.start.add(place.start), place.len()) }
    }

    /// Where all numbers of the box are with this index on the first axis, if the last two axes are not cut.
    #[inline(always)]
    fn place_slab(&self, at: usize) -> Range<usize> {
        let [first, second, third, last] = &self.ranges;
        let [_, b, c, d] = self.extents;
        assert!(first.contains(&at) && third.len() == c && last.len() == d, "a slab without gaps");
        (at * b + second.start) * c * d..(at * b + second.end) * c * d
    }

    /// These numbers, to be written.
    #[inline(always)]
    pub fn slab(&mut self, at: usize) -> &mut [T] {
        // SAFETY: the cells of a box are one thread's, and it is borrowed as long as the slice.
        unsafe { self.numbers.range(self.place_slab(at)) }
    }

    /// These numbers, to be read.
    #[inline(always)]
    pub fn peek_slab(&self, at: usize) -> &[T] {
        // SAFETY: as above; nobody writes while the box is borrowed.
        unsafe { self.numbers.range(self.place_slab(at)) }
    }

    /// All numbers of the box, where they lie side by side.
    pub fn whole(&mut self) -> &mut [T] {
        let (at, ranges) = (self.ranges.clone().map(|range| range.start), &self.ranges);
        let full = |axis: usize| ranges[axis].len() == self.extents[axis];
        // Up to an axis one index, and from there on everything.
        let first = (0..4).find(|axis| ranges[*axis].len() > 1).unwrap_or(3);
        assert!((first + 1..4).all(full), "a box without gaps");
        let [_, b, c, d] = self.extents;
        let start = ((at[0] * b + at[1]) * c + at[2]) * d + at[3];
        let count: usize = ranges.iter().map(Range::len).product();
        // SAFETY: the cells of a box are one thread's, and it is borrowed as long as the slice.
        unsafe { self.numbers.range(start..start + count) }
    }

    /// The box as a matrix: the second axis by the last, at its only indices of the others.
    pub fn matrix(&mut self) -> Block<'_, T> {
        let [_, b, c, d] = self.extents;
        let [first, rows, third, columns] = &self.ranges;
        assert!(first.len() == 1 && third.len() == 1, "two axes");
        let start = (first.start * b + rows.start) * c * d + third.start * d + columns.start;
        let lattice = Lattice { start, row: c * d, ..Lattice::matrix(rows.len(), columns.len(), c * d) };
        Block { numbers: self.numbers, lattice, rows: 0..rows.len(), columns: 0..columns.len() }
    }
}

// SAFETY: boxes have no cell in common, and every thread has its own.
unsafe impl<'a, T: Send> Split for Boxes<'a, T> {
    type Part = SomeBoxes<'a, T>;

    unsafe fn part(&self, threads: usize, index: usize) -> SomeBoxes<'a, T> {
        let units = part(self.count(), threads, index);
        let Boxes { numbers, extents, sizes, counts, order } = *self;
        SomeBoxes { numbers, extents, sizes, counts, order, units }
    }
}

/// Where the rows and columns of a matrix lie: a column is a pixel of a grid of one of several images.
#[derive(Clone, Copy, Debug)]
pub struct Lattice {
    /// The first number.
    pub start: usize,
    /// How many rows there are.
    pub rows: usize,
    /// The distance of rows.
    pub row: usize,
    /// How many images there are.
    pub images: usize,
    /// The distance of images.
    pub image: usize,
    /// Rows and columns of the grid.
    pub grid: [usize; 2],
    /// The distances of rows and columns of the grid.
    pub steps: [usize; 2],
}

impl Lattice {
    /// A plain matrix whose rows are `stride` apart.
    pub fn matrix(rows: usize, columns: usize, stride: usize) -> Lattice {
        Lattice { start: 0, rows, row: stride, images: 1, image: 0, grid: [1, columns], steps: [columns, 1] }
    }

    /// All columns.
    fn columns(&self) -> usize {
        self.images * self.grid[0] * self.grid[1]
    }

    /// Whether all pixels of an image lie side by side.
    fn whole(&self) -> bool {
        self.steps[1] == 1 && (self.steps[0] == self.grid[1] || self.grid[0] == 1)
    }

    /// Checks that no two stretches of neighbouring columns overlap, and returns the numbers that all span.
    fn span(&self) -> usize {
        // A row of the grid lies within a stretch, with nothing else between its columns.
        let mut span = (self.grid[1] - 1) * self.steps[1] + 1;
        let mut axes = [(self.grid[0], self.steps[0]), (self.rows, self.row), (self.images, self.image)];
        axes.sort_by_key(|(_, distance)| *distance);
        for (count, distance) in axes.into_iter().filter(|(count, _)| *count > 1) {
            assert!(distance >= span, "rows, columns and images lie beside each other");
            span += (count - 1) * distance;
        }
        self.start + span
    }
}

/// A matrix that is cut into blocks of rows and columns, one for every thread.
pub struct Sheet<'a, T> {
    numbers: Raw<'a, T>,
    lattice: Lattice,
    /// Rows and columns of a block, and how many blocks lie side by side.
    sizes: [usize; 2],
    across: usize,
}

impl<'a, T> Sheet<'a, T> {
    /// A matrix in these numbers, in one block.
    pub fn new(numbers: &'a mut [T], lattice: Lattice) -> Sheet<'a, T> {
        let empty = lattice.rows == 0 || lattice.columns() == 0;
        assert!(empty || lattice.span() <= numbers.len(), "a matrix within the numbers");
        let sizes = [lattice.rows.max(1), lattice.columns().max(1)];
        Sheet { numbers: Raw::new(numbers), lattice, sizes, across: 1 }
    }

    /// The same in blocks of this many rows and columns, of which `across` lie side by side.
    pub fn cut(mut self, sizes: [usize; 2], across: usize) -> Sheet<'a, T> {
        self.sizes = sizes.map(|size| size.max(1));
        assert!(across * self.sizes[1] >= self.lattice.columns(), "blocks for all columns");
        self.across = across;
        self
    }

    /// All of it, as one block.
    pub fn all(&mut self) -> Block<'_, T> {
        let (rows, columns) = (0..self.lattice.rows, 0..self.lattice.columns());
        Block { numbers: self.numbers, lattice: self.lattice, rows, columns }
    }
}

// SAFETY: blocks of different rows or columns have no cell in common, as the lattice has been checked.
unsafe impl<'a, T: Send> Split for Sheet<'a, T> {
    type Part = Block<'a, T>;

    unsafe fn part(&self, _threads: usize, index: usize) -> Block<'a, T> {
        let cut = |at: usize, size: usize, all: usize| (at * size).min(all)..((at + 1) * size).min(all);
        let rows = cut(index / self.across, self.sizes[0], self.lattice.rows);
        let columns = cut(index % self.across, self.sizes[1], self.lattice.columns());
        Block { numbers: self.numbers, lattice: self.lattice, rows, columns }
    }
}

/// A block of a matrix: its rows and columns are one thread's.
pub struct Block<'s, T> {
    numbers: Raw<'s, T>,
    lattice: Lattice,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<T> Block<'_, T> {
    /// The rows of the block.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The columns of the block.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Where a column is, and how many columns from there on lie in a stretch.
    #[inline]
    fn place(&self, column: usize) -> (usize, usize) {
        let Lattice { start, image, grid, steps, images, .. } = self.lattice;
        let pixels = grid[0] * grid[1];
        let (at, pixel) = if images == 1 { (0, column) } else { (column / pixels, column % pixels) };
        if self.lattice.whole() {
            return (start + at * image + pixel, pixels - pixel);
        }
        let (i, j) = (pixel / grid[1], pixel % grid[1]);
        (start + at * image + i * steps[0] + j * steps[1], grid[1] - j)
    }

    /// As many of some columns as lie in a stretch, from the first on: for every row a slice, of which the columns are
    /// the first number and every so-manieth after it.
    #[inline]
    pub fn stretch(&mut self, columns: Range<usize>) -> Stretch<'_, T> {
        let inside = columns.start >= self.columns.start && columns.end <= self.columns.end;
        assert!(inside && !columns.is_empty(), "columns of the block");
        let (place, most) = self.place(columns.start);
        let (count, step) = (columns.len().min(most), self.lattice.steps[1]);
        let (numbers, row) = (self.numbers, self.lattice.row);
        Stretch { numbers, rows: self.rows.clone(), place, row, span: (count - 1) * step + 1, count, step }
    }

    /// Asks for the memory of rows and columns that will be written soon.
    #[inline]
    pub fn expect(&self, rows: Range<usize>, columns: Range<usize>) {
        let (place, most) = self.place(columns.start);
        let span = columns.len().min(most) * self.lattice.steps[1];
        for row in rows {
            let at = place + row * self.lattice.row;
            self.numbers.expect(at..at + span);
        }
    }
}

impl Block<'_, f32> {
    /// Some rows of a block of a plain matrix.
    pub fn strip(&mut self, rows: Range<usize>) -> simd::Strip<'_> {
        let inside = rows.start >= self.rows.start && rows.end <= self.rows.end && !self.columns.is_empty();
        let (place, most) = self.place(self.columns.start);
        let plain = self.lattice.steps[1] == 1 && most >= self.columns.len();
        assert!(inside && plain, "rows of the block, whose columns lie side by side");
        let start = self.numbers.start.wrapping_add(place + rows.start * self.lattice.row);
        // SAFETY: the cells are this block's, which a sheet or a box has found to be within its numbers, and it is
        // borrowed as long as the strip.
        unsafe { simd::Strip::at(start, [rows.len(), self.columns.len()], self.lattice.row) }
    }
}

/// Neighbouring columns of a block.
pub struct Stretch<'s, T> {
    numbers: Raw<'s, T>,
    rows: Range<usize>,
    place: usize,
    row: usize,
    span: usize,
    /// How many columns there are.
    pub count: usize,
    /// Their distance in a row's slice.
    pub step: usize,
}

impl<T> Stretch<'_, T> {
    /// The slice of a row of the block.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "a row of the block");
        let at = self.place + row * self.row;
        // SAFETY: the cells are this block's, which a sheet has found to be within its numbers, and it is borrowed as
        // long as the slice; what lies between them is between columns of the block, and no other block's.
        unsafe { std::slice::from_raw_parts_mut(self.numbers.start.add(at), self.span) }
    }
}

/// Several at once.
macro_rules! together {
    ($($name:ident)+) => {
        // SAFETY: each of them falls apart.
        unsafe impl<$($name: Split),+> Split for ($($name,)+) {
            type Part = ($($name::Part,)+);

            #[allow(non_snake_case)]
            unsafe fn part(&self, threads: usize, index: usize) -> Self::Part {
                let ($($name,)+) = self;
                // SAFETY: the caller's promise.
                unsafe { ($($name.part(threads, index),)+) }
            }
        }
    };
}

together!(A B);
together!(A B C);
together!(A B C D);
together!(A B C D E);

// SAFETY: each of them falls apart.
unsafe impl<S: Split, const N: usize> Split for [S; N] {
    type Part = [S::Part; N];

    unsafe fn part(&self, threads: usize, index: usize) -> [S::Part; N] {
        // SAFETY: the caller's promise.
        std::array::from_fn(|at| unsafe { self[at].part(threads, index) })
    }
}

// SAFETY: it falls apart, or is nothing.
unsafe impl<S: Split> Split for Option<S> {
    type Part = Option<S::Part>;

    unsafe fn part(&self, threads: usize, index: usize) -> Option<S::Part> {
        // SAFETY: the caller's promise.
        self.as_ref().map(|one| unsafe { one.part(threads, index) })
    }
}

#[cfg(test)]
mod tests;
