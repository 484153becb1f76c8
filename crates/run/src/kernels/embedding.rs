//! Rows of tables: looking them up, their gradient, and updates of just those rows.

use std::sync::atomic::{AtomicBool, Ordering};

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Call};
use super::elementwise::zip_part;
use super::pool::part;
use super::room;
use super::shares::{Cut, Each};
use super::simd::fetch;
use super::update::{Largest, Rule};

/// How many rows ahead the memory of one is asked for.
const SOON: usize = 8;

/// How many ids share one row of results.
fn bag_of(ids: tiercel_workload::graph::Shape, bag: bool) -> usize {
    if bag { ids.last() as usize } else { 1 }
}

pub(super) fn forward(mut args: Args<'_, '_>, bag: bool) -> Result<(), String> {
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

pub(super) fn backward(mut args: Args<'_, '_>, bag: bool) -> Result<(), String> {
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

/// Scratch numbers of an update of rows: the ids in order, twice, where the rows of threads begin, and one row of
/// gradients for each thread.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    2 * room(2 * call.len(1)) + room(threads + 1) + threads * room(call.last(0))
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

/// Changes the rows of a table that were asked for, and returns whether those are finite.
pub(super) fn update_rows(mut args: Args<'_, '_>, optimizer: Optimizer, bag: bool) -> Result<bool, String> {
    let (ids, drows) = (args.ids(1)?, args.read(2)?);
    let (width, rows) = (args.call.last(0), args.call.dim(0, 0));
    ids.check(rows)?;
    if ids.len() > u32::MAX as usize || rows > u32::MAX as usize {
        return Err(format!("{} ids of {rows} rows; 32 bits count them", ids.len()));
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
    let (bounds, sums) = rest.split_at_mut(room(threads + 1));
    // Ids with their places, so that equal ids stand together and in order.
    let [order, other]: [&mut [u64]; 2] =
        [order, other].map(|half| bytemuck::cast_slice_mut(&mut half[..2 * ids.len()]));
    order.iter_mut().enumerate().for_each(|(at, o)| *o = (ids.at(at) as u64) << 32 | at as u64);
    let order = sort(order, other, rows);
    let id = |at: usize| (order[at] >> 32) as usize;
    // A thread begins where a new id does, and has the rows up to where the next one begins.
    let begin = |index: usize| {
        let at = part(order.len(), threads, index).start;
        (at..order.len()).find(|at| *at == 0 || id(*at) != id(*at - 1)).unwrap_or(order.len())
    };
    let bounds: &mut [u32] = bytemuck::cast_slice_mut(&mut bounds[..threads + 1]);
    for (index, bound) in bounds.iter_mut().enumerate() {
        let at = if index < threads { begin(index) } else { order.len() };
        *bound = if at < order.len() { id(at) } else { rows } as u32;
    }
    let (rule, finite) = (Rule::new(optimizer, args.moment), AtomicBool::new(true));
    let cut = |numbers, there: bool| Cut::new(numbers, if there { width } else { 0 }, bounds);
    let tables =
        (cut(w, true), cut(first, states > 0), cut(second, states > 1), master.map(|m| cut(m, true)));
    args.pool.each((Each::new(sums, room(width)), tables), |index, (sum, tables)| {
        let (mut w, mut first, mut second, mut master) = tables;
        let mut most = Largest::default();
        let (mut at, end) = (begin(index), if index + 1 < threads { begin(index + 1) } else { order.len() });
        let sum = &mut sum[..width];
        let gradient_at = |at: usize| {
            let place = (order[at] as u32) as usize / bag;
            &drows[place * width..(place + 1) * width]
        };
        while at < end {
            let row = id(at);
            if at + SOON < end {
                let row = id(at + SOON);
                fetch(gradient_at(at + SOON));
                [&w, &first, &second].iter().for_each(|table| table.expect(row));
            }
            let mut gradient: &[f32] = gradient_at(at);
            at += 1;
            if at < end && id(at) == row {
                sum.copy_from_slice(gradient);
                while at < end && id(at) == row {
                    zip_part(sum, None, Some(gradient_at(at)), |sum, d| sum + d);
                    at += 1;
                }
                gradient = sum;
            }
            let (w, first, second) = (w.row(row), first.row(row), second.row(row));
            match &mut master {
                None => rule.apply(w, gradient, first, second, &mut most),
                Some(master) => {
                    let master = master.row(row);
                    rule.apply(master, gradient, first, second, &mut most);
                    w.copy_from_slice(master);
                }
            }
        }
        if !most.finite() {
            finite.store(false, Ordering::Relaxed);
        }
    });
    Ok(finite.into_inner())
}
