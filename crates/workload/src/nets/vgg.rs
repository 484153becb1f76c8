//! VGG (Simonyan and Zisserman, "Very Deep Convolutional Networks", 2014): configurations D (16) and E (19), and the
//! deep ones that memory papers use.
//!
//! VGG-116 and VGG-416 are VGG-16 with 20 and 80 convolutions more in each of the five blocks, as vDNN defines them.
//! `vgg416-autotm` is VGG-416 as the authors of AutoTM wrote it for their measurements: the last convolution of each of
//! the first three blocks already has the next block's channels, before the pooling; no dropout.

use super::{Net, NetOptions, classify};
use crate::graph::{Builder, ConvLayer};

pub(super) const VGG16: Net = Net {
    name: "vgg16",
    about: "VGG configuration D: 13 convolutions, 3 linear layers",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, [2, 2, 3, 3, 3], false),
};

pub(super) const VGG19: Net = Net {
    name: "vgg19",
    about: "VGG configuration E: 16 convolutions, 3 linear layers",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, [2, 2, 4, 4, 4], false),
};

pub(super) const VGG116: Net = Net {
    name: "vgg116",
    about: "VGG-16 with 20 convolutions more in each block",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, [22, 22, 23, 23, 23], false),
};

pub(super) const VGG416: Net = Net {
    name: "vgg416",
    about: "VGG-16 with 80 convolutions more in each block",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, [82, 82, 83, 83, 83], false),
};

pub(super) const VGG416_AUTOTM: Net = Net {
    name: "vgg416-autotm",
    about: "VGG-416 as AutoTM's authors wrote it: blocks widen before their pooling",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| write(b, o, n, [82, 82, 83, 83, 83], true),
};

const CHANNELS: [u64; 5] = [64, 128, 256, 512, 512];

fn write(b: &mut Builder, options: &NetOptions, batch: u64, blocks: [u64; 5], autotm: bool) {
    let side = options.image.unwrap_or(224);
    let mut x = b.input("images", [batch, 3, side, side]);
    for (i, convs) in blocks.into_iter().enumerate() {
        for j in 0..convs {
            b.layer(&format!("conv{}_{}", i + 1, j + 1));
            let widens = autotm && j + 1 == convs;
            let channels = CHANNELS[if widens { (i + 1).min(4) } else { i }];
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
        if !autotm {
            x = b.dropout(x, 0.5);
        }
    }
    b.layer("fc8");
    classify(b, x, 1000, options);
}
