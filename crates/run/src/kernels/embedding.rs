//! Rows of tables: looking them up, their gradient, and updates of just those rows.

use tiercel_workload::graph::Optimizer;

use super::args::{Args, Call};
use super::elementwise::zip_part;
use super::pool::{Disjoint, part};
use super::{room, update};

/// How many ids share one row of results.
fn bag_of(ids: tiercel_workload::graph::Shape, bag: bool) -> usize {
    if bag { ids.last() as usize } else { 1 }
}

pub(super) fn forward(mut args: Args<'_, '_>, bag: bool) -> Result<(), String> {
    let (table, ids, y) = (args.read(0)?, args.ids(1)?, args.write(0)?);
    let width = args.call.last(0);
    ids.check(args.call.dim(0, 0))?;
    let bag = bag_of(args.call.inputs[1].shape, bag);
    args.pool.rows(y, width, |start, y| {
        for (i, y) in y.chunks_exact_mut(width).enumerate() {
            let at = (start + i) * bag;
            y.copy_from_slice(&table[ids.at(at) * width..][..width]);
            for next in at + 1..at + bag {
                zip_part(y, None, Some(&table[ids.at(next) * width..][..width]), |y, row| y + row);
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

/// Scratch numbers of an update of rows: the ids in order, and one row of gradients for each thread.
pub(super) fn scratch(call: &Call, threads: usize) -> usize {
    room(2 * call.len(1)) + threads * room(call.last(0))
}

pub(super) fn update_rows(mut args: Args<'_, '_>, optimizer: Optimizer, bag: bool) -> Result<(), String> {
    let (ids, drows) = (args.ids(1)?, args.read(2)?);
    let width = args.call.last(0);
    ids.check(args.call.dim(0, 0))?;
    if ids.len() > u32::MAX as usize || args.call.dim(0, 0) > u32::MAX as usize {
        return Err(format!("{} ids of {} rows; 32 bits count them", ids.len(), args.call.dim(0, 0)));
    }
    let bag = bag_of(args.call.inputs[1].shape, bag);
    let states = optimizer.states().len();
    let w = Disjoint::new(args.write(0)?);
    let first = Disjoint::new(if states > 0 { args.write(1)? } else { &mut [] });
    let second = Disjoint::new(if states > 1 { args.write(2)? } else { &mut [] });
    let master = args.write_optional(1 + states)?.map(Disjoint::new);
    let (order, sums) = args.scratch().split_at_mut(room(2 * ids.len()));
    // Ids with their places, so that equal ids stand together and in order.
    let order: &mut [u64] =
        bytemuck::try_cast_slice_mut(&mut order[..2 * ids.len()]).map_err(|e| e.to_string())?;
    order.iter_mut().enumerate().for_each(|(at, o)| *o = (ids.at(at) as u64) << 32 | at as u64);
    order.sort_unstable();
    let order = &*order;
    let (moment, threads, each) = (args.moment, args.pool.threads(), room(width));
    let sums = Disjoint::new(sums);
    let id = |at: usize| (order[at] >> 32) as usize;
    // A thread begins where a new id does.
    let begin =
        |at: usize| (at..order.len()).find(|at| *at == 0 || id(*at) != id(*at - 1)).unwrap_or(order.len());
    args.pool.run(&|index| {
        let part = part(order.len(), threads, index);
        let (mut at, end) = (begin(part.start), begin(part.end));
        // SAFETY: every thread has a row of its own here, and below the rows of ids that no other thread has.
        let sum = &mut unsafe { sums.range(index * each..(index + 1) * each) }[..width];
        while at < end {
            let row = id(at);
            sum.fill(0.0);
            while at < end && id(at) == row {
                let place = (order[at] as u32) as usize / bag;
                zip_part(sum, None, Some(&drows[place * width..][..width]), |sum, d| sum + d);
                at += 1;
            }
            let range = |n: bool| if n { row * width..(row + 1) * width } else { 0..0 };
            // SAFETY: as above.
            let (w, first, second) = unsafe {
                (w.range(range(true)), first.range(range(states > 0)), second.range(range(states > 1)))
            };
            match master {
                None => update::apply(optimizer, moment, w, sum, first, second),
                Some(master) => {
                    // SAFETY: as above.
                    let master = unsafe { master.range(range(true)) };
                    update::apply(optimizer, moment, master, sum, first, second);
                    w.copy_from_slice(master);
                }
            }
        }
    });
    Ok(())
}
