//! MobileNet-v1 (Howard et al., "MobileNets", 2017) of full width: depth-wise convolutions and 1x1 ones in turn.

use super::{Net, NetOptions, classify, conv_norm};
use crate::graph::{Activation, Builder, ConvLayer};

pub(super) const MOBILENET: Net = Net {
    name: "mobilenet",
    about: "MobileNet-v1, 13 depth-wise separable convolutions",
    batch: 64,
    takes: &["image"],
    write,
};

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(224);
    let x = b.input("images", [batch, 3, side, side]);
    let x = conv_norm(b, "conv1", x, ConvLayer::new(32, 3).same().stride(2).no_bias());
    let mut x = b.activate(x, Activation::Relu6);
    let blocks = [
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (512, 1),
        (1024, 2),
        (1024, 1),
    ];
    for (i, (channels, stride)) in blocks.into_iter().enumerate() {
        let inputs = b.shape(x).dim(1);
        let depthwise = ConvLayer::new(inputs, 3).same().stride(stride).groups(inputs).no_bias();
        x = conv_norm(b, &format!("block{}.depthwise", i + 1), x, depthwise);
        x = b.activate(x, Activation::Relu6);
        x = conv_norm(b, &format!("block{}.pointwise", i + 1), x, ConvLayer::new(channels, 1).no_bias());
        x = b.activate(x, Activation::Relu6);
    }
    b.layer("fc");
    let x = b.global_pool(x);
    classify(b, x, 1000, options);
}
