//! The list of operators on data: what each is called, which attributes are understood, and the rule that lowers it.

use super::{Lowering, Outcome, conv, data, linear, norm, pointwise, recurrent};
use crate::import::onnx::model::Node;

/// How a node becomes kernels.
pub(super) type Rule = for<'a, 'b, 'c> fn(&'b mut Lowering<'a>, &'c Node<'a>) -> Outcome;

/// Every operator on data: its name, the attributes that its rule understands, and its rule. Attributes that change
/// nothing for a trace are listed too; `broadcast` of old versions is what newer ones always do.
pub(super) static RULES: &[(&str, &[&str], Rule)] = &[
    ("Add", &["broadcast"], pointwise::add),
    (
        "AveragePool",
        &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"],
        conv::pool,
    ),
    (
        "BatchNormalization",
        &["epsilon", "momentum", "spatial", "is_test", "training_mode", "consumed_inputs"],
        norm::batch_norm,
    ),
    ("Cast", &["to", "saturate"], data::cast),
    ("Clip", &["min", "max"], pointwise::clip),
    ("Concat", &["axis"], data::concat),
    ("Conv", &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"], conv::conv),
    (
        "ConvTranspose",
        &["auto_pad", "dilations", "group", "kernel_shape", "output_padding", "pads", "strides"],
        conv::conv,
    ),
    ("Div", &["broadcast"], pointwise::div),
    ("Dropout", &["ratio", "seed", "is_test"], pointwise::dropout),
    ("Erf", &[], pointwise::function),
    ("Exp", &[], pointwise::function),
    ("Expand", &[], data::expand),
    ("Flatten", &["axis"], data::reshape),
    ("Gather", &["axis"], data::gather),
    ("Gelu", &["approximate"], pointwise::function),
    ("Gemm", &["alpha", "beta", "broadcast", "transA", "transB"], linear::gemm),
    ("GlobalAveragePool", &[], conv::global_pool),
    ("GlobalMaxPool", &[], conv::global_pool),
    ("HardSigmoid", &["alpha", "beta"], pointwise::hard),
    ("HardSwish", &[], pointwise::hard),
    ("Identity", &[], data::identity),
    ("LRN", &["alpha", "beta", "bias", "size"], norm::response_norm),
    ("LSTM", &["direction", "hidden_size", "layout", "activations", "clip", "input_forget"], recurrent::lstm),
    ("LayerNormalization", &["axis", "epsilon", "stash_type"], norm::layer_norm),
    ("LeakyRelu", &["alpha"], pointwise::function),
    ("MatMul", &[], linear::matmul),
    (
        "MaxPool",
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
        conv::pool,
    ),
    ("Mul", &["broadcast"], pointwise::mul),
    ("Neg", &[], pointwise::function),
    ("Pad", &["mode", "pads", "value"], data::pad),
    ("Pow", &[], pointwise::pow),
    ("Reciprocal", &[], pointwise::function),
    ("ReduceMean", &["axes", "keepdims", "noop_with_empty_axes"], data::reduce),
    ("ReduceSum", &["axes", "keepdims", "noop_with_empty_axes"], data::reduce),
    ("Relu", &[], pointwise::function),
    ("Reshape", &["allowzero", "shape"], data::reshape),
    (
        "Resize",
        &[
            "antialias",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "mode",
            "nearest_mode",
        ],
        data::resize,
    ),
    ("Sigmoid", &[], pointwise::function),
    ("Slice", &["axes", "ends", "starts"], data::slice),
    ("Softmax", &["axis"], norm::softmax),
    ("Split", &["axis", "num_outputs", "split"], data::split),
    ("Sqrt", &[], pointwise::function),
    ("Squeeze", &["axes"], data::reshape),
    ("Sub", &["broadcast"], pointwise::sub),
    ("Sum", &[], pointwise::add),
    ("Tanh", &[], pointwise::function),
    ("Transpose", &["perm"], data::transpose),
    ("Unsqueeze", &["axes"], data::reshape),
    ("Upsample", &["mode", "scales"], data::resize),
    ("Where", &[], pointwise::choose),
];
