//! Inception-v4 (Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections", 2016).
//!
//! `inception-v4-autotm` is the network as the authors of AutoTM wrote it for their measurements: no batch norms at
//! all, biases on the convolutions instead.

use super::{Net, NetOptions, classify, conv_norm};
use crate::graph::{Builder, ConvLayer, ValueId};

pub(super) const INCEPTION_V4: Net = Net {
    name: "inception-v4",
    about: "Inception-v4 for 299-pixel images",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| Writer { b, norm: true }.write(o, n),
};

pub(super) const INCEPTION_V4_AUTOTM: Net = Net {
    name: "inception-v4-autotm",
    about: "Inception-v4 as AutoTM's authors wrote it: biases instead of batch norms",
    batch: 64,
    takes: &["image"],
    write: |b, o, n| Writer { b, norm: false }.write(o, n),
};

/// One unit of a chain: channels, and rows and columns of the window.
type Unit = (u64, u64, u64);

struct Writer<'a> {
    b: &'a mut Builder,
    norm: bool,
}

impl Writer<'_> {
    fn write(mut self, options: &NetOptions, batch: u64) {
        let side = options.image.unwrap_or(299);
        let mut x = self.b.input("images", [batch, 3, side, side]);
        x = self.stem(x);
        for i in 0..4 {
            x = self.block_a(&format!("a{}", i + 1), x);
        }
        x = self.shrink_a(x);
        for i in 0..7 {
            x = self.block_b(&format!("b{}", i + 1), x);
        }
        x = self.shrink_b(x);
        for i in 0..3 {
            x = self.block_c(&format!("c{}", i + 1), x);
        }
        self.b.layer("fc");
        let mut x = self.b.global_pool(x);
        if self.norm {
            x = self.b.dropout(x, 0.2);
        }
        classify(self.b, x, 1000, options);
    }

    /// A convolution, its norm or its bias, and a ReLU.
    fn unit(&mut self, name: &str, x: ValueId, layer: ConvLayer) -> ValueId {
        let x = if self.norm {
            conv_norm(self.b, name, x, layer.no_bias())
        } else {
            self.b.layer(name);
            self.b.conv(x, layer)
        };
        self.b.relu(x)
    }

    /// Units one behind the other, all padded to keep the image.
    fn chain(&mut self, name: &str, mut x: ValueId, units: &[Unit]) -> ValueId {
        for (i, (channels, rows, columns)) in units.iter().enumerate() {
            let layer = ConvLayer::sides(*channels, *rows, *columns).same();
            x = self.unit(&format!("{name}.{}", i + 1), x, layer);
        }
        x
    }

    /// A 3x3 unit of stride 2 without padding.
    fn shrink(&mut self, name: &str, x: ValueId, channels: u64) -> ValueId {
        self.unit(name, x, ConvLayer::new(channels, 3).stride(2))
    }

    fn max_pool(&mut self, name: &str, x: ValueId) -> ValueId {
        self.b.layer(name);
        self.b.max_pool(x, 3, 2, 0)
    }

    /// A mean over 3x3 and a 1x1 unit.
    fn pooled(&mut self, name: &str, x: ValueId, channels: u64) -> ValueId {
        self.b.layer(&format!("{name}.pool"));
        let x = self.b.average_pool(x, 3, 1, 1);
        self.chain(&format!("{name}.pooled"), x, &[(channels, 1, 1)])
    }

    fn stem(&mut self, x: ValueId) -> ValueId {
        let x = self.shrink("stem.conv1", x, 32);
        let x = self.unit("stem.conv2", x, ConvLayer::new(32, 3));
        let x = self.unit("stem.conv3", x, ConvLayer::new(64, 3).same());
        let pool = self.max_pool("stem.pool1", x);
        let conv = self.shrink("stem.conv4", x, 96);
        let x = self.b.concat(&[pool, conv], 1);
        let short = self.chain("stem.short", x, &[(64, 1, 1)]);
        let short = self.unit("stem.short.2", short, ConvLayer::new(96, 3));
        let long = self.chain("stem.long", x, &[(64, 1, 1), (64, 1, 7), (64, 7, 1)]);
        let long = self.unit("stem.long.4", long, ConvLayer::new(96, 3));
        let x = self.b.concat(&[short, long], 1);
        let conv = self.shrink("stem.conv5", x, 192);
        let pool = self.max_pool("stem.pool2", x);
        self.b.concat(&[conv, pool], 1)
    }

    fn block_a(&mut self, name: &str, x: ValueId) -> ValueId {
        let pool = self.pooled(name, x, 96);
        let one = self.chain(&format!("{name}.1x1"), x, &[(96, 1, 1)]);
        let three = self.chain(&format!("{name}.3x3"), x, &[(64, 1, 1), (96, 3, 3)]);
        let double = self.chain(&format!("{name}.double"), x, &[(64, 1, 1), (96, 3, 3), (96, 3, 3)]);
        self.b.concat(&[pool, one, three, double], 1)
    }

    fn shrink_a(&mut self, x: ValueId) -> ValueId {
        let pool = self.max_pool("a-shrink.pool", x);
        let three = self.shrink("a-shrink.3x3", x, 384);
        let double = self.chain("a-shrink.double", x, &[(192, 1, 1), (224, 3, 3)]);
        let double = self.shrink("a-shrink.double.3", double, 256);
        self.b.concat(&[pool, three, double], 1)
    }

    fn block_b(&mut self, name: &str, x: ValueId) -> ValueId {
        let pool = self.pooled(name, x, 128);
        let one = self.chain(&format!("{name}.1x1"), x, &[(384, 1, 1)]);
        let seven = self.chain(&format!("{name}.7x7"), x, &[(192, 1, 1), (224, 1, 7), (256, 7, 1)]);
        let units = [(192, 1, 1), (192, 7, 1), (224, 1, 7), (224, 7, 1), (256, 1, 7)];
        let double = self.chain(&format!("{name}.double"), x, &units);
        self.b.concat(&[pool, one, seven, double], 1)
    }

    fn shrink_b(&mut self, x: ValueId) -> ValueId {
        let pool = self.max_pool("b-shrink.pool", x);
        let three = self.chain("b-shrink.3x3", x, &[(192, 1, 1)]);
        let three = self.shrink("b-shrink.3x3.2", three, 192);
        let seven = self.chain("b-shrink.7x7", x, &[(256, 1, 1), (256, 1, 7), (320, 7, 1)]);
        let seven = self.shrink("b-shrink.7x7.4", seven, 320);
        self.b.concat(&[pool, three, seven], 1)
    }

    fn block_c(&mut self, name: &str, x: ValueId) -> ValueId {
        let pool = self.pooled(name, x, 256);
        let one = self.chain(&format!("{name}.1x1"), x, &[(256, 1, 1)]);
        let three = self.chain(&format!("{name}.3x3"), x, &[(384, 1, 1)]);
        let three_wide = self.chain(&format!("{name}.3x3.wide"), three, &[(256, 1, 3)]);
        let three_tall = self.chain(&format!("{name}.3x3.tall"), three, &[(256, 3, 1)]);
        let double = self.chain(&format!("{name}.double"), x, &[(384, 1, 1), (448, 3, 1), (512, 1, 3)]);
        let double_wide = self.chain(&format!("{name}.double.wide"), double, &[(256, 1, 3)]);
        let double_tall = self.chain(&format!("{name}.double.tall"), double, &[(256, 3, 1)]);
        self.b.concat(&[pool, one, three_wide, three_tall, double_wide, double_tall], 1)
    }
}
