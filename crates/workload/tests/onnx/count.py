#!/usr/bin/env python3
"""Counts parameters and multiply-adds of ONNX files by the `onnx` package's own shape inference, so that the importer can
be held to figures that it did not make itself.

    count.py [batch=N] [sequence=N] FILE...

prints one line a file: its name, the batch, the sequence, the parameters, the multiply-adds of the forward pass. The
committed `counts.tsv` was made with

    count.py LIGHT/*.onnx; count.py batch=3 sequence=10 lenet.onnx transformer.onnx lstm.onnx; count.py mlp.onnx mixture.onnx
"""

import os
import sys
from math import prod

import onnx
from onnx import helper, shape_inference


def shapes(model, sizes):
    """The extents of every tensor, the names of axes replaced by numbers."""
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_value = sizes["sequence" if "seq" in dim.dim_param else "batch"]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    known = {t.name: list(t.dims) for t in model.graph.initializer}
    for value in list(model.graph.input) + list(model.graph.value_info) + list(model.graph.output):
        known.setdefault(value.name, [d.dim_value for d in value.type.tensor_type.shape.dim])
    return model, known


def count(path, sizes):
    model, shape = shapes(onnx.load(path, load_external_data=False), dict(sizes))
    weights = {t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.FLOAT}
    weights |= {n.output[0] for n in model.graph.node if n.op_type == "ConstantOfShape"}
    parameters, macs = set(), 0
    for node in model.graph.node:
        at = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        dims = [shape.get(name, []) for name in node.input]
        out = shape.get(node.output[0]) or shape.get(node.output[-1], [])
        state = node.input[3:] if node.op_type == "BatchNormalization" else []
        scales = node.input if node.op_type == "Resize" else []
        for name, extents in zip(node.input, dims):
            # A single number is a parameter only as a bias.
            single = prod(extents) == 1 and node.op_type not in ("Conv", "Gemm")
            if name in weights and name not in state and name not in scales and not single:
                parameters.add(name)
        if node.op_type == "Conv":
            macs += prod(out) * prod(dims[1][1:])
        elif node.op_type == "ConvTranspose":
            macs += prod(dims[0]) * prod(dims[1][1:])
        elif node.op_type == "Gemm":
            macs += prod(out) * dims[0][1 - at.get("transA", 0)]
        elif node.op_type == "MatMul":
            macs += prod(out) * dims[0][-1]
        elif node.op_type == "LSTM":
            steps, batch, _ = dims[0]
            macs += steps * batch * (prod(dims[1]) + prod(dims[2]))
    first = next(i for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer})
    extents = [d.dim_value for d in first.type.tensor_type.shape.dim]
    batch = sizes.get("batch", extents[0])
    name = os.path.splitext(os.path.basename(path))[0]
    print(name, batch, sizes.get("sequence", 0), sum(prod(shape[n]) for n in parameters), macs, sep="\t")


if __name__ == "__main__":
    chosen = {}
    for argument in sys.argv[1:]:
        if "=" in argument:
            key, number = argument.split("=")
            chosen[key] = int(number)
        else:
            count(argument, chosen)
