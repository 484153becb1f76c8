//! VGG (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014): configurations D (16) and E (19), and the
//! deep ones that memory papers use.
//!
//! VGG-116 and VGG-416 are VGG-16 with 20 and 80 convolutions more in each of the five blocks, as vDNN defines them.

use super::{Net, Options};
use crate::graph::{Builder, ConvLayer, Optimizer};

pub(super) const VGG16: Net = Net {
    name: "vgg16",
    about: "VGG configuration D: 13 convolutions, 3 linear layers",
    batch: 64,
    write: |b, o, n| write(b, o, n, [2, 2, 3, 3, 3]),
};

pub(super) const VGG19: Net = Net {
    name: "vgg19",
    about: "VGG configuration E: 16 convolutions, 3 linear layers",
    batch: 64,
    write: |b, o, n| write(b, o, n, [2, 2, 4, 4, 4]),
};

pub(super) const VGG116: Net = Net {
    name: "vgg116",
    about: "VGG-16 with 20 convolutions more in each block",
    batch: 64,
    write: |b, o, n| write(b, o, n, [22, 22, 23, 23, 23]),
};

pub(super) const VGG416: Net = Net {
    name: "vgg416",
    about: "VGG-16 with 80 convolutions more in each block",
    batch: 64,
    write: |b, o, n| write(b, o, n, [82, 82, 83, 83, 83]),
};

fn write(b: &mut Builder, options: &Options, batch: u64, blocks: [u64; 5]) {
    let side = options.image.unwrap_or(224);
    let mut x = b.input("images", [batch, 3, side, side]);
    for (i, (convs, channels)) in blocks.into_iter().zip([64, 128, 256, 512, 512]).enumerate() {
        for j in 0..convs {
            b.layer(&format!("conv{}_{}", i + 1, j + 1));
            x = b.conv(x, ConvLayer::new(channels, 3).same());
            x = b.relu(x);
        }
        b.layer(&format!("pool{}", i + 1));
        x = b.max_pool(x, 2, 2, 0);
    }
    x = b.flatten(x);
    for name in ["fc6", "fc7"] {
        b.layer(name);
        x = b.linear(x, 4096);
        x = b.relu(x);
        x = b.dropout(x, 0.5);
    }
    b.layer("fc8");
    let logits = b.linear(x, 1000);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], options.optimizer.unwrap_or(Optimizer::MOMENTUM));
}
