//! One kernel for all that changes a weight or a part of it: the gradient by the layer's operand, the weight's own gradient, and
//! the update, of the bias, too.
//!
//! Where updates are early, these kernels follow each other for every part, and the gradient of a part lives from one to the
//! next only. A kernel that does all of it reads the part once and writes it once, and makes of its gradient a piece at a time,
//! so the gradient is never a tensor. Weights that stay whole have the same where others are in parts. LOMO (Lv et al. 2023, "Full parameter fine-tuning for large language models with limited
//! resources") fuses gradient and update of whole layers in this way. Numbers and the order in which they are summed are
//! those of the single kernels.

use tiercel_core::Bytes;

use super::weights::OUTPUTS;
use crate::graph::{DType, Graph, Node, Op, Optimizer, ValueId};
use crate::trace::{Derived, Phase};

/// The pieces of a gradient that such a kernel has at a time, on all threads together: its scratch memory is at most so much
/// more than the larger one of the kernels that it stands for.
pub const PIECE: Bytes = Bytes(256 << 10);

/// The kernels of a layer that one can stand for, by their positions in the row, and that of the bias among the updates that
/// come after it.
pub(super) struct Fused {
    weight: usize,
    data: Option<usize>,
    update: usize,
    pub(super) bias: Option<usize>,
    name: String,
    optimizer: Optimizer,
}

impl Fused {
    /// How these kernels, which take a part of a weight one after the other, can be one; `None` where they cannot.
    pub(super) fn of(graph: &Graph, row: &[&Node], after: &[&Node]) -> Option<Fused> {
        let find = |wanted: fn(&Op) -> bool| row.iter().position(|node| wanted(&node.op));
        let weight = find(|op| *op == Op::LinearBackwardWeight)?;
        let data = find(|op| *op == Op::LinearBackwardData);
        let update = find(|op| matches!(op, Op::Update(_)))?;
        let (gradient, dy) = (row[weight].outputs[0], row[weight].inputs[1]);
        let Op::Update(optimizer) = row[update].op else { return None };
        // Nothing else comes between, all meet the same weight and the same gradient of the results, and what is added to a
        // gradient of weights would have to be kept.
        let alone = row.len() == 2 + usize::from(data.is_some()) && update + 1 == row.len();
        let plain = row[weight].inputs.len() == 2 && row[update].inputs[1] == gradient;
        let same = data.is_none_or(|at| row[at].inputs == [row[update].inputs[0], dy]);
        let users = |v| graph.nodes.iter().filter(|node| touches(graph, node, v)).count();
        let many = graph.value(gradient).shape.dim(0) > OUTPUTS;
        if !(alone && plain && same && many && users(gradient) == 2) {
            return None;
        }
        // The bias changes in the same way, and its gradient has room beside that of the weights.
        let slope = row[weight].outputs.get(1).filter(|v| users(**v) == 2);
        let changes = |node: &&Node| node.op == row[update].op && node.inputs.get(1) == slope;
        let plain = |node: &&Node| {
            let value = graph.value(node.inputs[0]);
            let (small, states) = (value.shape.bytes(value.dtype) <= PIECE, optimizer.states().len());
            small && value.dtype == DType::F32 && value.shape.rank() == 1 && node.inputs.len() == 2 + states
        };
        let bias = slope.and_then(|_| after.iter().position(|node| changes(node) && plain(node)));
        let op = Op::LinearBackwardUpdate { optimizer, data: data.is_some(), bias: bias.is_some() };
        let name = sibling(&row[weight].name, &op.name());
        Some(Fused { weight, data, update, bias, name, optimizer })
    }

    /// The one kernel, from those of a row like the one that was looked at, and the update of the bias where it has one.
    pub(super) fn node(&self, row: &[&Node], bias: Option<&Node>) -> Node {
        let (weight, update) = (row[self.weight], row[self.update]);
        let data = self.data.map(|at| row[at]);
        let mut inputs = vec![weight.inputs[0], weight.inputs[1], update.inputs[0]];
        inputs.extend(&update.inputs[2..]);
        inputs.extend(bias.iter().flat_map(|bias| bias.inputs.iter().take(1).chain(&bias.inputs[2..])));
        inputs.extend(data.and_then(|data| data.inputs.get(2)));
        let mut outputs = update.outputs.clone();
        outputs.extend(bias.iter().flat_map(|bias| &bias.outputs));
        outputs.extend(data.map(|data| data.outputs[0]));
        outputs.extend(weight.outputs[1..].iter().filter(|_| bias.is_none()));
        let (optimizer, data, bias) = (self.optimizer, data.is_some(), bias.is_some());
        let op = Op::LinearBackwardUpdate { optimizer, data, bias };
        let (name, layer, derived) = (self.name.clone(), weight.layer, Derived::default());
        Node { name, op, inputs, outputs, layer, phase: Phase::Backward, derived }
    }
}

/// The names of the two large kernels that one of this type and this name, without the part, stands for, if it does for any;
/// there may be only the first.
pub fn stands_for(op: &str, name: &str) -> Option<[String; 2]> {
    let single = [Op::LinearBackwardWeight, Op::LinearBackwardData];
    let fused = op.starts_with("linear.backward-") && single.iter().all(|single| single.name() != op);
    fused.then(|| single.map(|single| sibling(name, &single.name())))
}

/// The name of another backward kernel of the same layer: kernels are called after what they differentiate and what they do.
fn sibling(name: &str, op: &str) -> String {
    let (layer, _) = name.rsplit_once('.').unwrap_or((name, ""));
    let (_, does) = op.rsplit_once('.').unwrap_or(("", op));
    format!("{layer}.{does}")
}

/// Whether a kernel reads or writes a value, by whatever name.
fn touches(graph: &Graph, node: &Node, value: ValueId) -> bool {
    node.inputs.iter().chain(&node.outputs).any(|v| graph.root(*v) == graph.root(value))
}
