//! A two-layer LSTM language model on the Penn Treebank (Zaremba et al., "Recurrent Neural Network Regularization",
//! 2014), the medium model: 650 units, 35 steps, 10,000 words, unrolled.

use super::{Net, NetOptions};
use crate::graph::{Builder, Init, Op, Optimizer, ValueId};

pub(super) const LSTM: Net = Net {
    name: "lstm",
    about: "two-layer LSTM language model, 650 units, 35 steps unrolled, 10,000 words",
    batch: 20,
    takes: &["sequence", "depth", "width", "words"],
    write,
};

const WORDS: u64 = 10_000;

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let steps = options.sequence.unwrap_or(35);
    let width = options.width.unwrap_or(650);
    if steps > 10_000 {
        return b.fail("lstm", format!("{steps} steps unrolled; at most 10000 are"));
    }
    let count = options.words.unwrap_or(WORDS);
    let words = b.ids("words", [steps, batch], count);
    b.layer("embedding");
    let x = b.embedding(words, count, width);
    let x = b.dropout(x, 0.5);
    let pieces = b.split(x, 0, steps);
    let mut xs: Vec<ValueId> = pieces.into_iter().map(|x| b.reshape(x, [batch, width])).collect();
    for layer in 0..options.depth.unwrap_or(2) {
        xs = unroll(b, &format!("lstm{}", layer + 1), &xs, batch, width);
    }
    b.layer("softmax");
    let x = b.concat(&xs, 0);
    let x = b.dropout(x, 0.5);
    let logits = b.linear(x, count);
    let loss = b.cross_entropy(logits, "next-words");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::SGD));
}

/// One LSTM layer over all time steps, with one set of weights.
fn unroll(b: &mut Builder, name: &str, xs: &[ValueId], batch: u64, width: u64) -> Vec<ValueId> {
    b.layer(name);
    let from_input = b.weight("weight-input", [4 * width, width], Init::Normal(0.05));
    let from_state = b.weight("weight-state", [4 * width, width], Init::Normal(0.05));
    let bias = b.weight("bias", [4 * width], Init::Constant(0.0));
    let (shape, dtype) = ([batch, width].into(), b.dtype());
    let mut h = b.outside(&format!("{name}.h0"), shape, dtype, Init::Constant(0.0));
    let mut c = b.outside(&format!("{name}.c0"), shape, dtype, Init::Constant(0.0));
    let mut hs = Vec::new();
    for (t, x) in xs.iter().enumerate() {
        b.layer(&format!("{name}.{}", t + 1));
        let results = b.apply_all(Op::LstmCell, &[*x, h, c, from_input, from_state, bias]);
        (h, c) = (results[0], results[1]);
        hs.push(h);
    }
    hs
}
