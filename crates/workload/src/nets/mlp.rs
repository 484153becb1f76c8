//! A multi-layer perceptron on flat images: the smallest network that trains, and as long as one likes.

use super::{Net, NetOptions};
use crate::graph::{Builder, Optimizer};

pub(super) const MLP: Net = Net {
    name: "mlp",
    about: "multi-layer perceptron, 784 inputs, 10 classes; depth (3) hidden layers of width (1024)",
    batch: 128,
    takes: &["image", "depth", "width"],
    write,
};

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(28);
    let mut x = b.input("images", [batch, side.saturating_mul(side)]);
    for i in 0..options.depth.unwrap_or(3) {
        b.layer(&format!("hidden{}", i + 1));
        x = b.linear(x, options.width.unwrap_or(1024));
        x = b.relu(x);
    }
    b.layer("classifier");
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::SGD));
}
