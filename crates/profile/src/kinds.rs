//! Which fitted kind stands for which kernel of a trace: the one table.
//!
//! Kinds carry the names of our own operations. Operations that the measured profile does not have go to the kind that
//! moves bytes and computes most alike.

/// The kinds that are fitted, each with its name in AutoTM's profile. The first ten are its most frequent.
pub const FITTED: [(&str, &str); 13] = [
    ("batch-norm.backward", "BatchNormTrainingBackprop"),
    ("conv.backward-weight", "ConvolutionBiasBackpropFiltersBias"),
    ("batch-norm", "BatchNormTrainingRelu"),
    ("add", "Add"),
    ("conv", "ConvolutionBias"),
    ("concat", "Concat"),
    ("conv.backward-data", "ConvolutionBackpropData"),
    ("transpose", "ConvertLayout"),
    ("relu.backward", "ReluBackprop"),
    ("slice", "Slice"),
    ("max-pool.backward", "MaxPoolWithIndicesBackprop"),
    ("max-pool", "MaxPoolWithIndices"),
    ("linear", "MatmulBias"),
];

/// Operations that are not fitted, each with the kind that stands for it.
const ALIKE: [(&str, &str); 48] = [
    ("conv-transposed", "conv.backward-data"),
    ("conv-transposed.backward-data", "conv"),
    ("conv-transposed.backward-weight", "conv.backward-weight"),
    ("linear.backward-data", "linear"),
    ("linear.backward-weight", "linear"),
    ("linear.backward-sgd", "linear"),
    ("linear.backward-adamw", "linear"),
    ("matmul", "linear"),
    ("attention", "linear"),
    ("attention.backward", "linear"),
    ("lstm-cell", "linear"),
    ("lstm-cell.backward-data", "linear"),
    ("lstm-cell.backward-weight", "linear"),
    ("dot-interaction", "linear"),
    ("dot-interaction.backward", "linear"),
    ("layer-norm", "batch-norm"),
    ("layer-norm.backward", "batch-norm.backward"),
    ("response-norm", "batch-norm"),
    ("response-norm.backward", "batch-norm.backward"),
    ("softmax", "relu.backward"),
    ("softmax.backward", "relu.backward"),
    ("cross-entropy", "relu.backward"),
    ("cross-entropy.backward", "relu.backward"),
    ("binary-cross-entropy", "relu.backward"),
    ("binary-cross-entropy.backward", "relu.backward"),
    ("relu", "relu.backward"),
    ("relu6", "relu.backward"),
    ("leaky-relu", "relu.backward"),
    ("sigmoid", "relu.backward"),
    ("tanh", "relu.backward"),
    ("gelu", "relu.backward"),
    ("gelu-tanh", "relu.backward"),
    ("average-pool", "max-pool"),
    ("average-pool.backward", "max-pool.backward"),
    ("global-pool", "max-pool"),
    ("global-pool.backward", "max-pool.backward"),
    ("mul", "add"),
    ("scale", "add"),
    ("sum-to", "add"),
    ("dropout", "relu.backward"),
    ("fill", "add"),
    ("sgd", "add"),
    ("sgd-rows", "add"),
    ("adamw", "add"),
    ("adamw-rows", "add"),
    ("split", "concat"),
    ("pad", "concat"),
    ("embedding", "concat"),
];

/// The kind that stands for an operation of a trace, or for a kernel type of AutoTM's profile.
pub fn kind_of(op: &str) -> Option<&'static str> {
    let fitted = FITTED.iter().find(|(kind, autotm)| op == *kind || op == *autotm).map(|(kind, _)| *kind);
    let alike = |op: &str| ALIKE.iter().find(|(name, _)| *name == op).map(|(_, kind)| *kind);
    // The backward pass of an element-wise function is one too.
    fitted.or_else(|| alike(op)).or_else(|| alike(op.strip_suffix(".backward")?))
}
