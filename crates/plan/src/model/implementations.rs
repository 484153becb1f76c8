//! Kernels that can be done in several ways, faster for more scratch memory (AutoTM sections 7.1.4 to 7.1.6).
//!
//! The choice becomes one of places, so that every formulation, bound and solver knows it. The ways of a kernel that are
//! worth having stand in a row, each with more workspace and faster than the one before. What a way needs beyond the last
//! is a tensor of its own, which lives while the kernel runs: on the fastest tier it means that the way is taken, anywhere
//! else that it is not. When the plan is made, the trace is written anew with the ways that were chosen, each with its
//! workspace as a tensor like any other, and nobody who plays, verifies or packs it need know of choices.

use std::collections::HashSet;

use tiercel_core::{Bytes, Machine, Nanos, TierId};
use tiercel_sim::KernelTime;
use tiercel_workload::trace::{Alternative, Role, Tensor, TensorId, Use};
use tiercel_workload::{Kernel, Trace};

use crate::plan::{Implementation, Plan};

/// A way of doing a kernel: an alternative, or its own.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    /// The alternative, as a position in the kernel's list; `None` for its own implementation.
    alternative: Option<usize>,
    workspace: Bytes,
    factor: f64,
}

/// A trace whose choices are tensors.
pub(crate) struct Wide {
    pub(crate) trace: Trace,
    /// For each kernel, the ways it has and their tensors: as many less one.
    ways: Vec<(Vec<Way>, Vec<TensorId>)>,
}

/// The ways worth having: from the least workspace on, each faster than all before it.
fn ways(trace: &Trace, kernel: &Kernel) -> Vec<Way> {
    let own = Way { alternative: None, workspace: scratch(trace, kernel), factor: 1.0 };
    let others = kernel.alternatives.iter().enumerate().map(|(at, other)| Way {
        alternative: Some(at),
        workspace: other.workspace,
        factor: other.factor,
    });
    let mut all: Vec<Way> = std::iter::once(own).chain(others).collect();
    all.sort_by(|a, b| a.workspace.cmp(&b.workspace).then(a.factor.total_cmp(&b.factor)));
    let mut worth: Vec<Way> = Vec::new();
    for way in all {
        if worth.last().is_none_or(|last| way.factor < last.factor) {
            worth.push(way);
        }
    }
    worth
}

/// Whether an operand is scratch memory, which belongs to the implementation.
fn is_scratch(trace: &Trace, u: &Use) -> bool {
    trace.tensor(u.tensor).role == Role::Workspace
}

/// The scratch memory that a kernel is written with.
fn scratch(trace: &Trace, kernel: &Kernel) -> Bytes {
    kernel.writes.iter().filter(|u| is_scratch(trace, u)).map(|u| trace.tensor(u.tensor).bytes).sum()
}

/// The kernel at a step in one of its ways, with its workspace as one tensor.
fn rewrite(trace: &Trace, out: &mut Trace, taken: &mut HashSet<String>, step: usize, way: &Way) {
    if way.alternative.is_none() {
        return;
    }
    let kernel = &mut out.kernels[step];
    let before = kernel.writes.len();
    kernel.writes.retain(|u| !is_scratch(trace, u));
    kernel.factor = way.factor;
    let kept = kernel.writes.len() == before && way.workspace == Bytes::ZERO;
    if way.workspace > Bytes::ZERO {
        let tensor = new_tensor(&mut out.tensors, taken, &kernel.name, 0, way.workspace);
        kernel.writes.push(Use { tensor, bytes: way.workspace });
    }
    if !kept {
        // They are for other operands; where there are some, the workspace is taken to lie on the fastest tier.
        let operands = kernel.reads.len() + kernel.writes.len();
        for timing in &mut kernel.timings {
            timing.tiers.resize(operands, TierId(0));
        }
    }
}

fn new_tensor(
    tensors: &mut Vec<Tensor>,
    taken: &mut HashSet<String>,
    kernel: &str,
    number: usize,
    bytes: Bytes,
) -> TensorId {
    let mut name = match number {
        0 => format!("{kernel}.workspace"),
        more => format!("{kernel}.workspace.{more}"),
    };
    // A plan knows tensors by their names.
    while !taken.insert(name.clone()) {
        name.push('+');
    }
    tensors.push(Tensor { name, bytes, role: Role::Workspace, persistent: false });
    TensorId(tensors.len() as u32 - 1)
}

/// The names that tensors have already.
fn names(trace: &Trace) -> HashSet<String> {
    trace.tensors.iter().map(|tensor| tensor.name.clone()).collect()
}

/// Makes the choices of a trace tensors; `None` where there is nothing to choose.
pub(crate) fn widen(trace: &Trace) -> Option<Wide> {
    let mut wide = Wide { trace: trace.clone(), ways: Vec::with_capacity(trace.kernels.len()) };
    let mut taken = names(trace);
    for (step, kernel) in trace.kernels.iter().enumerate() {
        if kernel.alternatives.is_empty() {
            wide.ways.push((Vec::new(), Vec::new()));
            continue;
        }
        let ways = ways(trace, kernel);
        rewrite(trace, &mut wide.trace, &mut taken, step, &ways[0]);
        let Trace { tensors, kernels, .. } = &mut wide.trace;
        let (kernel, least) = (&mut kernels[step], ways[0].factor);
        let mut more = Vec::new();
        let mut faster = Vec::new();
        for (number, pair) in ways.windows(2).enumerate() {
            let bytes = Bytes(pair[1].workspace.0 - pair[0].workspace.0);
            let tensor = new_tensor(tensors, &mut taken, &kernel.name, number + 1, bytes);
            // Its bytes count, its traffic is in the factor.
            kernel.writes.push(Use { tensor, bytes });
            kernel.timings.iter_mut().for_each(|timing| timing.tiers.push(TierId(0)));
            more.push(tensor);
            let name = format!("more.{}", number + 1);
            faster.push(Alternative { name, workspace: pair[1].workspace, factor: pair[1].factor / least });
        }
        kernel.alternatives = faster;
        wide.ways.push((ways, more));
    }
    let any =
        wide.ways.iter().any(|(ways, _)| ways.len() > 1 || ways.iter().any(|w| w.alternative.is_some()));
    any.then_some(wide)
}

/// Kernel times that know what the tensors of choices mean.
pub(crate) struct ByWay<'a>(pub(crate) &'a dyn KernelTime);

impl KernelTime for ByWay<'_> {
    fn untouched(&self, kernel: &Kernel) -> usize {
        kernel.alternatives.len()
    }

    fn time(&self, machine: &Machine, kernel: &Kernel, tiers: &[TierId]) -> Nanos {
        if kernel.alternatives.is_empty() {
            return self.0.time(machine, kernel, tiers);
        }
        let (rest, more) = tiers.split_at(tiers.len() - kernel.alternatives.len());
        let taken = more.iter().take_while(|tier| **tier == TierId(0)).count();
        let factor = taken.checked_sub(1).map_or(1.0, |last| kernel.alternatives[last].factor);
        let mut bare = kernel.clone();
        bare.writes.truncate(rest.len() - bare.reads.len());
        bare.timings.iter_mut().for_each(|timing| timing.tiers.truncate(rest.len()));
        Nanos((self.0.time(machine, &bare, rest).0 as f64 * factor).round() as u64)
    }
}

impl Wide {
    /// Reads the choices off a plan for the wide trace, writes them down in it, and takes their tensors out of it; the
    /// trace that it is for then.
    pub(crate) fn settle(&self, trace: &Trace, plan: &mut Plan, machine: &Machine) -> Trace {
        let fastest = &machine.tiers[0].name;
        let away: HashSet<&str> =
            plan.births.iter().filter(|b| b.tier != *fastest).map(|b| b.tensor.as_str()).collect();
        let mut chosen = Vec::new();
        let mut made: HashSet<String> = HashSet::new();
        for (step, (ways, more)) in self.ways.iter().enumerate() {
            let name = |id: &TensorId| self.trace.tensor(*id).name.as_str();
            let taken = more.iter().take_while(|id| !away.contains(name(id))).count();
            made.extend(more.iter().map(|id| name(id).to_string()));
            if let Some(at) = ways.get(taken).and_then(|way| way.alternative) {
                let kernel = &trace.kernels[step];
                let (kernel, name) = (kernel.name.clone(), kernel.alternatives[at].name.clone());
                chosen.push(Implementation { step: step as u32, kernel, name });
            }
        }
        plan.births.retain(|birth| !made.contains(&birth.tensor));
        plan.moves.retain(|m| !made.contains(&m.tensor));
        plan.implementations = chosen;
        implemented(trace, &plan.implementations).expect("the alternatives are the trace's own")
    }
}

/// A trace with kernels done in the ways that a plan has chosen; otherwise which of them it does not know.
pub fn implemented(trace: &Trace, chosen: &[Implementation]) -> Result<Trace, Implementation> {
    let mut out = trace.clone();
    let mut taken = names(trace);
    for choice in chosen {
        let kernel = trace.kernels.get(choice.step as usize).filter(|kernel| kernel.name == choice.kernel);
        let found = kernel.and_then(|kernel| {
            let at = kernel.alternatives.iter().position(|other| other.name == choice.name)?;
            Some((at, &kernel.alternatives[at]))
        });
        let Some((at, other)) = found else { return Err(choice.clone()) };
        let way = Way { alternative: Some(at), workspace: other.workspace, factor: other.factor };
        rewrite(trace, &mut out, &mut taken, choice.step as usize, &way);
    }
    for kernel in &mut out.kernels {
        kernel.alternatives.clear();
    }
    Ok(out)
}
