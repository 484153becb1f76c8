//! A network as something to train: its training iteration, the pass that judges it, and what its inputs hold.

use std::collections::HashMap;
use std::sync::Arc;

use tiercel_workload::graph::{Op, Optimizer, ValueId};
use tiercel_workload::inference::inference;
use tiercel_workload::trace::Role;
use tiercel_workload::{Program, schedule};

use super::data::{self, Data, DataError, Input, Part};

/// What to train.
#[derive(Clone, Debug)]
pub struct Task {
    /// One iteration of training.
    pub training: Arc<Program>,
    /// The forward pass that judges the network; `None` where it has no labels to be judged by.
    pub evaluation: Option<Arc<Program>>,
    /// Samples in a batch.
    pub batch: u64,
}

impl Task {
    /// Training of this program with batches of so many samples. `prepare` gives kernels the workspace that they need
    /// ([`kernels::prepare`](tiercel_kernels::prepare)).
    pub fn new(program: Program, batch: u64, prepare: impl Fn(Program) -> Program) -> Task {
        let judged = program.graph.nodes.iter().any(|node| node.op == Op::CrossEntropy);
        let evaluation =
            judged.then(|| Program::new(inference(&program.graph), schedule::ScheduleOptions::default()));
        let evaluation = evaluation.map(|program| Arc::new(prepare(program)));
        Task { training: Arc::new(prepare(program)), evaluation, batch }
    }

    /// The same training by another program that computes the same: what a system made of this one. The network is judged
    /// with that program's weights, so they have the same parts.
    pub fn played_as(&self, program: Arc<Program>) -> Task {
        let evaluation =
            self.evaluation.as_ref().map(|own| own.with_weights_like(&program).map_or(own.clone(), Arc::new));
        Task { training: program, evaluation, ..self.clone() }
    }

    /// The inputs that are fed anew for every iteration.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        let graph = &self.training.graph;
        let fed = |v: &ValueId| {
            let value = graph.value(*v);
            value.role == Role::Input && !value.persistent && value.view_of.is_none()
        };
        let ids = (0..graph.values.len() as u32).map(ValueId).filter(fed);
        ids.map(|id| Input { value: graph.value(id), part: data::part(graph, id), batch: self.batch })
            .collect()
    }

    /// Whether this data can feed the network.
    pub fn check(&self, data: &dyn Data) -> Result<(), DataError> {
        data.check(&self.inputs())
    }

    /// What the inputs hold, by name.
    pub(crate) fn parts(&self) -> HashMap<String, Part> {
        self.inputs().into_iter().map(|input| (input.value.name.clone(), input.part)).collect()
    }

    /// Whether time steps are the outermost axis of words, as in an unrolled recurrent network.
    pub(crate) fn time_first(&self) -> bool {
        self.training.graph.nodes.iter().any(|node| node.op == Op::LstmCell)
    }

    /// The learning rate of the first update, before any schedule.
    pub fn rate(&self) -> Option<f32> {
        self.training.graph.nodes.iter().find_map(|node| match node.op.optimizer()? {
            Optimizer::Sgd { rate, .. } | Optimizer::AdamW { rate, .. } => Some(rate),
        })
    }
}

/// The program with this learning rate in all its updates.
pub fn with_rate(mut program: Program, rate: f32) -> Program {
    for node in &mut program.graph.nodes {
        if let Op::Update(optimizer)
        | Op::UpdateRows { optimizer, .. }
        | Op::LinearBackwardUpdate { optimizer, .. } = &mut node.op
        {
            match optimizer {
                Optimizer::Sgd { rate: old, .. } | Optimizer::AdamW { rate: old, .. } => *old = rate,
            }
        }
    }
    program
}
