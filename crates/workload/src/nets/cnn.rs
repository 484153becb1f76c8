//! A small convolutional network for small pictures in grey, such as handwritten digits.

use super::{Net, NetOptions, conv_norm};
use crate::graph::{Builder, ConvLayer, Optimizer};

pub(super) const CNN: Net = Net {
    name: "cnn",
    about: "small convolutional network, 28-pixel grey images, 10 classes; depth (2) stages, first width (32)",
    batch: 64,
    takes: &["image", "depth", "width"],
    write,
};

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(28);
    let width = options.width.unwrap_or(32);
    let mut x = b.input("images", [batch, 1, side, side]);
    for stage in 0..options.depth.unwrap_or(2).min(16) {
        let layer = ConvLayer::new(width << stage, 3).same().no_bias();
        x = conv_norm(b, &format!("conv{}", stage + 1), x, layer);
        x = b.relu(x);
        x = b.max_pool(x, 2, 2, 0);
    }
    x = b.flatten(x);
    b.layer("hidden");
    x = b.linear(x, 4 * width);
    x = b.relu(x);
    b.layer("classifier");
    let logits = b.linear(x, 10);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::MOMENTUM));
}
