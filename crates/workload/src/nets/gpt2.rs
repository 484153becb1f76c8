//! GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019), of any depth and width.
//!
//! The defaults are the small model; depth 36 and width 1280 make the large one, 48 and 1600 the largest. A head is
//! 64 features wide. Weights begin small (deviation 0.02), those that add to the main path smaller the more of them
//! there are, as the paper has it. The number of words is a choice too: 256 for text by the byte. The word table serves as the last layer's weight too.

use super::{Net, NetOptions};
use crate::graph::{Activation, Builder, DType, Init, Op, Optimizer, ValueId};

pub(super) const GPT2: Net = Net {
    name: "gpt2",
    about: "GPT-2; depth (12) layers of width (768), 1024 positions, shared word table",
    batch: 8,
    takes: &["sequence", "depth", "width", "words"],
    write,
};

const WORDS: u64 = 50_257;
/// What weights begin as.
const SMALL: Init = Init::Normal(0.02);

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let length = options.sequence.unwrap_or(1024);
    let width = options.width.unwrap_or(768);
    let count = options.words.unwrap_or(WORDS);
    let words = b.ids("words", [batch, length], count);
    b.layer("words");
    let x = b.embedding(words, count, width);
    let table = b.weights().first().copied();
    b.layer("positions");
    let positions = b.outside("position-ids", [length].into(), DType::I32, Init::Ascending);
    let p = b.embedding(positions, length.max(1024), width);
    let x = b.add(x, p);
    let mut x = b.dropout(x, 0.1);
    let depth = options.depth.unwrap_or(12);
    let added = Init::Normal((0.02 / (2.0 * depth as f64).sqrt()) as f32);
    for i in 0..depth {
        x = decoder(b, &format!("layer{}", i + 1), x, width, added);
    }
    b.layer("head");
    let x = b.layer_norm(x);
    let Some(table) = table else { return };
    let logits = b.apply(Op::Linear, &[x, table]);
    let loss = b.cross_entropy(logits, "next-words");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::ADAMW));
}

/// Causal self-attention and a perceptron, each on the normalised input and added to it.
fn decoder(b: &mut Builder, name: &str, x: ValueId, width: u64, added: Init) -> ValueId {
    b.layer(&format!("{name}.attention"));
    let y = b.layer_norm(x);
    let y = b.linear_with(y, width.saturating_mul(3), SMALL);
    let pieces = b.split(y, 2, 3);
    let y = b.attention([pieces[0], pieces[1], pieces[2]], (width / 64).max(1), true, 0.1);
    b.layer(&format!("{name}.project"));
    let y = b.linear_with(y, width, added);
    let y = b.dropout(y, 0.1);
    let x = b.add(x, y);
    b.layer(&format!("{name}.up"));
    let y = b.layer_norm(x);
    let y = b.linear_with(y, width.saturating_mul(4), SMALL);
    let y = b.activate(y, Activation::GeluTanh);
    b.layer(&format!("{name}.down"));
    let y = b.linear_with(y, width, added);
    let y = b.dropout(y, 0.1);
    b.add(x, y)
}
