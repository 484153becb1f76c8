//! DLRM (Naumov et al., "Deep Learning Recommendation Model", 2019) in the configuration of the Criteo Kaggle data: 13
//! numbers and 26 categories, each category with a table of its own.
//!
//! A batch touches a handful of rows of tables that hold nearly all of the memory, and the update writes only those.
//! `sequence` is the number of rows that each category looks up and sums, `words` the most rows that a table has.

use super::{Net, NetOptions};
use crate::graph::{Builder, Init, Op, Optimizer, ValueId};

pub(super) const DLRM: Net = Net {
    name: "dlrm",
    about: "recommendation model, 26 embedding tables (33.8 million rows) of width (16), sparse updates",
    batch: 2048,
    takes: &["sequence", "width", "words"],
    write,
};

/// The number of values of each category in the data.
const ROWS: [u64; 26] = [
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27, 14_992,
    5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let width = options.width.unwrap_or(16);
    let lookups = options.sequence.unwrap_or(1);
    let numbers = b.input("numbers", [batch, 13]);
    let dense = perceptron(b, "bottom", numbers, &[512, 256, 64, width]);
    let mut features = vec![b.relu(dense)];
    for (i, rows) in ROWS.into_iter().enumerate() {
        let rows = options.words.map_or(rows, |most| rows.min(most));
        b.layer(&format!("category{}", i + 1));
        let ids = b.ids(&format!("ids{}", i + 1), [batch, lookups], rows);
        let table = b.weight("table", [rows, width], Init::Normal(1.0 / (rows as f32).sqrt()));
        features.push(b.apply(Op::Embedding { bag: true }, &[table, ids]));
    }
    b.layer("interaction");
    let x = b.apply(Op::DotInteraction, &features);
    let score = perceptron(b, "top", x, &[512, 256, 1]);
    let (shape, dtype) = (b.shape(score), b.dtype());
    let clicks = b.outside("clicks", shape, dtype, Init::Constant(1.0));
    let loss = b.apply(Op::BinaryCrossEntropy, &[score, clicks]);
    b.keep(loss);
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::SGD));
}

/// Linear layers of these widths with ReLUs between them.
fn perceptron(b: &mut Builder, name: &str, mut x: ValueId, widths: &[u64]) -> ValueId {
    for (i, width) in widths.iter().enumerate() {
        if i > 0 {
            x = b.relu(x);
        }
        b.layer(&format!("{name}{}", i + 1));
        x = b.linear(x, *width);
    }
    x
}
