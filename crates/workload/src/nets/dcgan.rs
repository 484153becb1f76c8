//! DCGAN (Radford et al., "Unsupervised Representation Learning with Deep Convolutional GANs", 2015): a generator and
//! a discriminator, trained in turn within one iteration.
//!
//! The iteration is the usual one: the discriminator sees a batch of images and a batch of fakes and is updated; then
//! it sees the same fakes again, and the generator is updated through it.

use super::{Net, NetOptions};
use crate::graph::{Activation, Builder, Conv, ConvLayer, Init, Op, Optimizer, Padding, ValueId};

pub(super) const DCGAN: Net = Net {
    name: "dcgan",
    about: "generator and discriminator for 64-pixel images, width 64, trained in turn",
    batch: 128,
    takes: &["image", "width"],
    write,
};

/// Numbers that the generator starts from.
const LATENT: u64 = 100;

fn write(b: &mut Builder, options: &NetOptions, batch: u64) {
    let side = options.image.unwrap_or(64);
    let width = options.width.unwrap_or(64);
    if !side.is_power_of_two() || !(8..=1024).contains(&side) {
        return b
            .fail("dcgan", format!("images of {side} pixels; the side must be a power of two, 8 to 1024"));
    }
    let doublings = side.ilog2() - 3;
    let optimizer = options.optimizer.unwrap_or(Optimizer::AdamW {
        rate: 2e-4,
        betas: [0.5, 0.999],
        epsilon: 1e-8,
        decay: 0.0,
    });

    let noise = b.input("noise", [batch, LATENT, 1, 1]);
    let fake = generate(b, noise, width, doublings);
    let generator = b.weights();
    let critic = Discriminator::new(b, width, doublings);
    let weights = b.weights().split_off(generator.len());

    let images = b.input("images", [batch, 3, side, side]);
    let real = critic.judge(b, "real", images, 1.0);
    let detached = b.detach(fake);
    let fooled = critic.judge(b, "fake", detached, 0.0);
    let gradients = b.backward(&[real, fooled], &weights);
    b.update(&gradients, optimizer);

    let fooled = critic.judge(b, "fool", fake, 1.0);
    let gradients = b.backward(&[fooled], &generator);
    b.update(&gradients, optimizer);
}

/// From noise to images: the channels halve and the side doubles at every layer.
fn generate(b: &mut Builder, noise: ValueId, width: u64, doublings: u32) -> ValueId {
    let up = |channels| ConvLayer::new(channels, 4).transposed().no_bias();
    b.layer("generator.1");
    let x = b.conv(noise, up(width << doublings));
    let x = b.batch_norm(x);
    let mut x = b.relu(x);
    for i in (0..doublings).rev() {
        b.layer(&format!("generator.{}", doublings - i + 1));
        x = b.conv(x, up(width << i).stride(2).pad(Padding::All(1)));
        x = b.batch_norm(x);
        x = b.relu(x);
    }
    b.layer("generator.image");
    let x = b.conv(x, up(3).stride(2).pad(Padding::All(1)));
    b.activate(x, Activation::Tanh)
}

/// The discriminator's weights, which three passes share.
struct Discriminator {
    layers: Vec<DownLayer>,
    last: ValueId,
}

struct DownLayer {
    weight: ValueId,
    /// Scale, shift, running mean and running variance; the first layer has none.
    norm: Option<[ValueId; 4]>,
}

impl Discriminator {
    fn new(b: &mut Builder, width: u64, doublings: u32) -> Discriminator {
        let mut inputs = 3;
        let mut layers = Vec::new();
        for i in 0..=doublings {
            b.layer(&format!("discriminator.{}", i + 1));
            let channels = width << i;
            let weight = b.weight("weight", [channels, inputs, 4, 4], Init::Normal(0.02));
            let norm = (i > 0).then(|| {
                let shape = [channels];
                [
                    b.weight("gamma", shape, Init::Constant(1.0)),
                    b.weight("beta", shape, Init::Constant(0.0)),
                    b.state("running-mean", shape, Init::Constant(0.0)),
                    b.state("running-variance", shape, Init::Constant(1.0)),
                ]
            });
            layers.push(DownLayer { weight, norm });
            inputs = channels;
        }
        b.layer("discriminator.score");
        let last = b.weight("weight", [1, inputs, 4, 4], Init::Normal(0.02));
        Discriminator { layers, last }
    }

    /// One pass over `x`, and its loss if every image of it is `truth` (1: real, 0: fake).
    fn judge(&self, b: &mut Builder, pass: &str, mut x: ValueId, truth: f32) -> ValueId {
        let half = Conv { stride: [2; 2], padding: [1; 4], ..Conv::default() };
        for (i, layer) in self.layers.iter().enumerate() {
            b.layer(&format!("discriminator.{pass}.{}", i + 1));
            x = b.apply(Op::Conv(half), &[x, layer.weight]);
            if let Some([gamma, beta, mean, variance]) = layer.norm {
                let norm = Op::BatchNorm { epsilon: 1e-5, momentum: 0.1 };
                x = b.apply(norm, &[x, gamma, beta, mean, variance]);
            }
            x = b.activate(x, Activation::LeakyRelu { slope: 0.2 });
        }
        b.layer(&format!("discriminator.{pass}.score"));
        let score = b.apply(Op::Conv(Conv::default()), &[x, self.last]);
        let (shape, dtype) = (b.shape(score), b.dtype());
        let target = b.outside(&format!("{pass}-labels"), shape, dtype, Init::Constant(truth));
        let loss = b.apply(Op::BinaryCrossEntropy, &[score, target]);
        b.keep(loss);
        loss
    }
}
