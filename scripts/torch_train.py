"""Trains ResNet-50 on 64x64 images and VGG-16 on 32x32 ones with PyTorch, for `crates/policies/benches/training.rs`.

The argument is the number of threads. Reads from standard input: `resnet50 BATCH` or `vgg16 BATCH` makes a network,
`step` trains on one batch and answers with the seconds, `families` answers with a JSON object of seconds by family of
kernels, `end` ends. Momentum is made of additions and products there, so those are one family.
"""

import json
import sys
import time

import torch
from torch import nn

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
print("ready", torch.__version__, flush=True)


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.path = nn.Sequential(
            nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after),
        )
        self.skip = nn.Identity()
        if before != after or stride != 1:
            self.skip = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
        self.last = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.last(self.path(x) + self.skip(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    before = 64
    for stage, blocks in enumerate([3, 4, 6, 3]):
        for block in range(blocks):
            width = 64 << stage
            layers.append(Bottleneck(before, width, 2 if block == 0 and stage > 0 else 1))
            before = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000)]
    return nn.Sequential(*layers), 64


def vgg16():
    layers, before = [], 3
    for width, convolutions in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]:
        for _ in range(convolutions):
            layers += [nn.Conv2d(before, width, 3, 1, 1), nn.ReLU(inplace=True)]
            before = width
        layers.append(nn.MaxPool2d(2, 2))
    layers += [
        nn.Flatten(), nn.Linear(512, 4096), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 4096),
        nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4096, 1000),
    ]
    return nn.Sequential(*layers), 32


# What PyTorch calls its kernels, by the family that they belong to here; the first match counts.
FAMILIES = [
    ("convolution_backward", "convolution backward"), ("convolution", "convolution"), ("batch_norm", "norm"),
    ("addmm", "linear"), ("aten::mm", "linear"), ("threshold", "activation"), ("relu", "activation"),
    ("clamp", "activation"), ("max_pool", "pooling"), ("mean", "pooling"), ("foreach", "add and update"),
    ("aten::add", "add and update"), ("aten::mul", "add and update"), ("dropout", "dropout"), ("bernoulli", "dropout"),
    ("softmax", "loss"), ("nll", "loss"),
]


def families(step):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    sums = {}
    for row in profile.key_averages():
        family = next((family for part, family in FAMILIES if part in row.key), "other")
        sums[family] = sums.get(family, 0.0) + row.self_cpu_time_total / 1e6
    return sums


step = None
for line in sys.stdin:
    words = line.split()
    if words == ["end"]:
        break
    if words == ["step"]:
        begin = time.perf_counter()
        step()
        print(time.perf_counter() - begin, flush=True)
    elif words == ["families"]:
        print(json.dumps(families(step)), flush=True)
    else:
        network, side = {"resnet50": resnet50, "vgg16": vgg16}[words[0]]()
        batch = int(words[1])
        network.train()
        optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9, foreach=True)
        images, labels = torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))

        def step():
            optimizer.zero_grad(set_to_none=True)
            nn.functional.cross_entropy(network(images), labels).backward()
            optimizer.step()

        print(sum(p.numel() for p in network.parameters()), flush=True)
