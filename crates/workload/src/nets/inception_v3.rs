//! Inception-v3 (Szegedy et al., "Rethinking the Inception Architecture", 2015), without the auxiliary head.

use super::{Net, NetOptions, classify, conv_norm};
use crate::graph::{Builder, ConvLayer, ValueId};

pub(super) const INCEPTION_V3: Net = Net {
    name: "inception-v3",
    about: "Inception-v3 for 299-pixel images, without the auxiliary head",
    batch: 64,
    takes: &["image"],
    write,
};

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(299);
    let x = b.input("images", [batch, 3, side, side]);
    let x = unit(b, "stem.conv1", x, ConvLayer::new(32, 3).stride(2));
    let x = unit(b, "stem.conv2", x, ConvLayer::new(32, 3));
    let x = unit(b, "stem.conv3", x, ConvLayer::new(64, 3).same());
    let x = b.max_pool(x, 3, 2, 0);
    let x = unit(b, "stem.conv4", x, ConvLayer::new(80, 1));
    let x = unit(b, "stem.conv5", x, ConvLayer::new(192, 3));
    let mut x = b.max_pool(x, 3, 2, 0);
    for (i, pooled) in [32, 64, 64].into_iter().enumerate() {
        x = block_a(b, &format!("a{}", i + 1), x, pooled);
    }
    x = shrink_a(b, x);
    for (i, width) in [128, 160, 160, 192].into_iter().enumerate() {
        x = block_b(b, &format!("b{}", i + 1), x, width);
    }
    x = shrink_b(b, x);
    for i in 0..2 {
        x = block_c(b, &format!("c{}", i + 1), x);
    }
    b.layer("fc");
    let x = b.global_pool(x);
    let x = b.dropout(x, 0.5);
    classify(b, x, 1000, options);
}

/// Convolution without bias, batch norm, ReLU.
fn unit(b: &mut Builder, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
    let x = conv_norm(b, name, x, layer.no_bias());
    b.relu(x)
}

/// A chain of units: channels, rows and columns of each window, all padded to keep the image.
fn chain(b: &mut Builder, name: &str, mut x: ValueId, units: &[(u64, u64, u64)]) -> ValueId {
    for (i, (channels, rows, columns)) in units.iter().enumerate() {
        let layer = ConvLayer::sides(*channels, *rows, *columns).same();
        x = unit(b, &format!("{name}.{}", i + 1), x, layer);
    }
    x
}

/// A mean over 3x3 and a 1x1 unit.
fn pooled(b: &mut Builder, name: &str, x: ValueId, channels: u64) -> ValueId {
    b.layer(&format!("{name}.pool"));
    let x = b.average_pool(x, 3, 1, 1);
    chain(b, &format!("{name}.pooled"), x, &[(channels, 1, 1)])
}

fn block_a(b: &mut Builder, name: &str, x: ValueId, channels: u64) -> ValueId {
    let one = chain(b, &format!("{name}.1x1"), x, &[(64, 1, 1)]);
    let five = chain(b, &format!("{name}.5x5"), x, &[(48, 1, 1), (64, 5, 5)]);
    let three = chain(b, &format!("{name}.3x3"), x, &[(64, 1, 1), (96, 3, 3), (96, 3, 3)]);
    let pool = pooled(b, name, x, channels);
    b.concat(&[one, five, three, pool], 1)
}

fn shrink_a(b: &mut Builder, x: ValueId) -> ValueId {
    let three = unit(b, "a-shrink.3x3", x, ConvLayer::new(384, 3).stride(2));
    let double = chain(b, "a-shrink.double", x, &[(64, 1, 1), (96, 3, 3)]);
    let double = unit(b, "a-shrink.double.3", double, ConvLayer::new(96, 3).stride(2));
    b.layer("a-shrink.pool");
    let pool = b.max_pool(x, 3, 2, 0);
    b.concat(&[three, double, pool], 1)
}

fn block_b(b: &mut Builder, name: &str, x: ValueId, n: u64) -> ValueId {
    let one = chain(b, &format!("{name}.1x1"), x, &[(192, 1, 1)]);
    let seven = chain(b, &format!("{name}.7x7"), x, &[(n, 1, 1), (n, 1, 7), (192, 7, 1)]);
    let units = [(n, 1, 1), (n, 7, 1), (n, 1, 7), (n, 7, 1), (192, 1, 7)];
    let double = chain(b, &format!("{name}.double"), x, &units);
    let pool = pooled(b, name, x, 192);
    b.concat(&[one, seven, double, pool], 1)
}

fn shrink_b(b: &mut Builder, x: ValueId) -> ValueId {
    let three = chain(b, "b-shrink.3x3", x, &[(192, 1, 1)]);
    let three = unit(b, "b-shrink.3x3.2", three, ConvLayer::new(320, 3).stride(2));
    let seven = chain(b, "b-shrink.7x7", x, &[(192, 1, 1), (192, 1, 7), (192, 7, 1)]);
    let seven = unit(b, "b-shrink.7x7.4", seven, ConvLayer::new(192, 3).stride(2));
    b.layer("b-shrink.pool");
    let pool = b.max_pool(x, 3, 2, 0);
    b.concat(&[three, seven, pool], 1)
}

fn block_c(b: &mut Builder, name: &str, x: ValueId) -> ValueId {
    let one = chain(b, &format!("{name}.1x1"), x, &[(320, 1, 1)]);
    let three = chain(b, &format!("{name}.3x3"), x, &[(384, 1, 1)]);
    let three_wide = chain(b, &format!("{name}.3x3.wide"), three, &[(384, 1, 3)]);
    let three_tall = chain(b, &format!("{name}.3x3.tall"), three, &[(384, 3, 1)]);
    let double = chain(b, &format!("{name}.double"), x, &[(448, 1, 1), (384, 3, 3)]);
    let double_wide = chain(b, &format!("{name}.double.wide"), double, &[(384, 1, 3)]);
    let double_tall = chain(b, &format!("{name}.double.tall"), double, &[(384, 3, 1)]);
    let pool = pooled(b, name, x, 192);
    b.concat(&[one, three_wide, three_tall, double_wide, double_tall, pool], 1)
}
