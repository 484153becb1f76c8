//! Rows of tables: looking them up, their gradient, and updates of just those rows.

use crate::KernelError;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Call, Ids};
use super::elementwise::zip_part;
use super::pool::{Pool, part};
use super::room;
use super::shares::{Cut, Each};
use super::simd::{expect, fetch, fetch_early, foresee, lanes};
use super::update::{Rule, Step, Weights, finite};

/// How many rows ahead the memory of one is asked for.
const SOON: usize = 8;

/// Numbers of a line of the cache.
const LINE: usize = 16;

/// How many ids ahead the second-level cache is asked for a row: it waits for more lines at once than the first.
const LATER: usize = 48;

/// How many ids share one row of results.
fn bag_of(ids: tiercel_workload::graph::Shape, bag: bool) -> usize {
    if bag { ids.last() as usize } else { 1 }
}

pub(super) fn forward(mut args: Args<'_, '_>, bag: bool) -> Result<(), KernelError> {
    let (table, ids, y) = (args.read(0)?, args.ids(1)?, args.write(0)?);
    let width = args.call.last(0);
    ids.check(args.call.dim(0, 0))?;
    let bag = bag_of(args.call.inputs[1].shape, bag);
    let row = |at: usize| &table[ids.at(at) * width..][..width];
    args.pool.rows(y, width, |start, y| {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let at = (start + i) * bag;
            y.copy_from_slice(row(at));
            for next in at + 1..at + bag {
                // Sums wait for their rows; those of copies come by themselves.
                if next + SOON < ids.len() {
                    fetch(row(next + SOON));
                }
                zip_part(y, None, Some(row(next)), |y, row| y + row);
            }
        }
    });
    Ok(())
}

pub(super) fn backward(mut args: Args<'_, '_>, bag: bool) -> Result<(), KernelError> {
    let (ids, dy, table) = (args.ids(0)?, args.read(1)?, args.write(0)?);
    let shape = args.call.outputs[0].shape;
    let width = shape.last() as usize;
    ids.check(table.len() / width)?;
    let bag = bag_of(args.call.inputs[0].shape, bag);
    // Every thread has rows of the table, and adds what the ids in order say of them.
    args.pool.rows(table, width, |start, table| {
        table.fill(0.0);
        let rows = start..start + table.len() / width;
        for at in 0..ids.len() {
            let id = ids.at(at);
            if rows.contains(&id) {
                let row = &mut table[(id - start) * width..][..width];
                zip_part(row, None, Some(&dy[at / bag * width..][..width]), |row, dy| row + dy);
            }
        }
    });
    Ok(())
}

/// Scratch numbers of an update of rows: the ids in order, twice, where the rows and the ids of threads begin, and for each
/// thread how many ids there are of some rows.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    2 * room(2 * call.len(1)) + 2 * room(threads + 1) + threads * BUCKETS
}

/// Stretches of rows whose ids are counted.
const BUCKETS: usize = 1 << 11;

/// Decides which rows each thread changes, so that it has about as many ids as others: where its rows begin, and how many ids
/// are before them. `counts` are as many for every thread.
fn deal(pool: &mut Pool, ids: Ids<'_>, rows: usize, counts: &mut [u32], [bounds, starts]: [&mut [u32]; 2]) {
    bounds.fill(rows as u32);
    starts.fill(ids.len() as u32);
    (bounds[0], starts[0]) = (0, 0);
    let threads = pool.threads();
    if threads == 1 {
        return;
    }
    let bits = usize::BITS - rows.saturating_sub(1).leading_zeros();
    let shift = bits.saturating_sub(BUCKETS.ilog2());
    pool.each(Each::new(counts, BUCKETS), |index, counts| {
        counts.fill(0);
        part(ids.len(), threads, index).for_each(|at| counts[ids.at(at) >> shift] += 1);
    });
    let (mut next, mut before) = (1, 0);
    for bucket in 0..BUCKETS {
        while next < threads && before >= part(ids.len(), threads, next).start {
            (bounds[next], starts[next]) = ((bucket << shift).min(rows) as u32, before as u32);
            next += 1;
        }
        before += counts.iter().skip(bucket).step_by(BUCKETS).map(|count| *count as usize).sum::<usize>();
    }
}

/// Takes the ids of these rows, with their places, in order; there are as many as there is room for.
fn choose(ids: impl Iterator<Item = usize>, own: Range<usize>, to: &mut [u64]) {
    let mut count = 0;
    for (at, id) in ids.enumerate() {
        // Whether an id is among them is a matter of chance: a processor that had to guess would often be wrong.
        let Some(place) = to.get_mut(count) else { return };
        *place = (id as u64) << 32 | at as u64;
        count += usize::from(own.contains(&id));
    }
}

/// Sorts ids by their upper halves, which are below `rows`, keeping the order of equal ones; `other` is as long.
fn sort<'o>(mut order: &'o mut [u64], mut other: &'o mut [u64], rows: usize) -> &'o [u64] {
    const DIGIT: usize = 1 << 11;
    let bits = usize::BITS - rows.saturating_sub(1).leading_zeros();
    for digit in 0..bits.div_ceil(DIGIT.ilog2()) {
        let shift = 32 + digit * DIGIT.ilog2();
        let digit = |entry: u64| (entry >> shift) as usize % DIGIT;
        let mut places = [0u32; DIGIT];
        order.iter().for_each(|entry| places[digit(*entry)] += 1);
        let mut sum = 0;
        for place in &mut places {
            (*place, sum) = (sum, sum + *place);
        }
        for entry in &*order {
            let place = &mut places[digit(*entry)];
            other[*place as usize] = *entry;
            *place += 1;
        }
        std::mem::swap(&mut order, &mut other);
    }
    order
}

/// The rows of tables that one thread changes, from its first on; what there is none of is empty.
struct Tables<'s> {
    first_row: usize,
    width: usize,
    w: &'s mut [f32],
    first: &'s mut [f32],
    second: &'s mut [f32],
    master: &'s mut [f32],
}

impl Tables<'_> {
    /// Where the numbers of a row begin.
    #[inline(always)]
    fn place(&self, row: usize) -> usize {
        (row - self.first_row) * self.width
    }

    /// Asks the second-level cache for the first numbers of a row; those behind them come by themselves.
    #[inline(always)]
    fn foresee(&self, row: usize) {
        let place = self.place(row);
        for table in [&self.w, &self.first, &self.second] {
            if !table.is_empty() {
                fetch_early(table.as_ptr().wrapping_add(place), 1);
            }
        }
    }

    /// Asks for the memory of a row.
    #[inline(always)]
    fn expect(&self, row: usize) {
        let place = self.place(row);
        for table in [&self.w, &self.first, &self.second, &self.master] {
            if !table.is_empty() {
                expect(table.as_ptr().wrapping_add(place), self.width);
            }
        }
    }

    /// The weights of a row, the exact ones where there are others, too.
    #[inline(always)]
    fn weights(&mut self, row: usize) -> Weights<'_> {
        let own = self.place(row)..self.place(row) + self.width;
        let w = if self.master.is_empty() { &mut *self.w } else { &mut *self.master };
        let state = |numbers: bool| if numbers { own.clone() } else { 0..0 };
        let (first, second) = (state(!self.first.is_empty()), state(!self.second.is_empty()));
        Weights { w: &mut w[own], first: &mut self.first[first], second: &mut self.second[second] }
    }

    /// Copies the exact weights of a row to the others.
    #[inline(always)]
    fn copy(&mut self, row: usize) {
        if !self.master.is_empty() {
            let own = self.place(row)..self.place(row) + self.width;
            self.w[own.clone()].copy_from_slice(&self.master[own]);
        }
    }
}

/// The gradients of rows, by ids with their places in order.
#[derive(Clone, Copy)]
struct Gradients<'s> {
    order: &'s [u64],
    drows: &'s [f32],
    width: usize,
    /// So many ids share one gradient.
    bag: usize,
}

impl<'s> Gradients<'s> {
    #[inline(always)]
    fn row(&self, at: usize) -> usize {
        (self.order[at] >> 32) as usize
    }

    #[inline(always)]
    fn gradient(&self, at: usize) -> &'s [f32] {
        let place = self.order[at] as u32;
        let place = if self.bag == 1 { place as usize } else { (place / self.bag as u32) as usize };
        &self.drows[place * self.width..][..self.width]
    }
}

lanes! {
    /// Changes rows by the sums of their gradients, and returns whether they are finite.
    fn change['s, S: Step](l; step: S, g: Gradients<'s>, tables: &mut Tables<'s>) -> bool {
        let (end, width, mut wrong) = (g.order.len(), g.width, l.splat(0.0));
        let whole = width / L::COUNT * L::COUNT;
        let mut at = 0;
        while at < end {
            let row = g.row(at);
            // Of rows that are one line of the cache nothing would be left to ask for.
            if width > LINE && at + SOON < end {
                fetch(g.gradient(at + SOON));
                tables.expect(g.row(at + SOON));
            }
            if at + LATER < end {
                foresee(&g.gradient(at + LATER)[..1]);
                tables.foresee(g.row(at + LATER));
            }
            let first = at;
            at += 1;
            while at < end && g.row(at) == row {
                at += 1;
            }
            let mut weights = tables.weights(row);
            for column in (0..whole).step_by(L::COUNT) {
                let mut sum = l.load(g.gradient(first), column);
                for next in first + 1..at {
                    sum = l.add(sum, l.load(g.gradient(next), column));
                }
                wrong = weights.change::<L, S, false>(l, step, column, sum, wrong);
            }
            if whole < width {
                let mut sum = l.load_some(g.gradient(first), whole);
                for next in first + 1..at {
                    sum = l.add(sum, l.load_some(g.gradient(next), whole));
                }
                wrong = weights.change::<L, S, true>(l, step, whole, sum, wrong);
            }
            tables.copy(row);
        }
        finite(l, wrong)
    }
}

/// Changes the rows of a table that were asked for, and returns whether those are finite.
pub(super) fn update_rows(
    mut args: Args<'_, '_>,
    optimizer: Optimizer,
    bag: bool,
) -> Result<bool, KernelError> {
    let (ids, drows) = (args.ids(1)?, args.read(2)?);
    let (width, rows) = (args.call.last(0), args.call.dim(0, 0));
    ids.check(rows)?;
    if ids.len() > u32::MAX as usize || rows > u32::MAX as usize {
        return Err(KernelError::Rows { ids: ids.len(), rows });
    }
    let bag = bag_of(args.call.inputs[1].shape, bag);
    let states = optimizer.states().len();
    let w = args.write(0)?;
    let first = if states > 0 { args.write(1)? } else { &mut [] };
    let second = if states > 1 { args.write(2)? } else { &mut [] };
    let master = args.write_optional(1 + states)?;
    let (order, rest) = args.scratch().split_at_mut(room(2 * ids.len()));
    let (other, rest) = rest.split_at_mut(room(2 * ids.len()));
    let threads = args.pool.threads();
    let (bounds, rest) = rest.split_at_mut(room(threads + 1));
    let (starts, rest) = rest.split_at_mut(room(threads + 1));
    let counts = &mut rest[..threads * BUCKETS];
    let [bounds, starts] = [bounds, starts].map(|some| bytemuck::cast_slice_mut(&mut some[..threads + 1]));
    deal(args.pool, ids, rows, bytemuck::cast_slice_mut(counts), [&mut *bounds, &mut *starts]);
    // Ids with their places, so that equal ids stand together and in order.
    let [order, other]: [&mut [u64]; 2] =
        [order, other].map(|half| bytemuck::cast_slice_mut(&mut half[..2 * ids.len()]));
    let lists = (Cut::new(order, 1, starts), Cut::new(other, 1, starts));
    let (rule, all) = (Rule::new(optimizer, args.moment), AtomicBool::new(true));
    let cut = |numbers, there: bool| Cut::new(numbers, if there { width } else { 0 }, bounds);
    let tables =
        (cut(w, true), cut(first, states > 0), cut(second, states > 1), master.map(|m| cut(m, true)));
    args.pool.each((tables, lists), |index, (tables, (order, other))| {
        let (w, first, second, master) = tables;
        let own = bounds[index] as usize..bounds[index + 1] as usize;
        let mut tables =
            Tables { first_row: own.start, width, w, first, second, master: master.unwrap_or(&mut []) };
        match ids {
            Ids::Short(ids) => choose(ids.iter().map(|id| *id as usize), own, order),
            Ids::Long(ids) => choose(ids.iter().map(|id| *id as usize), own, order),
        }
        let order = sort(order, other, rows);
        let g = Gradients { order, drows, width, bag };
        let finite = match rule {
            Rule::Plain(step) => change(step, g, &mut tables),
            Rule::Momentum(step) => change(step, g, &mut tables),
            Rule::Adam(step) => change(step, g, &mut tables),
        };
        if !finite {
            all.store(false, Ordering::Relaxed);
        }
    });
    Ok(all.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every id is one thread's, which has as many places as ids, in the order of their rows and of their places.
    #[test]
    fn threads_have_all_ids_between_them() {
        let mut random = fastrand::Rng::with_seed(8);
        for (rows, count) in [(1, 1), (1, 50), (5, 3), (3000, 700), (100_000, 5000), (5_000_000, 900)] {
            // All rows alike, few of them often, and one alone.
            for few in [rows, rows.min(7), 1] {
                let ids: Vec<i32> = (0..count).map(|_| (rows - 1 - random.usize(..few)) as i32).collect();
                for threads in [1, 2, 3, 7] {
                    let (mut counts, mut pool) = (vec![9; threads * BUCKETS], Pool::new(threads));
                    let [mut bounds, mut starts] = [vec![9; threads + 1], vec![9; threads + 1]];
                    deal(&mut pool, Ids::Short(&ids), rows, &mut counts, [&mut bounds, &mut starts]);
                    assert!(bounds.is_sorted() && starts.is_sorted(), "{bounds:?}, {starts:?}");
                    let mut all: Vec<u64> = Vec::new();
                    for index in 0..threads {
                        let own = bounds[index] as usize..bounds[index + 1] as usize;
                        let len = (starts[index + 1] - starts[index]) as usize;
                        let inside = ids.iter().filter(|id| own.contains(&(**id as usize))).count();
                        assert_eq!(len, inside, "of {count} ids of {rows} rows, {threads} threads");
                        let (mut order, mut other) = (vec![0; len], vec![0; len]);
                        choose(ids.iter().map(|id| *id as usize), own, &mut order);
                        all.extend(sort(&mut order, &mut other, rows));
                    }
                    let mut expected: Vec<u64> =
                        ids.iter().enumerate().map(|(at, id)| (*id as u64) << 32 | at as u64).collect();
                    expected.sort_unstable();
                    assert_eq!(all, expected, "{count} ids of {rows} rows, {threads} threads");
                }
            }
        }
    }
}
