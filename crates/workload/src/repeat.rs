//! Whether a kernel may be run again, and what its type says of that where the trace does not.
//!
//! Dropping what a kernel made and making it again (Chen et al. 2016; Capuchin, section 4.3) is right only where the second
//! run gives the same bits and changes nothing else. Whoever writes a trace knows and can say so for each kernel; for a trace that says
//! nothing there is a default by type, in the words of PyTorch's operators and of our own. A type that nobody knows is run
//! once. `docs/trace-format.md` has the table.

use crate::trace::{Kernel, Phase};

/// The type of a kernel that computes nothing and stands for a program that holds its operands until there, as Python holds gradients
/// beyond their last use. Their memory counts until then; their bytes need not be made again for it.
pub const HELD: &str = "held";

/// Whether a kernel may be run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// On the same bytes it makes the same bytes, and nothing else. One that changes a tensor in place is run again only
    /// behind all that made the tensor before it, on fresh memory.
    Pure,
    /// The same where the generator of random numbers is put back to where it was at the first run.
    Seeded,
    /// The same where the state that it changes beside its results (running statistics) is a scratch copy in the second run.
    Scratch,
    /// It must not be run again.
    Once,
}

/// The words of the text form.
pub(crate) const WORDS: [(&str, Repeat); 4] = [
    ("pure", Repeat::Pure),
    ("seeded", Repeat::Seeded),
    ("scratch", Repeat::Scratch),
    ("once", Repeat::Once),
];

impl Repeat {
    /// The word for it in files.
    pub fn name(self) -> &'static str {
        WORDS.iter().find(|(_, repeat)| *repeat == self).map_or("", |(name, _)| name)
    }

    /// What a kernel of this type may do where its trace does not say.
    pub fn of_type(op: &str, phase: Phase) -> Repeat {
        if phase == Phase::Update {
            return Repeat::Once;
        }
        let bare = op.strip_prefix("aten::").or_else(|| op.strip_prefix("aten.")).unwrap_or(op);
        let base = bare.split('.').next().unwrap_or(bare);
        let spelled = base.replace('-', "_");
        let name = spelled.trim_matches('_');
        let backward = bare.contains("backward") || bare.contains("_jvp");
        if ONCE.iter().any(|once| name.contains(once)) {
            return Repeat::Once;
        }
        if !backward && STATEFUL.iter().any(|norm| name.contains(norm)) {
            return if name.contains("no_training") { Repeat::Pure } else { Repeat::Scratch };
        }
        if !backward && RANDOM.iter().any(|random| name.contains(random)) {
            return Repeat::Seeded;
        }
        let forward = name.trim_end_matches("_data").trim_end_matches("_backward");
        let known =
            PURE.contains(&name) || PURE.contains(&forward) || PARTS.iter().any(|part| name.contains(part));
        if known { Repeat::Pure } else { Repeat::Once }
    }
}

impl Kernel {
    /// Whether the kernel may be run again: what the trace says, or else what its type says.
    pub fn repeat(&self) -> Repeat {
        self.repeat.unwrap_or_else(|| Repeat::of_type(&self.op, self.phase))
    }
}

/// Parts of types that must run once: communication, fused updates, and sums whose order is chance.
const ONCE: [&str; 17] = [
    "c10d",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast_",
    "foreach",
    "fused_adam",
    "fused_sgd",
    "index_add",
    "scatter_add",
    "scatter_reduce",
    "index_put",
    "embedding_dense_backward",
    "embedding_backward",
    "indices_backward",
    "interpolate",
    "upsample",
];

/// Parts of types with running statistics.
const STATEFUL: [&str; 2] = ["batch_norm", "instance_norm"];

/// Parts of types that draw random numbers, or may.
const RANDOM: [&str; 11] = [
    "dropout",
    "bernoulli",
    "rand",
    "normal_",
    "uniform",
    "multinomial",
    "exponential",
    "poisson",
    "rrelu",
    "attention",
    "gumbel",
];

/// Parts of types that are functions of their operands.
const PARTS: [&str; 16] = [
    "conv",
    "linear",
    "matmul",
    "attention",
    "norm",
    "softmax",
    "pool",
    "gelu",
    "relu",
    "sigmoid",
    "tanh",
    "addmm",
    "bmm",
    "grouped_mm",
    "scaled_mm",
    "dropout_backward",
];

/// Other types that are functions of their operands.
const PURE: [&str; 152] = [
    "mm",
    "mv",
    "dot",
    "addmv",
    "addbmm",
    "einsum",
    "outer",
    "ger",
    "kron",
    "embedding",
    "gather",
    "scatter",
    "index",
    "index_select",
    "take",
    "masked_fill",
    "where",
    "cat",
    "concat",
    "stack",
    "split",
    "chunk",
    "slice",
    "select",
    "narrow",
    "pad",
    "constant_pad_nd",
    "roll",
    "flip",
    "repeat",
    "expand",
    "clone",
    "to_copy",
    "copy",
    "to",
    "contiguous",
    "view",
    "reshape",
    "reshape_copy",
    "unsafe_view",
    "transpose",
    "permute",
    "t",
    "squeeze",
    "unsqueeze",
    "as_strided",
    "alias",
    "detach",
    "add",
    "sub",
    "rsub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "fmod",
    "pow",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "erf",
    "erfc",
    "abs",
    "neg",
    "sign",
    "ceil",
    "floor",
    "round",
    "trunc",
    "clamp",
    "clamp_min",
    "clamp_max",
    "minimum",
    "maximum",
    "lerp",
    "addcmul",
    "addcdiv",
    "silu",
    "mish",
    "hardswish",
    "hardtanh",
    "elu",
    "celu",
    "softplus",
    "glu",
    "threshold",
    "logit",
    "sum",
    "sum_to",
    "mean",
    "var",
    "std",
    "var_mean",
    "amax",
    "amin",
    "max",
    "min",
    "prod",
    "any",
    "all",
    "argmax",
    "argmin",
    "topk",
    "sort",
    "argsort",
    "cumsum",
    "logsumexp",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_not",
    "isnan",
    "isinf",
    "tril",
    "triu",
    "diagonal",
    "arange",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "new_zeros",
    "new_ones",
    "new_full",
    "zeros_like",
    "ones_like",
    "full_like",
    "zero",
    "zeros",
    "ones",
    "full",
    "fill",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_say_what_may_run_again() {
        for (op, phase, repeat) in [
            ("addmm", Phase::Forward, Repeat::Pure),
            ("add_.Tensor", Phase::Forward, Repeat::Pure),
            ("_to_copy", Phase::Backward, Repeat::Pure),
            ("convolution_backward", Phase::Backward, Repeat::Pure),
            ("aten.gelu_backward.default", Phase::Backward, Repeat::Pure),
            ("native_layer_norm", Phase::Forward, Repeat::Pure),
            ("cudnn_batch_norm", Phase::Forward, Repeat::Scratch),
            ("batch-norm", Phase::Forward, Repeat::Scratch),
            ("batch-norm.backward", Phase::Backward, Repeat::Pure),
            ("cudnn_batch_norm_backward", Phase::Backward, Repeat::Pure),
            ("native_dropout", Phase::Forward, Repeat::Seeded),
            ("native_dropout_backward", Phase::Backward, Repeat::Pure),
            ("_scaled_dot_product_cudnn_attention", Phase::Forward, Repeat::Seeded),
            ("embedding_dense_backward", Phase::Backward, Repeat::Once),
            ("max_pool2d_with_indices_backward", Phase::Backward, Repeat::Once),
            ("mul_.Tensor", Phase::Update, Repeat::Once),
            ("my_extension", Phase::Forward, Repeat::Once),
        ] {
            assert_eq!(Repeat::of_type(op, phase), repeat, "{op}");
        }
    }
}
