//! Execution blocks (DyNN-Offload, sections 6.4.2 and 6.4.4): the runs of kernels between which tensors are moved, found by
//! Sentinel's equations on a resolved trace; the record of them that the learned model predicts; and the three even splits
//! that the paper compares with (section 6.6.7).

use std::sync::Arc;

use tiercel_core::{Access, Bytes, Machine, Nanos, TierId};
use tiercel_policies::recording::{Item, Key, Moment, Recording};
use tiercel_policies::sentinel::interval::{bandwidth, choose};
use tiercel_policies::sentinel::need;
use tiercel_profile::accesses::PAGE;
use tiercel_profile::sharing::Life;
use tiercel_sim::KernelTime;
use tiercel_workload::trace::Role;
use tiercel_workload::{Lifetimes, TensorId, Trace, lifetimes};

use crate::operator::{GlobalIds, Operator};

/// The blocks that the learned model has room for, and the numbers of one.
pub const BLOCKS: usize = 16;
/// How many operators, the six idioms, the three dimensions.
pub const NUMBERS: usize = 10;
/// The outputs of the learned model.
pub const OUTPUTS: usize = BLOCKS * NUMBERS;

/// Where blocks start; the first is 0.
pub type Blocks = Vec<usize>;

/// How a trace is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// By Sentinel's equations.
    Sentinel,
    /// The same number of operators in each.
    Operators,
    /// The same time in each.
    Time,
    /// The same bytes of tensors in each.
    Sizes,
}

/// The time of each kernel with all its operands fast.
pub fn alone(trace: &Trace, machine: &Machine, times: &dyn KernelTime) -> Vec<Nanos> {
    let fast = |kernel: &tiercel_workload::Kernel| vec![TierId(0); kernel.reads.len() + kernel.writes.len()];
    trace.kernels.iter().map(|kernel| times.chosen(machine, kernel, &fast(kernel))).collect()
}

/// A trace as Sentinel's profile of an iteration.
fn recording(trace: &Trace, alone: &[Nanos]) -> Recording {
    let lives = Lifetimes::new(trace);
    let visits = lifetimes::visits(trace);
    let outlives = |at: &usize| trace.tensors[*at].persistent;
    let order: Vec<usize> = (0..trace.tensors.len())
        .filter(outlives)
        .chain((0..trace.tensors.len()).filter(|at| !outlives(at)))
        .collect();
    let given = trace.tensors.iter().filter(|tensor| tensor.persistent).count();
    let mut keys = vec![Key::Given(0); trace.tensors.len()];
    for (turn, at) in order.iter().enumerate() {
        keys[*at] = if turn < given { Key::Given(turn as u32) } else { Key::Born((turn - given) as u32) };
    }
    let mut writes = vec![Vec::new(); trace.tensors.len()];
    let mut moments = Vec::with_capacity(trace.kernels.len());
    for (step, kernel) in trace.kernels.iter().enumerate() {
        let mut operands = Vec::new();
        for used in &kernel.writes {
            writes[used.tensor.0 as usize].push(step as u32);
            operands.push((keys[used.tensor.0 as usize], Access::Write));
        }
        operands.extend(kernel.reads.iter().map(|used| (keys[used.tensor.0 as usize], Access::Read)));
        moments.push(Moment { operands, time: alone[step], visit: visits[step] });
    }
    let item = |at: &usize| {
        let tensor = &trace.tensors[*at];
        let id = TensorId(*at as u32);
        let life = lives.of(id);
        let uses: Vec<u32> = lives.uses(id).iter().map(|step| step.0).collect();
        let fed = tensor.role == Role::Input;
        let visit = |step: tiercel_core::Step| visits[step.0 as usize];
        Item {
            key: keys[*at],
            name: tensor.name.clone(),
            size: tensor.bytes,
            accesses: uses.len() as u64 * tensor.bytes.0.div_ceil(PAGE.0),
            birth: life.filter(|_| !tensor.persistent).map(|life| life.birth.0),
            retired: life.filter(|_| !tensor.persistent).map(|life| life.last.0),
            fed,
            writes: std::mem::take(&mut writes[*at]),
            life: match life.filter(|_| !tensor.persistent) {
                Some(life) if visit(life.birth) == visit(life.last) && !fed => {
                    Life::Short { visit: visit(life.birth) }
                }
                Some(life) if !fed => Life::Long { birth: visit(life.birth), last: visit(life.last) },
                _ => Life::Given,
            },
            uses,
        }
    };
    let items = order.iter().map(item).collect();
    Recording { items, given, outliving: given as u32, moments }
}

/// Cuts a trace for so much fast memory, into at most [`BLOCKS`] blocks.
pub fn cut(trace: &Trace, machine: &Machine, times: &dyn KernelTime, fast: Bytes, how: Cut) -> Blocks {
    let alone = alone(trace, machine, times);
    let recording = recording(trace, &alone);
    let reach = need::reach(&recording, PAGE);
    let terms = choose(&recording, &reach, fast, bandwidth(machine));
    let visits = recording.visits().max(1);
    let length = terms.length.max(visits.div_ceil(BLOCKS as u32));
    let blocks: Blocks = tiercel_workload::intervals::by_layers(trace, length)
        .iter()
        .map(|interval| interval.start.0 as usize)
        .collect();
    let weights: Vec<f64> = match how {
        Cut::Sentinel => return blocks,
        Cut::Operators => vec![1.0; trace.kernels.len()],
        Cut::Time => alone.iter().map(|time| time.0 as f64).collect(),
        Cut::Sizes => {
            let bytes = |kernel: &tiercel_workload::Kernel| {
                let used = kernel.reads.iter().chain(&kernel.writes);
                used.map(|used| trace.tensor(used.tensor).bytes.0 as f64).sum()
            };
            trace.kernels.iter().map(bytes).collect()
        }
    };
    evenly(&weights, blocks.len())
}

/// Cuts a row of weights into so many parts of about the same weight.
fn evenly(weights: &[f64], parts: usize) -> Blocks {
    let share = weights.iter().sum::<f64>() / parts.max(1) as f64;
    let (mut blocks, mut sum) = (vec![0], 0.0);
    for (at, weight) in weights.iter().enumerate() {
        if blocks.len() < parts && sum >= share * blocks.len() as f64 && at > *blocks.last().unwrap_or(&0) {
            blocks.push(at);
        }
        sum += weight;
    }
    blocks
}

/// How operators are told to the learned model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Representation {
    /// By idioms and dimensions.
    Idioms,
    /// By one number for each type: how many operators, then the numbers of the first nine of a block.
    GlobalIds,
}

/// What the learned model should say of a trace that is cut so: for each block how many operators it has, and their idioms
/// and dimensions added up. Dimensions are counted in thousands.
pub fn record(
    operators: &[Arc<Operator>],
    blocks: &[usize],
    how: (Representation, &mut GlobalIds),
) -> Vec<f32> {
    let (representation, ids) = how;
    let mut record = vec![0f32; OUTPUTS];
    for (at, start) in blocks.iter().take(BLOCKS).enumerate() {
        let end = blocks.get(at + 1).copied().unwrap_or(operators.len());
        let numbers = &mut record[at * NUMBERS..(at + 1) * NUMBERS];
        numbers[0] = (end - start) as f32;
        for (turn, operator) in operators[*start..end].iter().enumerate() {
            match representation {
                Representation::Idioms => {
                    for (at, number) in operator.nine().into_iter().enumerate() {
                        numbers[1 + at] += if at < 6 { number } else { number / 1000.0 } as f32;
                    }
                }
                Representation::GlobalIds if turn < NUMBERS - 1 => {
                    numbers[1 + turn] = ids.of(operator) as f32 + 1.0;
                }
                Representation::GlobalIds => {}
            }
        }
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::{ALL, Scale};
    use tiercel_profile::{Model, machines};

    #[test]
    fn every_network_is_cut_into_few_blocks() {
        let machine = machines::named("rtx6000").expect("it ships");
        let model = Model::new(&machine).expect("it has a model");
        for workload in &ALL {
            for way in workload.ways().iter().take(3) {
                let taped = workload.run(&way.path, workload.rows, Scale::Full);
                taped.trace.check().unwrap_or_else(|e| panic!("{}: {e}", workload.name));
                let peak = Lifetimes::new(&taped.trace).peak().1;
                let fast = Bytes(peak.0 / 4);
                let blocks = cut(&taped.trace, &machine, &model, fast, Cut::Sentinel);
                assert!(blocks.len() > 1 && blocks.len() <= BLOCKS, "{} {}", workload.name, blocks.len());
                for how in [Cut::Operators, Cut::Time, Cut::Sizes] {
                    let other = cut(&taped.trace, &machine, &model, fast, how);
                    assert!(
                        other.len() <= blocks.len() && other.windows(2).all(|p| p[0] < p[1]),
                        "{other:?}"
                    );
                }
                let record =
                    record(&taped.operators, &blocks, (Representation::Idioms, &mut GlobalIds::default()));
                let counted: f32 = record.chunks(NUMBERS).map(|block| block[0]).sum();
                assert_eq!(counted as usize, taped.trace.kernels.len());
            }
        }
    }
}
