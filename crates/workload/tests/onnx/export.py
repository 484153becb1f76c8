#!/usr/bin/env python3
"""Exports small networks with PyTorch (1.13), as `torch-*.onnx` beside this script.

Run it only to change the files; the tests read what is committed. What PyTorch wrote is kept, except that the bytes of the
weights and the comments are taken out with the `onnx` package, as if the weights were in a file of their own. Prints
the lines of `counts.tsv`: the parameters are PyTorch's count, the multiply-adds are counted layer by layer in PyTorch.
"""

import math
import os
import sys

import onnx
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class Gpt(nn.Module):
    """A block of GPT-2 with its mask, its GELU by tanh and its tied word table."""

    def __init__(self, words=50, width=32, heads=4, length=64):
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(width) for _ in range(3))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, ids):
        batch, length = ids.shape
        x = self.words(ids) + self.places(torch.arange(length).unsqueeze(0))
        width = x.shape[-1]
        q, k, v = (
            t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = (F.softmax(scores, -1) @ v).transpose(1, 2).contiguous().view(batch, length, width)
        x = x + self.out(y)
        h = self.up(self.norm2(x))
        h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * torch.pow(h, 3))))
        return F.linear(self.norm3(x + self.down(h)), self.words.weight)


class Tagger(nn.Module):
    """Two LSTM layers in both directions over embedded words."""

    def __init__(self):
        super().__init__()
        self.words, self.tags = nn.Embedding(50, 16), nn.Linear(48, 50)
        self.lstm = nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.tags(self.lstm(self.words(x))[0])


class Segment(nn.Module):
    """Down and up again, with a shortcut: GELU by erf, SiLU, nearest neighbours, a sigmoid."""

    def __init__(self):
        super().__init__()
        self.first, self.down, self.last = (
            nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, 2, 1), nn.Conv2d(16, 1, 3, padding=1))

    def forward(self, x):
        a = F.gelu(self.first(x))
        b = F.interpolate(F.silu(self.down(a)), scale_factor=2, mode="nearest")
        return torch.sigmoid(self.last(torch.cat([a, b], 1)))


def macs(network, x):
    """Multiply-adds of one pass: those of the modules as they run, and of the products between data."""
    total = 0

    def count(module, inputs, output):
        nonlocal total
        if isinstance(module, nn.Conv2d):
            total += output.numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            total += output.numel() * module.in_features
        elif isinstance(module, nn.LSTM):
            samples = inputs[0].shape[0] * inputs[0].shape[1]
            total += samples * sum(p.numel() for n, p in module.named_parameters() if n.startswith("weight"))

    hooks = [m.register_forward_hook(count) for m in network.modules()]
    network(x)
    [hook.remove() for hook in hooks]
    if isinstance(network, Gpt):
        (batch, length), (words, width) = x.shape, network.words.weight.shape
        total += batch * length * (2 * length * width + words * width)
    return total


def export(network, x, name, opset, training, axes=None, sizes=None):
    path = os.path.join(HERE, name + ".onnx")
    mode = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
    network.train(training)
    torch.onnx.export(network, x, path, opset_version=opset, training=mode, input_names=["x"], dynamic_axes=axes,
                      do_constant_folding=not training)
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and len(tensor.raw_data) > 16:
            tensor.external_data.add(key="location", value="weights.bin")
            tensor.external_data.add(key="length", value=str(len(tensor.raw_data)))
            tensor.data_location = onnx.TensorProto.EXTERNAL
            tensor.ClearField("raw_data")
    for node in model.graph.node:
        node.ClearField("doc_string")
    del model.graph.value_info[:]
    onnx.save(model, path)
    batch, sequence = sizes
    other = torch.zeros([batch] + ([sequence] if sequence else list(x.shape[1:])), dtype=x.dtype)
    parameters = sum(p.numel() for p in network.parameters())
    print(name, batch, sequence if axes and 1 in axes["x"] else 0, parameters, macs(network.eval(), other), sep="\t")


if __name__ == "__main__":
    torch.manual_seed(1)
    ids = lambda *shape: torch.zeros(shape, dtype=torch.long)
    sys.stderr = open(os.devnull, "w")
    export(Gpt(), ids(1, 20), "torch-gpt", 13, True, sizes=(6, 20))
    export(Gpt(), ids(2, 20), "torch-gpt-dynamic", 16, True, {"x": {0: "batch", 1: "sequence"}}, sizes=(6, 12))
    export(Tagger(), ids(2, 7), "torch-lstm", 13, False, sizes=(5, 7))
    export(Segment(), torch.randn(1, 3, 32, 32), "torch-segment", 11, False, sizes=(4, 0))
