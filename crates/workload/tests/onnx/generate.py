#!/usr/bin/env python3
"""Writes the small ONNX files beside this script, with the `onnx` package (1.17.0) and nothing else.

Run it only to change the files; the tests read what is committed. Each file is checked by the package itself, and holds
what real exporters write: symbolic axes, shapes computed from shapes, layers taken apart into small operators.
"""

import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    def __init__(self, external=False):
        """Where `external`, the bytes of the weights are in another file, which is not there."""
        self.nodes, self.weights, self.random = [], [], np.random.RandomState(1)
        self.external, self.offset = external, 0

    def weight(self, name, *dims):
        if self.external:
            tensor = TensorProto(name=name, data_type=FLOAT, dims=dims, data_location=TensorProto.EXTERNAL)
            length = 4 * int(np.prod(dims))
            for key, text in [("location", "weights.bin"), ("offset", str(self.offset)), ("length", str(length))]:
                tensor.external_data.add(key=key, value=text)
            self.weights.append(tensor)
            self.offset += length
            return name
        data = self.random.standard_normal(dims).astype(np.float32)
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def numbers(self, name, values, dtype=np.int64):
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def constant(self, name, values, dtype=np.float32):
        tensor = numpy_helper.from_array(np.array(values, dtype), name)
        return self.add("Constant", [], name, value=tensor)

    def add(self, op, inputs, output, **attributes):
        outputs = [output] if isinstance(output, str) else output
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name=name, **attributes))
        return outputs[0]

    def save(self, file, inputs, outputs, opset=17):
        graph = helper.make_graph(self.nodes, file, inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        if not self.external:
            onnx.checker.check_model(model, full_check=True)
        onnx.save(model, os.path.join(HERE, file + ".onnx"))


def value(name, kind, *dims):
    return helper.make_tensor_value_info(name, kind, list(dims))


def lenet():
    """Convolutions, poolings, linear layers with the weight output by input, a final softmax; the batch is a name."""
    g = Graph()
    x = g.add("Conv", ["image", g.weight("conv1.w", 4, 1, 5, 5), g.weight("conv1.b", 4)], "c1", pads=[2, 2, 2, 2])
    x = g.add("MaxPool", [g.add("Relu", [x], "r1")], "p1", kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("Conv", [x, g.weight("conv2.w", 8, 4, 5, 5), g.weight("conv2.b", 8)], "c2")
    x = g.add("MaxPool", [g.add("Relu", [x], "r2")], "p2", kernel_shape=[2, 2], strides=[2, 2])
    x = g.add("Flatten", [x], "flat")
    x = g.add("Gemm", [x, g.weight("fc1.w", 10, 200), g.weight("fc1.b", 10)], "f1", transB=1)
    x = g.add("Gemm", [g.add("Tanh", [x], "t1"), g.weight("fc2.w", 10, 10), g.weight("fc2.b", 10)], "f2", transB=1)
    g.add("Softmax", [x], "classes")
    g.save("lenet", [value("image", FLOAT, "N", 1, 28, 28)], [value("classes", FLOAT, "N", 10)], opset=13)


def mlp():
    """Linear layers in three ways (weight input by output, product and sum, a bias of one), the batch fixed to 4 and
    repeated in the shape of a Reshape."""
    g = Graph()
    x = g.add("Reshape", ["pixels", g.numbers("shape", [4, 36])], "rows")
    x = g.add("Gemm", [x, g.weight("fc1.w", 36, 16), g.weight("fc1.b", 16)], "f1")
    x = g.add("MatMul", [g.add("Relu", [x], "r1"), g.weight("fc2.w", 16, 12)], "m2")
    x = g.add("Relu", [g.add("Add", [x, g.weight("fc2.b", 12)], "f2")], "r2")
    x = g.add("Dropout", [x, g.numbers("ratio", 0.25, np.float32)], "d2")
    g.add("Gemm", [x, g.weight("fc3.w", 5, 12), g.weight("fc3.b", 5)], "logits", transB=1)
    g.save("mlp", [value("pixels", FLOAT, 4, 1, 6, 6)], [value("logits", FLOAT, 4, 5)])


def heads(g, x, name, count, width):
    """Batch, positions, width to batch, heads, positions, width of a head, by a shape that is computed."""
    shape = g.add("Shape", [x], name + ".shape")
    part = [
        g.add("Unsqueeze", [g.add("Gather", [shape, g.constant(f"{name}.{i}", i, np.int64)], f"{name}.dim{i}", axis=0),
                            g.constant(f"{name}.axes{i}", [0], np.int64)], f"{name}.list{i}")
        for i in range(2)
    ]
    rest = g.constant(name + ".rest", [count, width // count], np.int64)
    target = g.add("Concat", part + [rest], name + ".target", axis=0)
    x = g.add("Reshape", [x, target], name + ".split")
    return g.add("Transpose", [x], name + ".heads", perm=[0, 2, 1, 3])


def norm(g, x, name, width):
    """A layer norm as exporters wrote it before it was an operator."""
    mean = g.add("ReduceMean", [x], name + ".mean", axes=[-1])
    centred = g.add("Sub", [x, mean], name + ".centred")
    square = g.add("Pow", [centred, g.constant(name + ".two", 2.0)], name + ".square")
    variance = g.add("ReduceMean", [square], name + ".variance", axes=[-1])
    shifted = g.add("Add", [variance, g.constant(name + ".epsilon", 1e-5)], name + ".shifted")
    x = g.add("Div", [centred, g.add("Sqrt", [shifted], name + ".deviation")], name + ".normal")
    x = g.add("Mul", [x, g.weight(name + ".gamma", width)], name + ".scaled")
    return g.add("Add", [x, g.weight(name + ".beta", width)], name + ".out")


def linear(g, x, name, inputs, outputs):
    x = g.add("MatMul", [x, g.weight(name + ".w", inputs, outputs)], name + ".product")
    return g.add("Add", [g.weight(name + ".b", outputs), x], name + ".out")


def transformer():
    """One block of a language model: look-up, attention with a mask, GELU by erf, the word table as the last layer; the
    batch and the sequence are names."""
    g, width, count, words = Graph(external=True), 64, 4, 1000
    table = g.weight("words", words, width)
    x = g.add("Gather", [table, "ids"], "embedded")
    x = g.add("Add", [x, g.add("Slice", [g.weight("places", 128, width), g.constant("from", [0], np.int64),
                                         g.add("Shape", ["ids"], "length", start=1)], "here")], "placed")
    y = norm(g, x, "norm1", width)
    q, k, v = (heads(g, linear(g, y, n, width, width), n, count, width) for n in ["query", "key", "value"])
    scores = g.add("MatMul", [q, g.add("Transpose", [k], "turned", perm=[0, 1, 3, 2])], "products")
    scores = g.add("Div", [scores, g.constant("root", (width / count) ** 0.5)], "scores")
    mask = g.add("Cast", ["mask"], "mask.float", to=FLOAT)
    mask = g.add("Mul", [g.add("Sub", [g.constant("one", 1.0), mask], "mask.off"), g.constant("far", -1e4)], "mask.far")
    mask = g.add("Unsqueeze", [mask, g.constant("mask.axes", [1, 2], np.int64)], "mask.wide")
    odds = g.add("Softmax", [g.add("Add", [scores, mask], "masked")], "odds", axis=-1)
    y = g.add("Transpose", [g.add("MatMul", [odds, v], "mixed")], "back", perm=[0, 2, 1, 3])
    y = g.add("Reshape", [y, g.constant("joined.shape", [0, 0, width], np.int64)], "joined")
    x = g.add("Add", [x, linear(g, y, "attended", width, width)], "sum1")
    y = linear(g, norm(g, x, "norm2", width), "up", width, 4 * width)
    erf = g.add("Erf", [g.add("Div", [y, g.constant("sqrt2", 2 ** 0.5)], "gelu.1")], "gelu.2")
    y = g.add("Mul", [y, g.add("Add", [erf, g.constant("gelu.one", 1.0)], "gelu.3")], "gelu.4")
    y = g.add("Mul", [y, g.constant("half", 0.5)], "gelu.5")
    x = g.add("Add", [x, linear(g, y, "down", 4 * width, width)], "sum2")
    g.add("MatMul", [norm(g, x, "norm3", width), g.add("Transpose", [table], "table", perm=[1, 0])], "logits")
    axes = ["batch", "sequence"]
    g.save("transformer", [value("ids", INT, *axes), value("mask", INT, *axes)], [value("logits", FLOAT, *axes, words)])


def lstm():
    """Two LSTM layers, the first in both directions, positions before samples; the result is a number a sample."""
    g, width, features = Graph(), 4, 3
    g.add("LSTM", ["x", g.weight("w1", 2, 16, features), g.weight("r1", 2, 16, width), g.weight("b1", 2, 32)],
          ["y1"], hidden_size=width, direction="bidirectional")
    y = g.add("Transpose", ["y1"], "turned", perm=[0, 2, 1, 3])
    y = g.add("Reshape", [y, g.numbers("join", [0, 0, -1])], "joined")
    g.add("LSTM", [y, g.weight("w2", 1, 16, 2 * width), g.weight("r2", 1, 16, width)], ["", "last"], hidden_size=width)
    y = g.add("Squeeze", ["last", g.numbers("first", [0])], "state")
    y = g.add("Gemm", [y, g.weight("fc.w", 1, width), g.weight("fc.b", 1)], "score", transB=1)
    g.save("lstm", [value("x", FLOAT, 6, "batch_size", features)], [value("score", FLOAT, "batch_size", 1)])


def mixture():
    """One of everything else, over images of batch 2; the result is an image behind a sigmoid, and a mean."""
    g = Graph()
    x = g.add("Conv", ["image", g.weight("stem.w", 8, 3, 3, 3)], "stem", auto_pad="SAME_UPPER", strides=[2, 2])
    norms = [g.weight(f"norm.{n}", 8) for n in ["gamma", "beta", "mean", "variance"]]
    x = g.add("LeakyRelu", [g.add("BatchNormalization", [x] + norms, "norm")], "leaky", alpha=0.1)
    x = g.add("LRN", [x], "lrn", size=5)
    a, b = "left", "right"
    g.add("Split", [x, g.numbers("sizes", [3, 5])], [a, b], axis=1)
    b = g.add("Slice", [b, g.numbers("start", [1]), g.numbers("end", [2 ** 63 - 1]), g.numbers("axis", [1])], "cut")
    a = g.add("Clip", [a, g.numbers("low", 0.0, np.float32), g.numbers("high", 6.0, np.float32)], "relu6")
    b = g.add("HardSwish", [b], "swish")
    x = g.add("Concat", [a, b], "joined", axis=1)
    x = g.add("AveragePool", [x], "pooled", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1)
    x = g.add("Pad", [x, g.numbers("pads", [0, 0, 0, 0, 0, 0, 1, 1])], "padded")
    gate = g.add("GlobalAveragePool", [x], "gate.mean")
    gate = g.add("Sigmoid", [g.add("Conv", [gate, g.weight("gate.w", 7, 7, 1, 1)], "gate.conv")], "gate")
    x = g.add("Mul", [gate, x], "gated")
    length = g.add("Sqrt", [g.add("ReduceSum", [g.add("Pow", [x, g.numbers("two", 2.0, np.float32)], "squares"),
                                                g.numbers("channels", [1])], "length.squared")], "length")
    x = g.add("Div", [x, g.add("Add", [length, g.numbers("little", 1e-6, np.float32)], "length.safe")], "unit")
    x = g.add("Exp", [x], "exp")
    keep = g.numbers("keep", [[True, False, True, True, False, True]], bool)
    x = g.add("Where", [keep, x, g.numbers("zero", 0.0, np.float32)], "kept")
    x = g.add("ConvTranspose", [x, g.weight("grow.w", 7, 4, 2, 2), g.weight("grow.b", 4)], "grown", strides=[2, 2])
    x = g.add("Resize", [x, "", g.numbers("scales", [1, 1, 2, 2], np.float32)], "large", mode="nearest")
    x = g.add("Conv", [x, g.weight("last.w", 4, 1, 3, 3)], "last", group=4, pads=[1, 1, 1, 1])
    g.add("Sigmoid", [x], "picture")
    mean = g.add("ReduceMean", [x], "mean", axes=[1, 3], keepdims=0)
    g.add("Mul", [mean, g.weight("mean.scale", 24)], "profile")
    g.save("mixture", [value("image", FLOAT, 2, 3, 16, 16)],
           [value("picture", FLOAT, 2, 4, 24, 24), value("profile", FLOAT, 2, 24)])


def loop():
    """An operator that is not supported."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["going"], ["still"]), helper.make_node("Add", ["v", "v"], ["w"])], "body",
        [value("i", INT), value("going", TensorProto.BOOL), value("v", FLOAT, 1, 4)],
        [value("still", TensorProto.BOOL), value("w", FLOAT, 1, 4)])
    g = Graph()
    x = g.add("Gemm", ["x", g.weight("fc.w", 4, 4)], "y")
    g.add("Loop", [g.numbers("times", 3), "", x], "z", body=body)
    g.save("loop", [value("x", FLOAT, 1, 4)], [value("z", FLOAT, 1, 4)])


def external():
    """A layer of 16 million weights without their bytes."""
    g = Graph(external=True)
    g.add("Gemm", ["x", g.weight("w", 4096, 4096), g.weight("b", 4096)], "y", transB=1)
    g.save("external", [value("x", FLOAT, "N", 4096)], [value("y", FLOAT, "N", 4096)])


for write in [lenet, mlp, transformer, lstm, mixture, loop, external]:
    write()
