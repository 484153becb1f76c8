//! The kernels that a graph can name, with every attribute that one needs to run them.
//!
//! Each variant says its operands and results in order; that order is the order of [`Node::inputs`] and
//! [`Node::outputs`](super::Node), and a kernel library relies on it. Images are batch, channels, height, width.
//! An operand that stands among the results too is changed in place by definition (a weight by its update).
//!
//! [`Node::inputs`]: super::Node

use super::shape::Shape;

/// The geometry of a two-dimensional convolution. The weight is `[out, in / groups, height, width]`, or
/// `[in, out / groups, height, width]` where `transposed`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv {
    /// Step of the window in height and width.
    pub stride: [u64; 2],
    /// Zeros around the image: top, left, bottom, right.
    pub padding: [u64; 4],
    /// Distance of the window's taps in height and width.
    pub dilation: [u64; 2],
    /// Number of independent groups of channels.
    pub groups: u64,
    /// Whether this is the transposed (fractionally strided) convolution.
    pub transposed: bool,
    /// Extra rows and columns of the result; transposed only.
    pub output_padding: [u64; 2],
}

impl Default for Conv {
    fn default() -> Conv {
        Conv {
            stride: [1; 2],
            padding: [0; 4],
            dilation: [1; 2],
            groups: 1,
            transposed: false,
            output_padding: [0; 2],
        }
    }
}

/// What a pooling window keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest element; padding never wins, and the first of equals does.
    Max,
    /// The mean; padding counts as zeros where `count_padding`, and otherwise not at all.
    Average {
        /// Whether the padding belongs to the mean.
        count_padding: bool,
    },
}

/// The geometry of a pooling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// What a window keeps.
    pub kind: PoolKind,
    /// Height and width of the window.
    pub window: [u64; 2],
    /// Step of the window in height and width.
    pub stride: [u64; 2],
    /// Padding: top, left, bottom, right.
    pub padding: [u64; 4],
    /// Whether a window that only partly fits at the end counts.
    pub ceil: bool,
}

/// An element-wise function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// max(x, 0).
    Relu,
    /// min(max(x, 0), 6).
    Relu6,
    /// x where positive, else `slope` times x; the slope is positive.
    LeakyRelu {
        /// The factor for negative elements.
        slope: f32,
    },
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// x · Φ(x) with the exact normal distribution.
    Gelu,
    /// x · Φ(x) with the tanh approximation, as GPT-2 has it.
    GeluTanh,
    /// x to a constant power: a square root (½), a reciprocal (−1).
    Power {
        /// The exponent.
        exponent: f32,
    },
    /// The error function.
    Erf,
    /// The exponential function.
    Exp,
}

impl Activation {
    /// Whether the gradient is computed from the result rather than from the operand, so that the result may
    /// overwrite the operand.
    pub fn keeps_result(self) -> bool {
        !matches!(self, Activation::Gelu | Activation::GeluTanh | Activation::Power { .. } | Activation::Erf)
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::Relu6 => "relu6",
            Activation::LeakyRelu { .. } => "leaky-relu",
            Activation::Sigmoid => "sigmoid",
            Activation::Tanh => "tanh",
            Activation::Gelu => "gelu",
            Activation::GeluTanh => "gelu-tanh",
            Activation::Power { .. } => "power",
            Activation::Erf => "erf",
            Activation::Exp => "exp",
        }
    }
}

/// Attributes of multi-head attention.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// Number of heads; divides the width.
    pub heads: u64,
    /// Whether a position sees only itself and what is before it.
    pub causal: bool,
    /// Chance that a probability is dropped; 0 for none.
    pub dropout: f32,
    /// Seed of the dropout (see [`Op::Dropout`]).
    pub seed: u64,
}

/// Attributes of local response normalisation across channels: x / (bias + alpha / size · Σ x²)^beta.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResponseNorm {
    /// Channels in the window.
    pub size: u64,
    /// Scale of the sum of squares.
    pub alpha: f32,
    /// The exponent.
    pub beta: f32,
    /// The constant in the denominator.
    pub bias: f32,
}

/// How weights change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Stochastic gradient descent: m ← momentum · m + g + decay · w; w ← w − rate · m. Without momentum there is
    /// no state.
    Sgd {
        /// The learning rate.
        rate: f32,
        /// How much of the last step is kept; 0 for none.
        momentum: f32,
        /// Weight decay.
        decay: f32,
    },
    /// Adam with decoupled weight decay; its state is two means.
    AdamW {
        /// The learning rate.
        rate: f32,
        /// Decay of the mean of gradients and of the mean of their squares.
        betas: [f32; 2],
        /// Added to the denominator.
        epsilon: f32,
        /// Weight decay.
        decay: f32,
    },
}

impl Optimizer {
    /// Plain stochastic gradient descent, without state.
    pub const SGD: Optimizer = Optimizer::Sgd { rate: 0.01, momentum: 0.0, decay: 0.0 };
    /// Gradient descent with momentum, as convolutional networks are trained.
    pub const MOMENTUM: Optimizer = Optimizer::Sgd { rate: 0.01, momentum: 0.9, decay: 1e-4 };
    /// AdamW as transformers are trained.
    pub const ADAMW: Optimizer =
        Optimizer::AdamW { rate: 1e-4, betas: [0.9, 0.999], epsilon: 1e-8, decay: 0.01 };

    /// What it remembers of every weight, by name.
    pub fn states(self) -> &'static [&'static str] {
        match self {
            Optimizer::Sgd { momentum: 0.0, .. } => &[],
            Optimizer::Sgd { .. } => &["momentum"],
            Optimizer::AdamW { .. } => &["mean", "square"],
        }
    }

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Optimizer::Sgd { .. } => "sgd",
            Optimizer::AdamW { .. } => "adamw",
        }
    }
}

/// A kernel type with its attributes. In the comments, operands stand before the arrow and results after it;
/// a question mark stands behind what may be absent; `d y` is the gradient of the loss by `y`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// x, w, b? → y.
    Conv(Conv),
    /// w, dy → dx.
    ConvBackwardData(Conv),
    /// x.., dy.. → dw, db?; each in so many parts of the batch, one after the other.
    ConvBackwardWeight(Conv),
    /// x `[.., in]`, w `[out, in]`, b? → y `[.., out]`: y = x · wᵀ + b.
    Linear,
    /// w, dy → dx. Where dx is an operand too, what it holds is added to, in place.
    LinearBackwardData,
    /// x, dy → dw, db?. Where these are operands too, what they hold is added to, in place.
    LinearBackwardWeight,
    /// x, dy, w, state.., b?, its state.., dx? → w, state.., b?, its state.., dx?, db?: all that the two kernels before and
    /// [`Op::Update`] do to a layer, while no more than a piece of the weights' gradient is there at a time. Weights, biases and
    /// states are changed in place. Where dx is an operand too, what it holds is added to, in place; it comes from w as it was
    /// before.
    LinearBackwardUpdate {
        /// The rule by which w changes.
        optimizer: Optimizer,
        /// Whether there is a dx.
        data: bool,
        /// Whether b changes, too; otherwise there may be a db.
        bias: bool,
    },
    /// a `[.., m, k]`, b `[.., k, n]` → y `[.., m, n]`; the leading axes agree. A transposed operand is stored
    /// with its last two axes exchanged.
    MatMul {
        /// Whether `a` is stored transposed.
        transpose_a: bool,
        /// Whether `b` is stored transposed.
        transpose_b: bool,
    },
    /// x.., gamma, beta, running mean, running variance → y.., mean, inverse deviation, running mean, running
    /// variance (both changed in place): normalises with the batch's own statistics; x and y in so many parts of
    /// the batch.
    BatchNorm {
        /// Added to the variance.
        epsilon: f32,
        /// Share of the batch's statistics in the new running ones.
        momentum: f32,
    },
    /// x.., gamma, mean, inverse deviation, dy.. → dx.., dgamma, dbeta, in so many parts of the batch.
    BatchNormBackward,
    /// x, gamma, beta → y, mean, inverse deviation: normalises over the last axis.
    LayerNorm {
        /// Added to the variance.
        epsilon: f32,
    },
    /// x, gamma, mean, inverse deviation, dy → dx, dgamma, dbeta.
    LayerNormBackward,
    /// x → y, across channels; the gradient recomputes the sums.
    ResponseNorm(ResponseNorm),
    /// x, dy → dx.
    ResponseNormBackward(ResponseNorm),
    /// x → y, element by element.
    Activate(Activation),
    /// y (or x where [`Activation::keeps_result`] is false), dy → dx.
    ActivateBackward(Activation),
    /// x → y.
    Pool(Pool),
    /// x, dy → dx for a maximum (which is found again in x), dy → dx for a mean.
    PoolBackward(Pool),
    /// x `[n, c, h, w]` → y `[n, c, 1, 1]`: the mean of every channel.
    GlobalPool,
    /// dy → dx.
    GlobalPoolBackward,
    /// a, b → y = a + b; b broadcasts to a.
    Add,
    /// a, b → y = a · b, element by element; b broadcasts to a.
    Mul,
    /// x → y = factor · x.
    Scale {
        /// The factor.
        factor: f32,
    },
    /// x → y: sums over the axes that broadcasting had stretched, to the shape of y.
    SumTo,
    /// any number of x → y, one after the other along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// x → y: a range of one axis.
    Slice {
        /// The axis.
        axis: usize,
        /// The first index taken.
        start: u64,
        /// How many are taken.
        length: u64,
    },
    /// x → one y for each size: consecutive ranges of one axis, together all of it.
    Split {
        /// The axis.
        axis: usize,
        /// The extents of the results on that axis.
        sizes: Vec<u64>,
    },
    /// x → y with zeros before and after along one axis.
    Pad {
        /// The axis.
        axis: usize,
        /// Zeros before.
        before: u64,
        /// Zeros after.
        after: u64,
    },
    /// x → y with its axes in another order: axis i of y is axis `order[i]` of x.
    Transpose {
        /// Where each axis of the result comes from.
        order: Vec<usize>,
    },
    /// x → y over the last axis.
    Softmax,
    /// y, dy → dx.
    SoftmaxBackward,
    /// logits `[.., classes]`, labels `[..]` (whole numbers) → loss (the mean, or that of every row where there is room for
    /// as many), probabilities.
    CrossEntropy,
    /// probabilities, labels → dlogits, for a gradient of the loss of 1.
    CrossEntropyBackward {
        /// The rows that the loss is the mean of.
        rows: u64,
    },
    /// x → the mean of all its elements.
    Mean,
    /// logits, targets in 0..1 → loss (the mean): cross-entropy behind a sigmoid.
    BinaryCrossEntropy,
    /// logits, targets → dlogits, for a gradient of the loss of 1.
    BinaryCrossEntropyBackward,
    /// x, targets → loss: the mean of (x − target)².
    MeanSquare,
    /// x, targets → dx, for a gradient of the loss of 1.
    MeanSquareBackward,
    /// q, k, v `[batch, positions, width]` → y, probabilities `[batch, heads, positions, positions]` (before the
    /// dropout): softmax(q · kᵀ / √(width / heads)) · v for each head.
    Attention(Attention),
    /// q, k, v, probabilities, dy → dq, dk, dv.
    AttentionBackward(Attention),
    /// table `[rows, width]`, ids → y `[ids.., width]`; where `bag`, the rows of the last axis of ids are summed.
    Embedding {
        /// Whether the rows of the last axis of ids are summed.
        bag: bool,
    },
    /// ids, dy → dtable, all of it, zero where no id points.
    EmbeddingBackward {
        /// Whether the rows of the last axis of ids were summed.
        bag: bool,
        /// The shape of the table.
        table: Shape,
    },
    /// x → y: zeros elements by chance and scales the rest by 1 / (1 − rate). Which ones follows from the seed,
    /// the iteration and the element's position alone, so no mask is stored.
    Dropout {
        /// The chance of an element to become zero.
        rate: f32,
        /// The seed, different for every dropout of a network.
        seed: u64,
    },
    /// dy → dx with the same elements zeroed.
    DropoutBackward {
        /// The chance of an element to become zero.
        rate: f32,
        /// The seed of the forward pass.
        seed: u64,
    },
    /// x `[b, in]`, h `[b, n]`, c `[b, n]`, wx `[4n, in]`, wh `[4n, n]`, bias `[4n]` → h, c, gates `[b, 4n]` after
    /// their functions, in the order input, forget, cell, output.
    LstmCell,
    /// c (the operand), c (the result), wx, wh, gates, dh, dc → dx, dh, dc, dgates.
    LstmCellBackwardData,
    /// x, h, dgates → dwx, dwh, dbias. Where those three are operands too, what they hold is added to, in place.
    LstmCellBackwardWeight,
    /// any number n of features `[b, d]` → y `[b, d + n (n − 1) / 2]`: the first feature, then the dot product of
    /// every pair (i, j) with j < i, i outermost.
    DotInteraction,
    /// all features, dy → the gradient of every feature.
    DotInteractionBackward,
    /// nothing → y, every element the same.
    Fill {
        /// The element.
        value: f32,
    },
    /// w, dw, state.., master? → w, state.., master?, all changed in place. Where the weights are bf16, the
    /// master is their f32 copy: it is updated, and w is its rounding.
    Update(Optimizer),
    /// w, ids, drows, state.., master? → w, state.., master?: changes only the rows that ids name, in place;
    /// gradients of equal ids are summed first. Where `bag`, one gradient row serves every id of the last axis.
    UpdateRows {
        /// The rule.
        optimizer: Optimizer,
        /// Whether the rows of the last axis of ids were summed.
        bag: bool,
    },
}

impl Op {
    /// The kernel's type in a trace, such as `conv` or `batch-norm.backward`.
    pub fn name(&self) -> String {
        let fixed = match self {
            Op::Conv(c) if c.transposed => "conv-transposed",
            Op::ConvBackwardData(c) if c.transposed => "conv-transposed.backward-data",
            Op::ConvBackwardWeight(c) if c.transposed => "conv-transposed.backward-weight",
            Op::Conv(_) => "conv",
            Op::ConvBackwardData(_) => "conv.backward-data",
            Op::ConvBackwardWeight(_) => "conv.backward-weight",
            Op::Linear => "linear",
            Op::LinearBackwardData => "linear.backward-data",
            Op::LinearBackwardWeight => "linear.backward-weight",
            Op::LinearBackwardUpdate { optimizer, .. } => {
                return format!("linear.backward-{}", optimizer.name());
            }
            Op::MatMul { .. } => "matmul",
            Op::BatchNorm { .. } => "batch-norm",
            Op::BatchNormBackward => "batch-norm.backward",
            Op::LayerNorm { .. } => "layer-norm",
            Op::LayerNormBackward => "layer-norm.backward",
            Op::ResponseNorm(_) => "response-norm",
            Op::ResponseNormBackward(_) => "response-norm.backward",
            Op::Activate(kind) => kind.name(),
            Op::ActivateBackward(kind) => return format!("{}.backward", kind.name()),
            Op::Pool(p) => p.kind.name(),
            Op::PoolBackward(p) => return format!("{}.backward", p.kind.name()),
            Op::GlobalPool => "global-pool",
            Op::GlobalPoolBackward => "global-pool.backward",
            Op::Add => "add",
            Op::Mul => "mul",
            Op::Scale { .. } => "scale",
            Op::SumTo => "sum-to",
            Op::Concat { .. } => "concat",
            Op::Slice { .. } => "slice",
            Op::Split { .. } => "split",
            Op::Pad { .. } => "pad",
            Op::Transpose { .. } => "transpose",
            Op::Softmax => "softmax",
            Op::SoftmaxBackward => "softmax.backward",
            Op::CrossEntropy => "cross-entropy",
            Op::CrossEntropyBackward { .. } => "cross-entropy.backward",
            Op::Mean => "mean",
            Op::BinaryCrossEntropy => "binary-cross-entropy",
            Op::BinaryCrossEntropyBackward => "binary-cross-entropy.backward",
            Op::MeanSquare => "mean-square",
            Op::MeanSquareBackward => "mean-square.backward",
            Op::Attention(_) => "attention",
            Op::AttentionBackward(_) => "attention.backward",
            Op::Embedding { .. } => "embedding",
            Op::EmbeddingBackward { .. } => "embedding.backward",
            Op::Dropout { .. } => "dropout",
            Op::DropoutBackward { .. } => "dropout.backward",
            Op::LstmCell => "lstm-cell",
            Op::LstmCellBackwardData => "lstm-cell.backward-data",
            Op::LstmCellBackwardWeight => "lstm-cell.backward-weight",
            Op::DotInteraction => "dot-interaction",
            Op::DotInteractionBackward => "dot-interaction.backward",
            Op::Fill { .. } => "fill",
            Op::Update(optimizer) => optimizer.name(),
            Op::UpdateRows { optimizer, .. } => return format!("{}-rows", optimizer.name()),
        };
        fixed.to_string()
    }

    /// The rule by which it changes weights, if it changes any.
    pub fn optimizer(&self) -> Option<Optimizer> {
        match self {
            Op::Update(optimizer)
            | Op::UpdateRows { optimizer, .. }
            | Op::LinearBackwardUpdate { optimizer, .. } => Some(*optimizer),
            _ => None,
        }
    }

    /// What the results beyond the first are called; the first has the name of its node.
    pub(super) fn further_results(&self) -> &'static [&'static str] {
        match self {
            Op::BatchNorm { .. } | Op::LayerNorm { .. } => &["mean", "deviation"],
            Op::CrossEntropy | Op::Attention(_) => &["probabilities"],
            Op::LstmCell => &["cell", "gates"],
            _ => &[],
        }
    }

    /// The pairs (operand, result) whose memory may be one and the same where the operand is no longer needed,
    /// in order of preference: the kernel reads an element before it writes it.
    pub fn may_overwrite(&self) -> &'static [(usize, usize)] {
        match self {
            Op::Activate(_) | Op::Scale { .. } | Op::Dropout { .. } | Op::DropoutBackward { .. } => &[(0, 0)],
            Op::ActivateBackward(_) => &[(1, 0), (0, 0)],
            Op::Add | Op::Mul => &[(0, 0), (1, 0)],
            Op::Softmax => &[(0, 0)],
            Op::SoftmaxBackward => &[(1, 0)],
            Op::BatchNormBackward | Op::LayerNormBackward => &[(4, 0)],
            Op::LstmCellBackwardData => &[(4, 3)],
            Op::CrossEntropy => &[(0, 1)],
            Op::CrossEntropyBackward { .. } => &[(0, 0)],
            Op::BinaryCrossEntropyBackward | Op::MeanSquareBackward => &[(0, 0)],
            _ => &[],
        }
    }
}

impl PoolKind {
    fn name(self) -> &'static str {
        match self {
            PoolKind::Max => "max-pool",
            PoolKind::Average { .. } => "average-pool",
        }
    }
}
