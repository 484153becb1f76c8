//! The layers that networks are written in: each makes its weights and adds its kernels.

use super::op::{Activation, Attention, Conv, Op, Pool, PoolKind};
use super::{Builder, Init, Shape, ValueId};

/// Zeros around an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// As many on every side.
    All(u64),
    /// So many rows above and below, and so many columns left and right.
    Sides(u64, u64),
}

impl From<Padding> for [u64; 4] {
    fn from(padding: Padding) -> [u64; 4] {
        match padding {
            Padding::All(n) => [n; 4],
            Padding::Sides(rows, columns) => [rows, columns, rows, columns],
        }
    }
}

/// A convolution with weights of its own; see [`Builder::conv`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConvLayer {
    channels: u64,
    window: [u64; 2],
    bias: bool,
    conv: Conv,
}

impl ConvLayer {
    /// A convolution to `channels` with a square window, stride 1, no padding and a bias.
    pub fn new(channels: u64, window: u64) -> ConvLayer {
        ConvLayer::sides(channels, window, window)
    }

    /// A convolution with a window of `rows` by `columns`.
    pub fn sides(channels: u64, rows: u64, columns: u64) -> ConvLayer {
        ConvLayer { channels, window: [rows, columns], bias: true, conv: Conv::default() }
    }

    /// With this step of the window.
    pub fn stride(mut self, stride: u64) -> ConvLayer {
        self.conv.stride = [stride; 2];
        self
    }

    /// With this padding.
    pub fn pad(mut self, padding: Padding) -> ConvLayer {
        self.conv.padding = padding.into();
        self
    }

    /// With padding that keeps height and width at stride 1, for windows of odd sides.
    pub fn same(self) -> ConvLayer {
        let [rows, columns] = self.window;
        self.pad(Padding::Sides(rows / 2, columns / 2))
    }

    /// With this many groups of channels.
    pub fn groups(mut self, groups: u64) -> ConvLayer {
        self.conv.groups = groups;
        self
    }

    /// Without a bias.
    pub fn no_bias(mut self) -> ConvLayer {
        self.bias = false;
        self
    }

    /// As a transposed convolution.
    pub fn transposed(mut self) -> ConvLayer {
        self.conv.transposed = true;
        self
    }
}

/// Random weights whose products keep the variance of `fan_in` summands.
pub(crate) fn he(fan_in: u64) -> Init {
    Init::Normal((2.0 / fan_in.max(1) as f64).sqrt() as f32)
}

impl Builder {
    /// A convolution.
    pub fn conv(&mut self, x: ValueId, layer: ConvLayer) -> ValueId {
        let (inputs, groups) = (self.shape(x).dim(1), layer.conv.groups.max(1));
        let [rows, columns] = layer.window;
        let shape = if layer.conv.transposed {
            [inputs, layer.channels / groups, rows, columns]
        } else {
            [layer.channels, inputs / groups, rows, columns]
        };
        let weight = self.weight("weight", shape, he(shape[1].saturating_mul(rows * columns)));
        if layer.bias {
            let bias = self.weight("bias", [layer.channels], Init::Constant(0.0));
            self.apply(Op::Conv(layer.conv), &[x, weight, bias])
        } else {
            self.apply(Op::Conv(layer.conv), &[x, weight])
        }
    }

    /// A linear layer to `features`, with a bias.
    pub fn linear(&mut self, x: ValueId, features: u64) -> ValueId {
        let inputs = self.shape(x).last();
        self.linear_with(x, features, he(inputs))
    }

    /// A linear layer to `features`, with a bias, whose weights begin as said.
    pub fn linear_with(&mut self, x: ValueId, features: u64, init: Init) -> ValueId {
        let inputs = self.shape(x).last();
        let weight = self.weight("weight", [features, inputs], init);
        let bias = self.weight("bias", [features], Init::Constant(0.0));
        self.apply(Op::Linear, &[x, weight, bias])
    }

    /// A batch norm with scale, shift and running statistics.
    pub fn batch_norm(&mut self, x: ValueId) -> ValueId {
        self.batch_norm_with(x, 1e-5)
    }

    /// A batch norm with this number added to the variance.
    pub fn batch_norm_with(&mut self, x: ValueId, epsilon: f32) -> ValueId {
        let channels = [self.shape(x).dim(1)];
        let gamma = self.weight("gamma", channels, Init::Constant(1.0));
        let beta = self.weight("beta", channels, Init::Constant(0.0));
        let mean = self.state("running-mean", channels, Init::Constant(0.0));
        let variance = self.state("running-variance", channels, Init::Constant(1.0));
        self.apply(Op::BatchNorm { epsilon, momentum: 0.1 }, &[x, gamma, beta, mean, variance])
    }

    /// A layer norm over the last axis.
    pub fn layer_norm(&mut self, x: ValueId) -> ValueId {
        let features = [self.shape(x).last()];
        let gamma = self.weight("gamma", features, Init::Constant(1.0));
        let beta = self.weight("beta", features, Init::Constant(0.0));
        self.apply(Op::LayerNorm { epsilon: 1e-5 }, &[x, gamma, beta])
    }

    /// An element-wise function.
    pub fn activate(&mut self, x: ValueId, function: Activation) -> ValueId {
        self.apply(Op::Activate(function), &[x])
    }

    /// max(x, 0).
    pub fn relu(&mut self, x: ValueId) -> ValueId {
        self.activate(x, Activation::Relu)
    }

    /// A max-pooling with a square window.
    pub fn max_pool(&mut self, x: ValueId, window: u64, stride: u64, padding: u64) -> ValueId {
        let (window, stride) = ([window; 2], [stride; 2]);
        let pool = Pool { kind: PoolKind::Max, window, stride, padding: [padding; 4], ceil: false };
        self.apply(Op::Pool(pool), &[x])
    }

    /// A mean-pooling with a square window; padding does not count.
    pub fn average_pool(&mut self, x: ValueId, window: u64, stride: u64, padding: u64) -> ValueId {
        let kind = PoolKind::Average { count_padding: false };
        let (window, stride) = ([window; 2], [stride; 2]);
        self.apply(Op::Pool(Pool { kind, window, stride, padding: [padding; 4], ceil: false }), &[x])
    }

    /// The mean of every channel, as batch by channels.
    pub fn global_pool(&mut self, x: ValueId) -> ValueId {
        let pooled = self.apply(Op::GlobalPool, &[x]);
        self.flatten(pooled)
    }

    /// a + b.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.apply(Op::Add, &[a, b])
    }

    /// One after the other along an axis.
    pub fn concat(&mut self, parts: &[ValueId], axis: usize) -> ValueId {
        self.apply(Op::Concat { axis }, parts)
    }

    /// Equal pieces of one axis.
    pub fn split(&mut self, x: ValueId, axis: usize, pieces: u64) -> Vec<ValueId> {
        let extent = self.shape(x).dim(axis);
        let sizes = vec![extent / pieces.max(1); pieces as usize];
        self.apply_all(Op::Split { axis, sizes }, &[x])
    }

    /// Zeros elements by chance.
    pub fn dropout(&mut self, x: ValueId, rate: f32) -> ValueId {
        let seed = self.seed();
        self.apply(Op::Dropout { rate, seed }, &[x])
    }

    /// Rows of a new table of `rows` by `width`, one for every id.
    pub fn embedding(&mut self, ids: ValueId, rows: u64, width: u64) -> ValueId {
        let table = self.weight("table", [rows, width], Init::Normal(0.02));
        self.apply(Op::Embedding { bag: false }, &[table, ids])
    }

    /// Attention of every position to every other (or only to earlier ones).
    pub fn attention(&mut self, qkv: [ValueId; 3], heads: u64, causal: bool, dropout: f32) -> ValueId {
        let seed = self.seed();
        self.apply(Op::Attention(Attention { heads, causal, dropout, seed }), &qkv)
    }

    /// The mean cross-entropy of `logits` against labels from outside; it is kept for the reader.
    pub fn cross_entropy(&mut self, logits: ValueId, name: &str) -> ValueId {
        let shape = self.shape(logits);
        let kept = shape.dims().split_last().map_or(&[][..], |(_, rest)| rest);
        let labels = self.ids(name, Shape::new(kept).unwrap_or(shape), shape.last());
        let loss = self.apply(Op::CrossEntropy, &[logits, labels]);
        self.keep(loss);
        loss
    }
}
