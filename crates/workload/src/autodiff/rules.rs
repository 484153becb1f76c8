//! The rule of every forward kernel: which backward kernels it gets, and what they read.

use super::{Gradient, Tape};
use crate::graph::{Node, Op, PoolKind, Shape, ValueId};
use crate::trace::Role;

impl Tape<'_> {
    /// Writes the backward kernels of `node`, the gradients by whose results are known.
    pub(super) fn differentiate(&mut self, node: &Node) {
        let x = node.inputs.first().copied();
        let y = node.outputs[0];
        match &node.op {
            Op::CrossEntropy => {
                let rows = self.builder.shape(node.inputs[1]).elements();
                let op = Op::CrossEntropyBackward { rows };
                self.unary(node, op, |_| vec![node.outputs[1], node.inputs[1]]);
            }
            Op::BinaryCrossEntropy => {
                self.unary(node, Op::BinaryCrossEntropyBackward, |_| node.inputs.clone());
            }
            Op::MeanSquare => self.unary(node, Op::MeanSquareBackward, |_| node.inputs.clone()),
            Op::Conv(c) => {
                self.weighted(node, Op::ConvBackwardData(*c), Op::ConvBackwardWeight(*c));
            }
            Op::Linear => self.weighted(node, Op::LinearBackwardData, Op::LinearBackwardWeight),
            Op::MatMul { transpose_a, transpose_b } => self.product(node, *transpose_a, *transpose_b),
            Op::BatchNorm { .. } => self.norm(node, Op::BatchNormBackward),
            Op::LayerNorm { .. } => self.norm(node, Op::LayerNormBackward),
            Op::ResponseNorm(n) => {
                self.unary(node, Op::ResponseNormBackward(*n), |dy| vec![node.inputs[0], dy]);
            }
            Op::Activate(kind) => {
                let kept = if kind.keeps_result() { y } else { node.inputs[0] };
                self.unary(node, Op::ActivateBackward(*kind), |dy| vec![kept, dy]);
            }
            Op::Pool(pool) => {
                let with_input = pool.kind == PoolKind::Max;
                self.unary(node, Op::PoolBackward(*pool), |dy| {
                    if with_input { vec![node.inputs[0], dy] } else { vec![dy] }
                });
            }
            Op::GlobalPool => self.unary(node, Op::GlobalPoolBackward, |dy| vec![dy]),
            Op::Softmax => self.unary(node, Op::SoftmaxBackward, |dy| vec![y, dy]),
            Op::Scale { factor } => self.unary(node, Op::Scale { factor: *factor }, |dy| vec![dy]),
            Op::Dropout { rate, seed } => {
                let op = Op::DropoutBackward { rate: *rate, seed: *seed };
                self.unary(node, op, |dy| vec![dy]);
            }
            Op::Transpose { order } => {
                let mut inverse = vec![0; order.len()];
                order.iter().enumerate().for_each(|(to, from)| inverse[*from] = to);
                self.unary(node, Op::Transpose { order: inverse }, |dy| vec![dy]);
            }
            Op::Slice { axis, start, length } => {
                let extent = x.map_or(0, |x| self.builder.shape(x).dim(*axis));
                let op = Op::Pad { axis: *axis, before: *start, after: extent - start - length };
                self.unary(node, op, |dy| vec![dy]);
            }
            Op::Pad { axis, before, .. } => {
                let length = x.map_or(0, |x| self.builder.shape(x).dim(*axis));
                self.unary(node, Op::Slice { axis: *axis, start: *before, length }, |dy| vec![dy]);
            }
            Op::Add => {
                let dy = self.gradient(y);
                for operand in node.inputs.clone() {
                    self.pass(node, operand, dy);
                }
            }
            Op::Mul => self.scaled(node),
            Op::Concat { axis } => self.pieces(node, *axis),
            Op::Split { axis, .. } => {
                let dys: Vec<ValueId> = node.outputs.iter().map(|o| self.gradient(*o)).collect();
                self.one(node, Op::Concat { axis: *axis }, dys, node.inputs[0]);
            }
            Op::Attention(attention) => {
                let dy = self.gradient(y);
                let reads = [&node.inputs[..], &[node.outputs[1], dy]].concat();
                self.several(node, Op::AttentionBackward(*attention), reads, &node.inputs);
            }
            Op::DotInteraction => {
                let dy = self.gradient(y);
                let reads = [&node.inputs[..], &[dy]].concat();
                self.several(node, Op::DotInteractionBackward, reads, &node.inputs);
            }
            Op::Embedding { bag } => self.lookup(node, *bag),
            Op::LstmCell => self.cell(node),
            // No gradient passes a fill, and the others never stand in a forward pass.
            _ => {}
        }
    }

    /// One kernel for the gradient by the first operand; `reads` says what it reads, given the result's gradient.
    fn unary(&mut self, node: &Node, op: Op, reads: impl Fn(ValueId) -> Vec<ValueId>) {
        if !self.wants(node.inputs[0]) {
            return;
        }
        // A loss has the gradient 1, which its kernel knows.
        let dy = if self.is_loss[node.outputs[0].index()] {
            node.outputs[0]
        } else {
            self.gradient(node.outputs[0])
        };
        self.one(node, op, reads(dy), node.inputs[0]);
    }

    /// One kernel that computes the gradient by one value.
    fn one(&mut self, node: &Node, op: Op, reads: Vec<ValueId>, by: ValueId) {
        if self.wants(by) {
            let dx = self.fresh(by);
            self.builder.emit(&backward_name(node, &op), op, reads, vec![dx]);
            self.contribute(by, dx);
        }
    }

    /// One kernel that computes the gradients by several values at once, wanted or not.
    fn several(&mut self, node: &Node, op: Op, reads: Vec<ValueId>, by: &[ValueId]) -> Vec<ValueId> {
        let gradients: Vec<ValueId> = by.iter().map(|v| self.fresh(*v)).collect();
        self.builder.emit(&backward_name(node, &op), op, reads, gradients.clone());
        for (value, gradient) in by.iter().zip(&gradients) {
            if self.wants(*value) {
                self.contribute(*value, *gradient);
            }
        }
        gradients
    }

    /// A convolution or a linear layer: one kernel for the weight and the bias, one for the input. The weight's
    /// comes first, as in the frameworks, so that the input's gradient is born as late as possible.
    fn weighted(&mut self, node: &Node, data: Op, weight: Op) {
        let dy = self.gradient(node.outputs[0]);
        let (x, w) = (node.inputs[0], node.inputs[1]);
        if node.inputs[1..].iter().any(|p| self.wants(*p)) {
            self.several(node, weight, vec![x, dy], &node.inputs[1..]);
        }
        self.one(node, data, vec![w, dy], x);
    }

    /// y = a · b: da = dy · bᵀ and db = aᵀ · dy, transposed where the operands are stored so.
    fn product(&mut self, node: &Node, transpose_a: bool, transpose_b: bool) {
        let dy = self.gradient(node.outputs[0]);
        let (a, b) = (node.inputs[0], node.inputs[1]);
        let (reads, flags) = if transpose_a {
            (vec![b, dy], (transpose_b, true))
        } else {
            (vec![dy, b], (false, !transpose_b))
        };
        self.one(node, Op::MatMul { transpose_a: flags.0, transpose_b: flags.1 }, reads, a);
        let (reads, flags) = if transpose_b {
            (vec![dy, a], (true, transpose_a))
        } else {
            (vec![a, dy], (!transpose_a, false))
        };
        self.one(node, Op::MatMul { transpose_a: flags.0, transpose_b: flags.1 }, reads, b);
    }

    /// Batch norm and layer norm read their input again, and the statistics that they saved.
    fn norm(&mut self, node: &Node, op: Op) {
        let dy = self.gradient(node.outputs[0]);
        let reads = vec![node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[2], dy];
        self.several(node, op, reads, &node.inputs[..3]);
    }

    /// Passes `gradient` to an operand, summed over the axes along which the operand was stretched.
    fn pass(&mut self, node: &Node, operand: ValueId, gradient: ValueId) {
        if !self.wants(operand) {
            return;
        }
        if self.builder.shape(operand).elements() == self.builder.shape(gradient).elements() {
            self.contribute(operand, gradient);
        } else {
            self.one(node, Op::SumTo, vec![gradient], operand);
        }
    }

    /// y = a · b, b stretched to a.
    fn scaled(&mut self, node: &Node) {
        let dy = self.gradient(node.outputs[0]);
        let (a, b) = (node.inputs[0], node.inputs[1]);
        for (by, other) in [(a, b), (b, a)] {
            if !self.wants(by) {
                continue;
            }
            let full = self.fresh_of(by, self.builder.shape(node.outputs[0]));
            self.builder.emit(&backward_name(node, &Op::Mul), Op::Mul, vec![dy, other], vec![full]);
            self.pass(node, by, full);
        }
    }

    /// Each operand of a concatenation gets its slice.
    fn pieces(&mut self, node: &Node, axis: usize) {
        let dy = self.gradient(node.outputs[0]);
        let mut start = 0;
        for operand in &node.inputs {
            let length = self.builder.shape(*operand).dim(axis);
            self.one(node, Op::Slice { axis, start, length }, vec![dy], *operand);
            start += length;
        }
    }

    /// A table that nothing else reads keeps its gradient as rows; any other gets a dense one.
    fn lookup(&mut self, node: &Node, bag: bool) {
        let dy = self.gradient(node.outputs[0]);
        let (table, ids) = (node.inputs[0], node.inputs[1]);
        if !self.wants(table) {
            return;
        }
        let value = self.builder.graph.value(table);
        let alone = value.role == Role::Weight && self.users[table.index()] == 1;
        if alone && self.gradients[table.index()].is_none() {
            self.gradients[table.index()] = Some(Gradient::Rows { ids, rows: dy, bag });
        } else {
            let table_shape: Shape = value.shape;
            self.one(node, Op::EmbeddingBackward { bag, table: table_shape }, vec![ids, dy], table);
        }
    }

    /// What is known of the gradients by several values, if all of it comes from kernels of one kind and nothing else
    /// holds it: another such kernel may add to it in place.
    fn made_by(&self, op: &Op, by: &[ValueId]) -> Option<Vec<ValueId>> {
        let known = by.iter().map(|value| match self.gradients[value.index()] {
            Some(Gradient::Dense(known)) => Some(known),
            _ => None,
        });
        let known: Vec<ValueId> = known.collect::<Option<_>>()?;
        let maker = self.builder.graph.nodes.iter().rev().find(|node| node.outputs.contains(&known[0]))?;
        (maker.op == *op && maker.outputs == known).then_some(known)
    }

    /// An LSTM cell: the gates' gradients first, then the weights', which all time steps add up in one place.
    fn cell(&mut self, node: &Node) {
        let [x, h, c, wx, wh, bias] = node.inputs[..] else { return };
        let [out, cell, gates] = node.outputs[..] else { return };
        let (dh, dc) = (self.gradient(out), self.gradient(cell));
        let dgates = self.fresh(gates);
        let results = [self.fresh(x), self.fresh(h), self.fresh(c), dgates];
        let op = Op::LstmCellBackwardData;
        let reads = vec![c, cell, wx, wh, gates, dh, dc];
        self.builder.emit(&backward_name(node, &op), op, reads, results.to_vec());
        let (op, reads) = (Op::LstmCellBackwardWeight, vec![x, h, dgates]);
        if let Some(known) = self.made_by(&op, &[wx, wh, bias]) {
            let reads = [reads, known.clone()].concat();
            self.builder.emit(&backward_name(node, &op), op, reads, known);
        } else if [wx, wh, bias].iter().any(|w| self.wants(*w)) {
            self.several(node, op, reads, &[wx, wh, bias]);
        }
        for (value, gradient) in [x, h, c].into_iter().zip(results) {
            if self.wants(value) {
                self.contribute(value, gradient);
            }
        }
    }
}

/// The name of a backward kernel of `node`: `conv1.conv.backward-data`, `cat.concat.slice`.
fn backward_name(node: &Node, op: &Op) -> String {
    let kind = op.name();
    let kind = kind.rsplit_once('.').map_or(kind.as_str(), |(_, last)| last);
    format!("{}.{kind}", node.name)
}
