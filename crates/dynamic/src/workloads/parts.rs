//! What networks are made of: operators with their shapes and costs.

use crate::tape::{Form, Keeps, Parameter, Tape, Value};

/// A product with a parameter.
pub(super) fn linear(tape: &mut Tape, x: Value, w: Parameter, outputs: u64) -> Value {
    let [rows, inputs, _] = x.dims;
    let form = Form {
        aten: "linear",
        kernel: "linear",
        parameter: Some(w),
        out: [rows, outputs, 1],
        flops: 2 * rows * inputs * outputs,
        keeps: Keeps::Inputs,
    };
    tape.run(&[x], form)
}

/// A function of each element of one value; its gradient needs what it made.
pub(super) fn apply(tape: &mut Tape, name: &str, x: Value) -> Value {
    let elements = x.dims.iter().product();
    let kernel = if name == "relu" { "relu" } else { "tanh" };
    let form =
        Form { aten: name, kernel, parameter: None, out: x.dims, flops: elements, keeps: Keeps::Output };
    tape.run(&[x], form)
}

/// A function of each pair of elements.
pub(super) fn combine(tape: &mut Tape, name: &str, a: Value, b: Value) -> Value {
    let elements = a.dims.iter().product();
    let keeps = if name == "add" { Keeps::Nothing } else { Keeps::Inputs };
    let form = Form { aten: name, kernel: name, parameter: None, out: a.dims, flops: elements, keeps };
    tape.run(&[a, b], form)
}

/// A cell's gates: from a value four or five times as wide as the state to the state.
pub(super) fn gates(tape: &mut Tape, name: &str, x: Value, state: Value) -> Value {
    let elements: u64 = x.dims.iter().product();
    let form = Form {
        aten: name,
        kernel: "tanh",
        parameter: None,
        out: state.dims,
        flops: 4 * elements,
        keeps: Keeps::Inputs,
    };
    tape.run(&[x, state], form)
}

/// Several values side by side.
pub(super) fn beside(tape: &mut Tape, parts: &[Value]) -> Value {
    let width = parts.iter().map(|part| part.dims[1]).sum();
    let out = [parts[0].dims[0], width, 1];
    let form = Form { aten: "cat", kernel: "concat", parameter: None, out, flops: 0, keeps: Keeps::Nothing };
    tape.run(parts, form)
}

/// A convolution of images: `side` is that of its output, 3 × 3 windows.
pub(super) fn conv(tape: &mut Tape, x: Value, w: Parameter, channels: u64, side: u64) -> Value {
    let [images, inputs, _] = x.dims;
    let form = Form {
        aten: "conv2d",
        kernel: "conv",
        parameter: Some(w),
        out: [images, channels, side * side],
        flops: 2 * 9 * images * inputs * channels * side * side,
        keeps: Keeps::Inputs,
    };
    tape.run(&[x], form)
}

/// Normalises what a layer made.
pub(super) fn norm(tape: &mut Tape, name: &str, x: Value) -> Value {
    let elements: u64 = x.dims.iter().product();
    let kernel = if name == "native_batch_norm" { "batch-norm" } else { "layer-norm" };
    let form =
        Form { aten: name, kernel, parameter: None, out: x.dims, flops: 8 * elements, keeps: Keeps::Inputs };
    tape.run(&[x], form)
}

/// Halves the sides of images.
pub(super) fn pool(tape: &mut Tape, x: Value) -> Value {
    let [images, channels, pixels] = x.dims;
    let form = Form {
        aten: "max_pool2d",
        kernel: "max-pool",
        parameter: None,
        out: [images, channels, (pixels / 4).max(1)],
        flops: images * channels * pixels,
        keeps: Keeps::Inputs,
    };
    tape.run(&[x], form)
}

/// The mean of each channel.
pub(super) fn mean(tape: &mut Tape, x: Value) -> Value {
    let [images, channels, _] = x.dims;
    let form = Form {
        aten: "mean",
        kernel: "global-pool",
        parameter: None,
        out: [images, channels, 1],
        flops: x.dims.iter().product(),
        keeps: Keeps::Nothing,
    };
    tape.run(&[x], form)
}

/// The scores of all pairs of words of a sequence, and what they pick: three kernels, as PyTorch's math path has them.
pub(super) fn attention(tape: &mut Tape, qkv: [Value; 3], words: u64, heads: u64) -> Value {
    let [rows, width, _] = qkv[0].dims;
    let scores = [rows, words * heads, 1];
    let product = |out: [u64; 3]| Form {
        aten: "bmm",
        kernel: "matmul",
        parameter: None,
        out,
        flops: 2 * rows * words * width,
        keeps: Keeps::Inputs,
    };
    let scored = tape.run(&qkv[..2], product(scores));
    let elements = rows * words * heads;
    let form = Form {
        aten: "_softmax",
        kernel: "softmax",
        parameter: None,
        out: scores,
        flops: 5 * elements,
        keeps: Keeps::Output,
    };
    let weights = tape.run(&[scored], form);
    tape.run(&[weights, qkv[2]], product([rows, width, 1]))
}

/// The loss.
pub(super) fn loss(tape: &mut Tape, x: Value) -> Value {
    let form = Form {
        aten: "cross_entropy_loss",
        kernel: "cross-entropy",
        parameter: None,
        out: [1, 1, 1],
        flops: 5 * x.dims.iter().product::<u64>(),
        keeps: Keeps::Inputs,
    };
    tape.run(&[x], form)
}
