//! DenseNet-264 (Huang et al., "Densely Connected Convolutional Networks", 2017): growth 32, compression one half.
//!
//! Every layer reads the concatenation of all earlier ones of its block. A concatenation copies, as in the frameworks,
//! so that memory grows with the square of a block's length.
//!
//! `densenet264-autotm` is the network as the authors of AutoTM wrote it for their measurements: each transition
//! compresses to 64 channels instead of one half; convolutions have biases; the stem and the end have no batch norm.

use super::{Net, NetOptions, classify, conv_norm};
use crate::graph::{Builder, ConvLayer, Padding, ValueId};

pub(super) const DENSENET264: Net = Net {
    name: "densenet264",
    about: "densely connected network, blocks 6-12-64-48, growth 32",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, false),
};

pub(super) const DENSENET264_AUTOTM: Net = Net {
    name: "densenet264-autotm",
    about: "DenseNet-264 as AutoTM's authors wrote it: transitions to 64 channels, biases",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, true),
};

const GROWTH: u64 = 32;

fn write(b: &mut Builder, options: &NetOptions, batch: u64, autotm: bool) {
    let side = options.image.unwrap_or(224);
    let conv = |channels, window| {
        let layer = ConvLayer::new(channels, window).same();
        if autotm { layer } else { layer.no_bias() }
    };
    let x = b.input("images", [batch, 3, side, side]);
    let stem = conv(2 * GROWTH, 7).stride(2).pad(Padding::All(3));
    let x = if autotm {
        b.layer("stem");
        b.conv(x, stem)
    } else {
        conv_norm(b, "stem", x, stem)
    };
    let x = b.relu(x);
    let mut x = b.max_pool(x, 3, 2, 1);
    for (i, layers) in [6, 12, 64, 48].into_iter().enumerate() {
        for j in 0..layers {
            let name = format!("block{}.{}", i + 1, j + 1);
            let y = norm_relu(b, &format!("{name}.conv1"), x);
            let y = b.conv(y, conv(4 * GROWTH, 1));
            let y = norm_relu(b, &format!("{name}.conv2"), y);
            let y = b.conv(y, conv(GROWTH, 3));
            x = b.concat(&[x, y], 1);
        }
        if i < 3 {
            let channels = if autotm { 2 * GROWTH } else { b.shape(x).dim(1) / 2 };
            let y = norm_relu(b, &format!("transition{}", i + 1), x);
            let y = b.conv(y, conv(channels, 1));
            x = b.average_pool(y, 2, 2, 0);
        }
    }
    if autotm {
        b.layer("fc");
    } else {
        x = norm_relu(b, "fc", x);
    }
    let x = b.global_pool(x);
    classify(b, x, 1000, options);
}

/// Starts the layer `name` with a batch norm and a ReLU.
fn norm_relu(b: &mut Builder, name: &str, x: ValueId) -> ValueId {
    b.layer(name);
    let x = b.batch_norm(x);
    b.relu(x)
}
