"""Golden values of small networks, made by PyTorch, for `crates/kernels/tests/golden.rs`.

    /usr/bin/python3 scripts/golden.py > crates/kernels/tests/golden/golden.txt

Every network trains one step. Inputs and weights follow from a formula that both sides know (`numbers`), so only
results are printed: for every output, gradient and updated weight its size, its sum, its sum of squares and some of its
elements. A line is: network, name of the tensor, size, sum, sum of squares, elements. Floating-point numbers have nine
digits.
"""

import torch
import torch.nn.functional as F

torch.set_num_threads(1)
SAMPLES = 24


def numbers(name, count):
    """Numbers in -1..1 that follow from a name: the same formula stands in the Rust test."""
    key = 2166136261
    for byte in name.encode():
        key = ((key ^ byte) * 16777619) & 0xFFFFFFFF
    at = torch.arange(count, dtype=torch.int64)
    x = (at * 2654435761 + key) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 739982445) & 0xFFFFFFFF
    x = ((x ^ (x >> 12)) * 695872825) & 0xFFFFFFFF
    x = x ^ (x >> 15)
    return (x >> 8).double() / (1 << 23) - 1.0


class Net:
    def __init__(self, name):
        self.name, self.weights, self.tables = name, {}, set()

    def input(self, name, *shape):
        count = int(torch.tensor(shape).prod())
        return numbers(name, count).float().reshape(shape)

    def ids(self, name, below, *shape):
        count = int(torch.tensor(shape).prod())
        return ((numbers(name, count) + 1.0) / 2.0 * below).long().clamp(max=below - 1).reshape(shape)

    def weight(self, name, scale, *shape, offset=0.0):
        w = (self.input(name, *shape) * scale + offset).requires_grad_()
        self.weights[name] = w
        return w

    def table(self, name, scale, *shape):
        """A table of which only the rows in use change: its other rows must not decay."""
        self.tables.add(name)
        return self.weight(name, scale, *shape)

    def put(self, name, tensor):
        t = tensor.detach().double().flatten()
        step = max(1, len(t) // SAMPLES)
        some = t[::step][:SAMPLES]
        text = " ".join(f"{x:.9g}" for x in [t.sum(), (t * t).sum(), *some])
        print(f"{self.name} {name} {len(t)} {text}")

    def finish(self, optimizer, loss, **outputs):
        for name, tensor in outputs.items():
            self.put(name, tensor)
        self.put("loss", loss)
        tables = [w for name, w in self.weights.items() if name in self.tables]
        others = [w for name, w in self.weights.items() if name not in self.tables]
        optimizer = optimizer([{"params": others}, {"params": tables, "weight_decay": 0.0}])
        loss.backward()
        for name, w in self.weights.items():
            self.put(f"{name}.grad", w.grad)
        optimizer.step()
        for name, w in self.weights.items():
            self.put(f"{name}.after", w)


def sgd(weights):
    return torch.optim.SGD(weights, 0.1, momentum=0.9, weight_decay=1e-3)


def adamw(weights):
    # A large epsilon: the gradient by the keys' bias is zero but for rounding, which a small one would blow up.
    return torch.optim.AdamW(weights, 0.01, betas=(0.9, 0.999), eps=1e-3, weight_decay=0.01)


def conv_norm(n, x, layer, channels, window, **kw):
    f = n.weight(f"{layer}.weight", 0.3, channels, x.shape[1] // kw.get("groups", 1), window, window)
    x = F.conv2d(x, f, None, **kw)
    return norm(n, x, layer)


def norm(n, x, layer):
    g = n.weight(f"{layer}.gamma", 0.2, x.shape[1], offset=1.0)
    b = n.weight(f"{layer}.beta", 0.2, x.shape[1])
    mean, variance = torch.zeros(x.shape[1]), torch.ones(x.shape[1])
    y = F.batch_norm(x, mean, variance, g, b, True, 0.1, 1e-5)
    n.put(f"{layer}.running-mean", mean)
    n.put(f"{layer}.running-variance", variance)
    return y


def linear(n, x, layer, out, scale=0.3):
    w = n.weight(f"{layer}.weight", scale, out, x.shape[-1])
    return F.linear(x, w, n.weight(f"{layer}.bias", 0.1, out))


def cnn():
    n = Net("cnn")
    x = n.input("images", 4, 3, 12, 12)
    x = F.relu(conv_norm(n, x, "conv1", 8, 3, padding=1))
    x = F.max_pool2d(x, 3, 2, 1)
    y = F.relu(conv_norm(n, x, "conv2", 8, 3, padding=1))
    x = conv_norm(n, y, "conv3", 8, 1) + x
    x = F.relu(x)
    x = F.relu(conv_norm(n, x, "conv4", 12, 3, padding=1, stride=2))
    x = F.avg_pool2d(x, 2, 1)
    x = linear(n, x.flatten(1), "fc", 5)
    n.finish(sgd, F.cross_entropy(x, n.ids("labels", 5, 4)), logits=x)


def depthwise():
    n = Net("depthwise")
    x = n.input("images", 3, 6, 9, 9)
    x = F.relu6(conv_norm(n, x, "expand", 12, 1))
    x = F.relu6(conv_norm(n, x, "depth", 12, 3, padding=1, stride=2, groups=12))
    x = F.relu6(conv_norm(n, x, "grouped", 12, 3, padding=2, dilation=2, groups=3))
    x = conv_norm(n, x, "project", 8, 1)
    x = linear(n, x.mean((2, 3)), "fc", 4)
    n.finish(sgd, F.cross_entropy(x, n.ids("labels", 4, 3)), logits=x)


def lstm():
    n = Net("lstm")
    steps, batch, width, words = 4, 3, 10, 17
    table = n.table("embedding.table", 0.5, words, width)
    x = F.embedding(n.ids("words", words, steps, batch), table)
    wx = n.weight("lstm.wx", 0.5, 4 * width, width)
    wh = n.weight("lstm.wh", 0.5, 4 * width, width)
    b = n.weight("lstm.bias", 0.2, 4 * width)
    h = c = torch.zeros(batch, width)
    hs = []
    for t in range(steps):
        i, f, g, o = (F.linear(x[t], wx, b) + F.linear(h, wh)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        hs.append(h)
    x = linear(n, torch.cat(hs), "softmax", words)
    n.finish(sgd, F.cross_entropy(x, n.ids("next", words, steps * batch)), logits=x)


def gpt():
    n = Net("gpt")
    batch, length, width, heads, words = 2, 11, 24, 3, 31
    table = n.weight("words.table", 0.3, words, width)
    positions = n.weight("positions.table", 0.3, length, width)
    x = F.embedding(n.ids("words", words, batch, length), table) + positions
    mask = torch.full((length, length), float("-inf")).triu(1)
    for layer in range(2):
        gamma, beta = n.weight(f"norm{layer}a.gamma", 0.2, width, offset=1.0), n.weight(f"norm{layer}a.beta", 0.2, width)
        y = F.layer_norm(x, (width,), gamma, beta)
        q, k, v = linear(n, y, f"qkv{layer}", 3 * width).chunk(3, 2)
        split = lambda z: z.reshape(batch, length, heads, width // heads).transpose(1, 2)
        p = F.softmax(split(q) @ split(k).transpose(2, 3) * (width // heads) ** -0.5 + mask, -1)
        y = (p @ split(v)).transpose(1, 2).reshape(batch, length, width)
        x = x + linear(n, y, f"project{layer}", width)
        gamma, beta = n.weight(f"norm{layer}b.gamma", 0.2, width, offset=1.0), n.weight(f"norm{layer}b.beta", 0.2, width)
        y = F.layer_norm(x, (width,), gamma, beta)
        y = F.gelu(linear(n, y, f"up{layer}", 4 * width), approximate="tanh" if layer == 0 else "none")
        x = x + linear(n, y, f"down{layer}", width)
    logits = F.linear(x, table)
    loss = F.cross_entropy(logits.reshape(-1, words), n.ids("next", words, batch, length).flatten())
    n.finish(adamw, loss, logits=logits)


def dlrm():
    n = Net("dlrm")
    batch, width = 6, 8
    x = F.relu(linear(n, n.input("numbers", batch, 5), "bottom1", 12))
    features = [F.relu(linear(n, x, "bottom2", width))]
    for i in range(3):
        table = n.table(f"category{i}.table", 0.7, 7 + i, width)
        features.append(F.embedding(n.ids(f"ids{i}", 7 + i, batch, 2), table).sum(1))
    stack = torch.stack(features, 1)
    dots = stack @ stack.transpose(1, 2)
    pairs = [dots[:, i, j] for i in range(4) for j in range(i)]
    x = torch.cat([features[0], torch.stack(pairs, 1)], 1)
    x = F.relu(linear(n, x, "top1", 10))
    x = linear(n, x, "top2", 1)
    clicks = (n.input("clicks", batch, 1) + 1.0) / 2.0
    n.finish(sgd, F.binary_cross_entropy_with_logits(x, clicks), score=x)


def dcgan():
    n = Net("dcgan")
    x = n.input("noise", 3, 5, 1, 1)
    x = F.conv_transpose2d(x, n.weight("g1.weight", 0.3, 5, 8, 4, 4))
    x = F.relu(norm(n, x, "g1"))
    x = F.conv_transpose2d(x, n.weight("g2.weight", 0.3, 8, 6, 4, 4), None, 2, 1)
    x = F.relu(norm(n, x, "g2"))
    x = torch.tanh(F.conv_transpose2d(x, n.weight("g3.weight", 0.3, 6, 2, 4, 4), n.weight("g3.bias", 0.1, 2), 2, 1))
    image = x
    x = F.leaky_relu(F.conv2d(x, n.weight("d1.weight", 0.3, 6, 2, 4, 4), None, 2, 1), 0.2)
    x = F.leaky_relu(conv_norm(n, x, "d2", 8, 4, stride=2, padding=1), 0.2)
    x = F.conv2d(x, n.weight("d3.weight", 0.3, 1, 8, 4, 4)).flatten(1)
    n.finish(adamw, F.binary_cross_entropy_with_logits(x, torch.ones(3, 1)), image=image, score=x)


for net in (cnn, depthwise, lstm, gpt, dlrm, dcgan):
    net()
