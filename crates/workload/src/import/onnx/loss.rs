//! The loss of an imported network, which its file does not state.
//!
//! How a graph ends tells how it was trained. A final softmax, or logits of batch by classes, asks for a cross-entropy; so
//! does a linear layer at the end of a sequence model, whose outputs are the logits of the next words. A final sigmoid asks
//! for a binary cross-entropy. Both losses contain the function they follow, which is therefore left out: training
//! frameworks work on logits too. Whatever else a graph returns is held to targets of its own shape by the mean of squares.

use super::lower::{Item, Lowering, Outcome, Softened, short, softened};
use super::model::Model;
use super::plan::{End, EndKind};
use crate::graph::{Init, Op, Shape, ValueId};

/// Adds the loss of one result; `None` where none can be taken, as of whole numbers.
pub(super) fn add<'a>(
    low: &mut Lowering<'a>,
    model: &'a Model<'a>,
    end: End<'a>,
) -> Outcome<Option<ValueId>> {
    let Item::Data(mut x) = low.item(end.source)? else { return Ok(None) };
    if low.builder.graph().values.get(x.index()).is_none_or(|v| v.dtype.is_integer()) {
        return Ok(None);
    }
    let shape = low.builder.shape(x);
    let mut logits = None;
    match end.kind {
        EndKind::Softmax(at) => {
            match model.nodes.get(at).map(|node| softened(low.opset, node, shape)).transpose()? {
                Some(Softened::View(view)) => logits = Some(view),
                Some(Softened::Move(axis)) => {
                    let mut order: Vec<usize> = (0..shape.rank()).collect();
                    order.swap(axis, shape.rank() - 1);
                    x = low.builder.apply(Op::Transpose { order }, &[x]);
                    logits = Some(low.builder.shape(x));
                }
                None => {}
            }
        }
        EndKind::Sigmoid => return Ok(Some(against(low, Op::BinaryCrossEntropy, x, end.output))),
        EndKind::Linear if shape.rank() == 3 => logits = Some(shape),
        EndKind::Linear | EndKind::Other => logits = classes(shape),
    }
    Ok(Some(match logits.filter(|view| view.last() > 1) {
        Some(view) => {
            let x = low.view(x, view);
            low.builder.cross_entropy(x, &format!("{}.labels", short(end.output)))
        }
        None => against(low, Op::MeanSquare, x, end.output),
    }))
}

/// Batch by classes, less axes of extent 1 behind them.
fn classes(shape: Shape) -> Option<Shape> {
    match shape.dims() {
        [batch, classes, rest @ ..] if rest.iter().all(|d| *d == 1) => Some(Shape::from([*batch, *classes])),
        _ => None,
    }
}

/// A loss against targets of the same shape.
fn against(low: &mut Lowering<'_>, op: Op, x: ValueId, output: &str) -> ValueId {
    let (shape, dtype) = (low.builder.shape(x), low.builder.dtype());
    let targets =
        low.builder.outside(&format!("{}.targets", short(output)), shape, dtype, Init::Constant(1.0));
    let loss = low.builder.apply(op, &[x, targets]);
    low.builder.keep(loss);
    loss
}
