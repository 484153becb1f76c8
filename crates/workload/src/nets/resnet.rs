//! Residual networks (He et al., "Deep Residual Learning", 2015): bottlenecks for ImageNet, basic blocks for CIFAR.
//!
//! The bottlenecks have the stride on their 3x3 convolution, as all current implementations do (the paper had it on
//! the first 1x1; parameters are the same). ResNet-200 is the same network with blocks of 3, 24, 36 and 3.
//! ResNet-32 is the paper's CIFAR network with parameter-free shortcuts (option A).
//!
//! `resnet200-autotm` is the network as the authors of AutoTM wrote it for their measurements: the stride on the last
//! 1x1 convolution, so that the first two of a down-sampling block work on large images; biases on the convolutions;
//! no batch norm behind the first convolution.

use super::{Net, NetOptions, classify, conv_norm};
use crate::graph::{Builder, ConvLayer, Op, Padding, Pool, PoolKind, ValueId};

pub(super) const RESNET32: Net = Net {
    name: "resnet32",
    about: "residual network for CIFAR, 15 basic blocks, shortcuts without parameters",
    batch: 128,
    takes: &["image", "depth"],
    write: cifar,
};

pub(super) const RESNET50: Net = Net {
    name: "resnet50",
    about: "residual network, bottlenecks 3-4-6-3",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| imagenet(b, o, n, [3, 4, 6, 3], false),
};

pub(super) const RESNET152: Net = Net {
    name: "resnet152",
    about: "residual network, bottlenecks 3-8-36-3",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| imagenet(b, o, n, [3, 8, 36, 3], false),
};

pub(super) const RESNET200: Net = Net {
    name: "resnet200",
    about: "residual network, bottlenecks 3-24-36-3",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| imagenet(b, o, n, [3, 24, 36, 3], false),
};

pub(super) const RESNET200_AUTOTM: Net = Net {
    name: "resnet200-autotm",
    about: "ResNet-200 as AutoTM's authors wrote it: late strides, biases, no norm in the stem",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| imagenet(b, o, n, [3, 24, 36, 3], true),
};

fn imagenet(b: &mut Builder, options: &NetOptions, batch: u64, blocks: [u64; 4], autotm: bool) {
    let side = options.image.unwrap_or(224);
    let x = b.input("images", [batch, 3, side, side]);
    let stem = ConvLayer::new(64, 7).stride(2).pad(Padding::All(3));
    let mut x = if autotm {
        b.layer("conv1");
        b.conv(x, stem)
    } else {
        let x = conv_norm(b, "conv1", x, stem.no_bias());
        b.relu(x)
    };
    b.layer("pool1");
    x = b.max_pool(x, 3, 2, 1);
    for (stage, (count, width)) in blocks.into_iter().zip([64, 128, 256, 512]).enumerate() {
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = bottleneck(b, &format!("stage{}.{}", stage + 1, block + 1), x, width, stride, autotm);
        }
    }
    b.layer("fc");
    let x = b.global_pool(x);
    classify(b, x, 1000, options);
}

/// 1x1 to `width`, 3x3, 1x1 to four times `width`, added to the block's input.
fn bottleneck(b: &mut Builder, name: &str, x: ValueId, width: u64, stride: u64, autotm: bool) -> ValueId {
    let conv = |channels, window| {
        let layer = ConvLayer::new(channels, window).same();
        if autotm { layer } else { layer.no_bias() }
    };
    let (middle, last) = if autotm { (1, stride) } else { (stride, 1) };
    let y = conv_norm(b, &format!("{name}.conv1"), x, conv(width, 1));
    let y = b.relu(y);
    let y = conv_norm(b, &format!("{name}.conv2"), y, conv(width, 3).stride(middle));
    let y = b.relu(y);
    let y = conv_norm(b, &format!("{name}.conv3"), y, conv(4 * width, 1).stride(last));
    let shortcut = if b.shape(x) == b.shape(y) {
        x
    } else {
        conv_norm(b, &format!("{name}.shortcut"), x, conv(4 * width, 1).stride(stride))
    };
    let sum = b.add(y, shortcut);
    b.relu(sum)
}

fn cifar(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(32);
    let blocks = options.depth.map_or(5, |depth| depth.saturating_sub(2) / 6);
    let x = b.input("images", [batch, 3, side, side]);
    let x = conv_norm(b, "conv1", x, ConvLayer::new(16, 3).same().no_bias());
    let mut x = b.relu(x);
    for (stage, width) in [16, 32, 64].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = basic(b, &format!("stage{}.{}", stage + 1, block + 1), x, width, stride);
        }
    }
    b.layer("fc");
    let x = b.global_pool(x);
    classify(b, x, 10, options);
}

/// Two 3x3 convolutions, added to the block's input; where the image shrinks, the shortcut takes every other
/// pixel and fills the new channels with zeros.
fn basic(b: &mut Builder, name: &str, x: ValueId, width: u64, stride: u64) -> ValueId {
    let conv = ConvLayer::new(width, 3).same().no_bias();
    let y = conv_norm(b, &format!("{name}.conv1"), x, conv.stride(stride));
    let y = b.relu(y);
    let y = conv_norm(b, &format!("{name}.conv2"), y, conv);
    let mut shortcut = x;
    if stride > 1 {
        let kind = PoolKind::Average { count_padding: false };
        let pool = Pool { kind, window: [1; 2], stride: [stride; 2], padding: [0; 4], ceil: false };
        shortcut = b.apply(Op::Pool(pool), &[x]);
        let missing = width.saturating_sub(b.shape(x).dim(1));
        let (before, after) = (missing / 2, missing - missing / 2);
        shortcut = b.apply(Op::Pad { axis: 1, before, after }, &[shortcut]);
    }
    let sum = b.add(y, shortcut);
    b.relu(sum)
}
