//! What a kernel costs: multiply-adds, floating-point operations and bytes moved, all in one place.
//!
//! Multiply-adds count the work that papers count (convolutions, matrix products, attention); operations add the
//! element-wise work, a multiply-add counted as two. Bytes assume that a kernel passes over an operand once, which
//! holds for kernels that block for the cache; the exceptions are listed in [`reads`].

use tiercel_core::Bytes;

use super::op::{Activation, Op};
use super::{Graph, Node, ValueId};

/// Elements of operand `at`.
fn operand(graph: &Graph, node: &Node, at: usize) -> u64 {
    node.inputs.get(at).map_or(0, |v| graph.value(*v).shape.elements())
}

/// Elements of so many operands from `first` on.
fn operands(graph: &Graph, node: &Node, first: usize, count: usize) -> u64 {
    (first..first + count).map(|at| operand(graph, node, at)).sum()
}

/// Elements of result `at`.
fn result(graph: &Graph, node: &Node, at: usize) -> u64 {
    node.outputs.get(at).map_or(0, |v| graph.value(*v).shape.elements())
}

/// The multiply-adds of kernels that multiply matrices; zero for all others.
pub fn macs(graph: &Graph, node: &Node) -> u64 {
    let operand = |at| operand(graph, node, at);
    let result = |at| result(graph, node, at);
    let dim = |values: &[ValueId], at: usize, axis| {
        values.get(at).map_or(1, |v: &ValueId| graph.value(*v).shape.dim(axis)).max(1)
    };
    let last = |at: usize| node.inputs.get(at).map_or(1, |v| graph.value(*v).shape.last()).max(1);
    match &node.op {
        // Every element of the unstrided side meets the taps of one filter.
        Op::Conv(c) => {
            let side = if c.transposed { operand(0) } else { result(0) };
            side.saturating_mul(operand(1) / dim(&node.inputs, 1, 0))
        }
        Op::ConvBackwardData(c) => {
            let side = if c.transposed { result(0) } else { operand(1) };
            side.saturating_mul(operand(0) / dim(&node.inputs, 0, 0))
        }
        Op::ConvBackwardWeight(c) => {
            let parts = node.parts();
            let side = operands(graph, node, if c.transposed { 0 } else { parts }, parts);
            side.saturating_mul(result(0) / dim(&node.outputs, 0, 0))
        }
        Op::Linear => result(0).saturating_mul(last(0)),
        Op::LinearBackwardData => result(0).saturating_mul(last(1)),
        Op::LinearBackwardWeight => operand(0).saturating_mul(last(1)),
        Op::LinearBackwardUpdate { data, .. } => {
            operand(0).saturating_mul(last(1)).saturating_mul(1 + u64::from(*data))
        }
        Op::MatMul { transpose_a, .. } => {
            let shape = node.inputs.first().map(|v| graph.value(*v).shape);
            let k = shape.map_or(1, |s| {
                let from_end = if *transpose_a { 2 } else { 1 };
                s.dims().iter().rev().nth(from_end - 1).copied().unwrap_or(1)
            });
            result(0).saturating_mul(k)
        }
        Op::Attention(_) => operand(0).saturating_mul(2 * dim(&node.inputs, 0, 1)),
        Op::AttentionBackward(_) => operand(0).saturating_mul(4 * dim(&node.inputs, 0, 1)),
        Op::LstmCell => dim(&node.inputs, 0, 0).saturating_mul(operand(3).saturating_add(operand(4))),
        Op::LstmCellBackwardData => {
            dim(&node.inputs, 0, 0).saturating_mul(operand(2).saturating_add(operand(3)))
        }
        Op::LstmCellBackwardWeight => {
            dim(&node.inputs, 0, 0).saturating_mul(result(0).saturating_add(result(1)))
        }
        Op::DotInteraction => {
            let n = node.inputs.len() as u64;
            operand(0).saturating_mul(n * (n - 1) / 2)
        }
        Op::DotInteractionBackward => {
            let n = node.outputs.len() as u64;
            operand(0).saturating_mul(n * n.saturating_sub(1))
        }
        _ => 0,
    }
}

/// Floating-point operations, a multiply-add counted as two.
pub fn flops(graph: &Graph, node: &Node) -> u64 {
    let elements = operands(graph, node, 0, node.parts()).max(result(graph, node, 0));
    let each = match &node.op {
        Op::Conv(_) | Op::Linear => u64::from(node.inputs.len() > 2),
        Op::BatchNorm { .. } | Op::LayerNorm { .. } => 8,
        Op::BatchNormBackward | Op::LayerNormBackward => 11,
        Op::ResponseNorm(norm) => norm.size.saturating_mul(2).saturating_add(3),
        Op::ResponseNormBackward(norm) => norm.size.saturating_mul(4).saturating_add(6),
        Op::Activate(Activation::Gelu | Activation::GeluTanh) => 10,
        Op::ActivateBackward(Activation::Gelu | Activation::GeluTanh) => 16,
        Op::Activate(Activation::Sigmoid | Activation::Tanh | Activation::Exp) => 4,
        Op::Activate(Activation::Power { .. } | Activation::Erf) => 8,
        Op::ActivateBackward(Activation::Power { .. } | Activation::Erf) => 9,
        Op::Pool(p) => {
            let taps = p.window[0].saturating_mul(p.window[1]);
            return result(graph, node, 0).saturating_mul(taps);
        }
        Op::PoolBackward(p) => {
            let dy = node.inputs.last().map_or(0, |v| graph.value(*v).shape.elements());
            return dy.saturating_mul(p.window[0].saturating_mul(p.window[1]));
        }
        Op::Softmax | Op::CrossEntropy | Op::BinaryCrossEntropy => 5,
        Op::SoftmaxBackward | Op::CrossEntropyBackward { .. } | Op::BinaryCrossEntropyBackward => 3,
        Op::MeanSquare | Op::MeanSquareBackward => 3,
        Op::Attention(_) => 0,
        Op::LstmCell | Op::LstmCellBackwardData => {
            let gates = node.outputs.get(if node.op == Op::LstmCell { 2 } else { 3 });
            let elements = gates.map_or(0, |v| graph.value(*v).shape.elements());
            return macs(graph, node).saturating_mul(2).saturating_add(elements.saturating_mul(8));
        }
        Op::Embedding { bag: true } | Op::EmbeddingBackward { .. } => {
            return touched_rows(graph, node).saturating_mul(row(graph, node));
        }
        Op::UpdateRows { optimizer, .. } => {
            let rows = touched_rows(graph, node).saturating_mul(row(graph, node));
            return rows.saturating_mul(4 * (1 + optimizer.states().len() as u64));
        }
        Op::LinearBackwardUpdate { optimizer, bias, .. } => {
            let states = optimizer.states().len();
            // The bias comes after the weights and their states.
            let bias = if *bias { operand(graph, node, 3 + states) } else { 0 };
            let changed =
                operand(graph, node, 2).saturating_add(bias).saturating_mul(4 * (1 + states as u64));
            return macs(graph, node).saturating_mul(2).saturating_add(changed);
        }
        Op::Update(optimizer) => 4 * (1 + optimizer.states().len() as u64),
        Op::Activate(_) | Op::ActivateBackward(_) | Op::Add | Op::Mul | Op::Scale { .. } | Op::SumTo => 1,
        Op::Dropout { .. } | Op::DropoutBackward { .. } => 1,
        Op::GlobalPool | Op::GlobalPoolBackward | Op::Mean => 1,
        _ => 0,
    };
    let elementwise = match &node.op {
        Op::Conv(_) | Op::Linear => result(graph, node, 0),
        _ => elements,
    };
    macs(graph, node).saturating_mul(2).saturating_add(elementwise.saturating_mul(each))
}

/// How many rows of a table a kernel looks up or changes.
fn touched_rows(graph: &Graph, node: &Node) -> u64 {
    let ids = if let Op::EmbeddingBackward { .. } = node.op { 0 } else { 1 };
    operand(graph, node, ids)
}

/// The width of the rows that a kernel looks up or changes.
fn row(graph: &Graph, node: &Node) -> u64 {
    match &node.op {
        Op::EmbeddingBackward { table, .. } => table.last(),
        _ => node.inputs.first().map_or(0, |v| graph.value(*v).shape.last()),
    }
}

/// The bytes that a kernel reads of every operand: all of it once, except that a table gives only the rows asked
/// for, and that batch norms pass twice over what they normalise.
pub fn reads(graph: &Graph, node: &Node) -> impl Iterator<Item = (ValueId, Bytes)> {
    let parts = node.parts();
    // In parts: what is normalised, or what the gradient comes from; then three or four small ones; the gradient.
    let normalised = move |at: usize| at < parts || (node.op == Op::BatchNormBackward && at >= parts + 3);
    node.inputs.iter().enumerate().map(move |(at, id)| {
        let value = graph.value(*id);
        let whole = value.shape.bytes(value.dtype);
        let rows = || {
            let touched = touched_rows(graph, node).saturating_mul(row(graph, node));
            Bytes(touched.saturating_mul(value.dtype.size())).min(whole)
        };
        let bytes = match (&node.op, at) {
            (Op::Embedding { .. }, 0) => rows(),
            (Op::UpdateRows { .. }, 0 | 3..) => rows(),
            (Op::BatchNorm { .. } | Op::BatchNormBackward, at) if normalised(at) => {
                Bytes(whole.0.saturating_mul(2))
            }
            _ => whole,
        };
        (*id, bytes)
    })
}

/// The bytes that a kernel writes of every result: all of it once, except that an update of rows writes only those.
pub fn writes(graph: &Graph, node: &Node) -> impl Iterator<Item = (ValueId, Bytes)> {
    node.outputs.iter().map(move |id| {
        let value = graph.value(*id);
        let whole = value.shape.bytes(value.dtype);
        let bytes = match &node.op {
            Op::UpdateRows { .. } => {
                let touched = touched_rows(graph, node).saturating_mul(row(graph, node));
                Bytes(touched.saturating_mul(value.dtype.size())).min(whole)
            }
            _ => whole,
        };
        (*id, bytes)
    })
}
