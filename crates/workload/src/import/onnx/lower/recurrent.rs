//! LSTM layers, unrolled: one cell a time step, all with the same weights.
//!
//! ONNX keeps two biases, one for the input and one for the state; both are parameters here too, and their sum goes into
//! the cells. The order of the gates inside a weight differs from the kernel's, which is no more than a naming of rows.

use super::linear::spread;
use super::{Item, Lowering, Outcome};
use crate::graph::{Init, Op, Shape, ValueId};
use crate::import::onnx::model::Node;

pub(super) fn lstm<'a>(low: &mut Lowering<'a>, node: &Node<'a>) -> Outcome {
    let refuse = |what: &str| Err(format!("`LSTM` with {what} is not supported"));
    if node.int("layout", 0)? != 0 {
        return refuse("`layout` of 1");
    }
    if node.int("input_forget", 0)? != 0 || node.float("clip", 0.0)? != 0.0 {
        return refuse("`input_forget` or `clip`");
    }
    let usual = ["Sigmoid", "Tanh", "Tanh"];
    if node.texts("activations")?.iter().enumerate().any(|(at, name)| *name != usual[at % 3]) {
        return refuse("other functions than the usual ones");
    }
    if !node.input(4).is_empty() {
        return refuse("lengths of sequences");
    }
    if !node.input(7).is_empty() {
        return refuse("peepholes");
    }
    let reverse: &[bool] = match node.text("direction")? {
        "" | "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return refuse(&format!("the direction `{other}`")),
    };
    let (x, w, r) = (low.shape(node.input(0))?, low.shape(node.input(1))?, low.shape(node.input(2))?);
    let ways = reverse.len() as u64;
    let (steps, batch, inputs, width) = (x.dim(0), x.dim(1), x.dim(2), r.last());
    let four = width.saturating_mul(4);
    if x.rank() != 3 || w != Shape::from([ways, four, inputs]) || r != Shape::from([ways, four, width]) {
        return Err(format!("input {x} and weights {w}, {r} do not fit"));
    }
    low.unroll(steps.saturating_mul(ways))?;
    low.start(node);
    let title = super::title(node);
    let x = low.operand(node, 0)?;
    let pieces = match steps {
        1 => vec![x],
        _ => low.builder.split(x, 0, steps),
    };
    let inputs: Vec<ValueId> = pieces.iter().map(|piece| low.view(*piece, [batch, inputs])).collect();
    let state = Shape::from([batch, width]);
    let (mut all, mut last_h, mut last_c) = (Vec::new(), Vec::new(), Vec::new());
    for (way, reverse) in reverse.iter().enumerate() {
        let weights = weights(low, node, way as u8, [inputs_of(low, &inputs), width], ways)?;
        let mut h = start(low, node, 5, way, state, ways)?;
        let mut c = start(low, node, 6, way, state, ways)?;
        let mut hs = vec![h; inputs.len()];
        for at in 0..inputs.len() {
            let step = if *reverse { inputs.len() - 1 - at } else { at };
            low.builder.layer(&format!("{title}.{}.{}", way + 1, step + 1));
            let [wx, wh, bias] = weights;
            let results = low.builder.apply_all(Op::LstmCell, &[inputs[step], h, c, wx, wh, bias]);
            (h, c) = (results[0], results[1]);
            hs[step] = h;
        }
        all.push(hs);
        last_h.push(h);
        last_c.push(c);
    }
    outputs(low, node, &all, [&last_h, &last_c], state);
    Ok(())
}

fn inputs_of(low: &Lowering<'_>, inputs: &[ValueId]) -> u64 {
    inputs.first().map_or(1, |x| low.builder.shape(*x).last())
}

/// The weights of one direction: from the input, from the state, and the sum of both biases.
fn weights<'a>(
    low: &mut Lowering<'a>,
    node: &Node<'a>,
    way: u8,
    [inputs, width]: [u64; 2],
    ways: u64,
) -> Outcome<[ValueId; 3]> {
    let four = width.saturating_mul(4);
    let wx = matrix(low, node.input(1), way, Shape::from([four, inputs]))?;
    let wh = matrix(low, node.input(2), way, Shape::from([four, width]))?;
    let shape = Shape::from([four]);
    if node.input(3).is_empty() {
        let dtype = low.builder.dtype();
        let zeros = low.builder.outside("zeros", shape, dtype, Init::Constant(0.0));
        return Ok([wx, wh, zeros]);
    }
    let own = low.shape(node.input(3))?;
    if own != Shape::from([ways, four.saturating_mul(2)]) {
        return Err(format!("a bias of {own} for {width} units"));
    }
    let pair = match owned(low, node.input(3))? {
        Some(name) => [1, 2].map(|i| low.weight(name, 2 * way + i, shape, Init::Constant(0.0))),
        None => {
            let both = low.data(node.input(3))?;
            let rows = low.view(both, [ways.saturating_mul(2), four]);
            [0, 1].map(|i| {
                let start = 2 * u64::from(way) + i;
                let one = low.builder.apply(Op::Slice { axis: 0, start, length: 1 }, &[rows]);
                low.view(one, shape)
            })
        }
    };
    let bias = low.builder.apply(Op::Add, &pair);
    Ok([wx, wh, bias])
}

/// The name of a weight that is stored piece by piece; `None` for one that is made of others.
fn owned<'a>(low: &mut Lowering<'a>, name: &'a str) -> Outcome<Option<&'a str>> {
    Ok(match low.item(name)? {
        Item::Weight { name, transposed: false, .. } => Some(name),
        Item::Constant(constant) if !constant.is_integer() => Some(name),
        _ => None,
    })
}

/// The weight of one direction.
fn matrix<'a>(low: &mut Lowering<'a>, name: &'a str, way: u8, shape: Shape) -> Outcome<ValueId> {
    if let Some(name) = owned(low, name)? {
        return Ok(low.weight(name, way + 1, shape, spread(shape.dim(1))));
    }
    let all = low.data(name)?;
    let one = match low.builder.shape(all).dim(0) {
        1 => all,
        _ => low.builder.apply(Op::Slice { axis: 0, start: u64::from(way), length: 1 }, &[all]),
    };
    Ok(low.view(one, shape))
}

/// The state before the first step: data, or zeros.
fn start<'a>(
    low: &mut Lowering<'a>,
    node: &Node<'a>,
    at: usize,
    way: usize,
    state: Shape,
    ways: u64,
) -> Outcome<ValueId> {
    let name = node.input(at);
    if let Some(Item::Data(value)) = low.optional(name)? {
        let own = low.builder.shape(value);
        if own != Shape::from([ways, state.dim(0), state.dim(1)]) {
            return Err(format!("a first state of {own} where {ways} times {state} is needed"));
        }
        let one = match ways {
            1 => value,
            _ => low.builder.apply(Op::Slice { axis: 0, start: way as u64, length: 1 }, &[value]),
        };
        return Ok(low.view(one, state));
    }
    let dtype = low.builder.dtype();
    let name = format!("{}.{}", super::title(node), if at == 5 { "h0" } else { "c0" });
    Ok(low.builder.outside(&name, state, dtype, Init::Constant(0.0)))
}

/// All states, the last states and the last cells, as ONNX lays them out; only those that somebody reads.
fn outputs<'a>(
    low: &mut Lowering<'a>,
    node: &Node<'a>,
    all: &[Vec<ValueId>],
    last: [&[ValueId]; 2],
    state: Shape,
) {
    let (batch, width) = (state.dim(0), state.dim(1));
    let join = |low: &mut Lowering<'a>, parts: &[ValueId], axis: usize| match parts {
        [one] => *one,
        many => low.builder.concat(many, axis),
    };
    if low.wanted(node, 0) {
        let ways: Vec<ValueId> = all
            .iter()
            .map(|hs| {
                let steps: Vec<ValueId> = hs.iter().map(|h| low.view(*h, [1, 1, batch, width])).collect();
                join(low, &steps, 0)
            })
            .collect();
        let y = join(low, &ways, 1);
        low.bind(node.output(0), Item::Data(y));
    }
    for (at, states) in last.into_iter().enumerate() {
        if low.wanted(node, at + 1) {
            let parts: Vec<ValueId> = states.iter().map(|h| low.view(*h, [1, batch, width])).collect();
            let y = join(low, &parts, 0);
            low.bind(node.output(at + 1), Item::Data(y));
        }
    }
}
