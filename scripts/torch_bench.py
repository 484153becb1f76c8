"""Times PyTorch's kernels for `crates/kernels/benches/kernels/main.rs`.

Reads one case a line from standard input, runs it a few times, and answers with the seconds of the best run. The
argument is the number of threads.
"""

import sys
import time

import torch
import torch.nn.functional as F

torch.set_num_threads(int(sys.argv[1]))
clock = time.thread_time if sys.argv[1] == "1" else time.perf_counter
print("ready", torch.__version__, flush=True)


def image(b, c, s):
    return torch.randn(b, c, s, s)


def back(y, wanted):
    """A function that computes the gradients of an output, given one for it."""
    dy = torch.randn_like(y)
    return lambda: torch.autograd.grad(y, wanted, dy, retain_graph=True)


def make(name, a):
    if name.startswith("conv"):
        b, c, k, s, w, stride, g = a
        x, f = image(b, c, s).requires_grad_(), torch.randn(k, c // g, w, w, requires_grad=True)
        run = lambda: F.conv2d(x, f, None, stride, w // 2, 1, g)
        if name == "conv":
            x, f = x.detach(), f.detach()
            return lambda: F.conv2d(x, f, None, stride, w // 2, 1, g)
        return back(run(), [x] if name == "conv_data" else [f])
    if name.startswith("linear"):
        m, k, n = a
        x, f = torch.randn(m, k), torch.randn(n, k)
        b, dy = torch.randn(n), torch.randn(m, n)
        if name == "linear":
            return lambda: F.linear(x, f, b)
        if name == "linear_data":
            return lambda: dy @ f
        return lambda: (dy.t() @ x, dy.sum(0))
    if name == "matmul":
        x, y = torch.randn(a[0], a[0]), torch.randn(a[0], a[0])
        return lambda: x @ y
    if name.startswith("batch_norm"):
        x = image(*a).requires_grad_(name.endswith("back"))
        m, v, g, b = torch.zeros(a[1]), torch.ones(a[1]), torch.ones(a[1]), torch.zeros(a[1])
        g.requires_grad_(name.endswith("back"))
        b.requires_grad_(name.endswith("back"))
        run = lambda: F.batch_norm(x, m, v, g, b, True, 0.1, 1e-5)
        return back(run(), [x, g, b]) if name.endswith("back") else run
    if name.startswith("layer_norm"):
        x, g, b = torch.randn(*a), torch.ones(a[1]), torch.zeros(a[1])
        for t in (x, g, b):
            t.requires_grad_(name.endswith("back"))
        run = lambda: F.layer_norm(x, (a[1],), g, b)
        return back(run(), [x, g, b]) if name.endswith("back") else run
    functions = {
        "relu": F.relu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    }
    base = name[:-5] if name.endswith("_back") else name
    if base in functions:
        x = image(*a).requires_grad_(name != base)
        run = lambda: functions[base](x)
        return back(run(), [x]) if name != base else run
    if base in ("max_pool", "avg_pool"):
        b, c, s, w, stride, pad = a
        x = image(b, c, s).requires_grad_(name != base)
        f = F.max_pool2d if base == "max_pool" else F.avg_pool2d
        run = lambda: f(x, w, stride, pad)
        return back(run(), [x]) if name != base else run
    if name == "global_pool":
        x = image(*a)
        return lambda: F.adaptive_avg_pool2d(x, 1)
    if name == "add":
        x, y = image(*a), image(*a)
        return lambda: x + y
    if name == "mul_stretched":
        x, y = image(*a), torch.randn(a[0], a[1], 1, 1)
        return lambda: x * y
    if name == "concat":
        x, y = image(*a), image(*a)
        return lambda: torch.cat([x, y], 1)
    if name == "transpose0213":
        x = torch.randn(*a)
        return lambda: x.permute(0, 2, 1, 3).contiguous()
    if name == "transpose01":
        x = torch.randn(*a)
        return lambda: x.t().contiguous()
    if base == "softmax":
        x = torch.randn(*a).requires_grad_(name != base)
        run = lambda: F.softmax(x, -1)
        return back(run(), [x]) if name != base else run
    if name == "cross_entropy":
        x, t = torch.randn(*a), torch.randint(a[1], (a[0],))
        return lambda: F.cross_entropy(x, t)
    if base == "attention":
        b, t, w, h = a
        q, k, v = (torch.randn(b, t, w).requires_grad_(name != base) for _ in range(3))
        mask = torch.full((t, t), float("-inf")).triu(1)

        def run():
            heads = lambda x: x.view(b, t, h, w // h).transpose(1, 2)
            p = F.softmax(heads(q) @ heads(k).transpose(2, 3) * (w // h) ** -0.5 + mask, -1)
            return (p @ heads(v)).transpose(1, 2).reshape(b, t, w)

        return back(run(), [q, k, v]) if name != base else run
    if name == "embedding":
        table, ids = torch.randn(a[0], a[1]), torch.randint(a[0], (a[2],))
        return lambda: F.embedding(ids, table)
    if name == "dropout":
        x = image(*a)
        return lambda: F.dropout(x, 0.1, True)
    if name == "lstm":
        cell = torch.nn.LSTMCell(a[1], a[1])
        x, h, c = (torch.randn(a[0], a[1]) for _ in range(3))
        return lambda: cell(x, (h, c))
    if name in ("sgd", "adamw"):
        w = torch.randn(*a, requires_grad=True)
        w.grad = torch.randn(*a)
        if name == "sgd":
            return torch.optim.SGD([w], 0.01, momentum=0.9, weight_decay=1e-4).step
        return torch.optim.AdamW([w], 1e-4).step
    raise ValueError(name)


made = {}
for line in sys.stdin:
    line = line.strip()
    if line == "end":
        break
    if line not in made:
        made.clear()
        name, *numbers = line.split()
        made[line] = make(name, [int(n) for n in numbers])
    run = made[line]
    grad = "back" in line or "conv_" in line
    with torch.enable_grad() if grad else torch.no_grad():
        best, start, runs = float("inf"), clock(), 0
        while runs < 2 or clock() - start < 0.02:
            begin = clock()
            run()
            best = min(best, clock() - begin)
            runs += 1
    print(best, flush=True)
