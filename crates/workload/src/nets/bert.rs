//! BERT-large (Devlin et al., "BERT", 2018): 24 layers of width 1024 with 16 heads, and the pooler.
//!
//! The two losses of its pre-training are here with heads that have no parameters, so that the parameters are those of
//! the model proper: masked words are predicted with the word table itself, and the pooled vector serves as its own
//! logits. 15 % of the positions are masked.

use super::{Net, NetOptions};
use crate::graph::{Activation, Builder, DType, Init, Op, Optimizer, ValueId};

pub(super) const BERT_LARGE: Net = Net {
    name: "bert-large",
    about: "BERT-large with pooler: 24 layers, width 1024, 16 heads; masked-word training",
    batch: 8,
    takes: &["sequence", "depth", "width"],
    write,
};

const WORDS: u64 = 30_522;
/// What weights begin as.
const SMALL: Init = Init::Normal(0.02);

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let length = options.sequence.unwrap_or(384);
    let width = options.width.unwrap_or(1024);
    let words = b.ids("words", [batch, length], WORDS);
    b.layer("embedding");
    let x = b.embedding(words, WORDS, width);
    let table = b.weights()[..].first().copied();
    b.layer("embedding.positions");
    let positions = b.outside("positions", [length].into(), DType::I32, Init::Ascending);
    let p = b.embedding(positions, length.max(512), width);
    let x = b.add(x, p);
    b.layer("embedding.segments");
    let segments = b.ids("segments", [batch, length], 2);
    let s = b.embedding(segments, 2, width);
    let x = b.add(x, s);
    b.layer("embedding.norm");
    let x = b.layer_norm(x);
    let mut x = b.dropout(x, 0.1);
    for i in 0..options.depth.unwrap_or(24) {
        x = encoder(b, &format!("layer{}", i + 1), x, width);
    }
    b.layer("pooler");
    let first = b.apply(Op::Slice { axis: 1, start: 0, length: 1 }, &[x]);
    let first = b.reshape(first, [batch, width]);
    let pooled = b.linear_with(first, width, SMALL);
    let pooled = b.activate(pooled, Activation::Tanh);
    let order = b.cross_entropy(pooled, "sentence-labels");

    b.layer("masked-words");
    let masked = (length.saturating_mul(15) / 100).max(1);
    let flat = b.reshape(x, [batch.saturating_mul(length), width]);
    let places = b.ids("masked-places", [batch.saturating_mul(masked)], batch.saturating_mul(length));
    let picked = b.apply(Op::Embedding { bag: false }, &[flat, places]);
    let Some(table) = table else { return };
    let logits = b.apply(Op::Linear, &[picked, table]);
    let words = b.cross_entropy(logits, "masked-labels");
    b.train(&[order, words], options.optimizer.unwrap_or(Optimizer::ADAMW));
}

/// Self-attention and a perceptron, each added to its input and normalised.
fn encoder(b: &mut Builder, name: &str, x: ValueId, width: u64) -> ValueId {
    let qkv = ["query", "key", "value"].map(|part| {
        b.layer(&format!("{name}.{part}"));
        b.linear_with(x, width, SMALL)
    });
    b.layer(&format!("{name}.attention"));
    let y = b.attention(qkv, (width / 64).max(1), false, 0.1);
    let y = b.linear_with(y, width, SMALL);
    let y = b.dropout(y, 0.1);
    let y = b.add(y, x);
    let x = b.layer_norm(y);
    b.layer(&format!("{name}.up"));
    let y = b.linear_with(x, 4 * width, SMALL);
    let y = b.activate(y, Activation::Gelu);
    b.layer(&format!("{name}.down"));
    let y = b.linear_with(y, width, SMALL);
    let y = b.dropout(y, 0.1);
    let y = b.add(y, x);
    b.layer_norm(y)
}
