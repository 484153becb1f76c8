"""Which machine file stands for the GPU that is present: the shipped one of its name, else one made of what it says of itself
and a measurement of a tenth of a second.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

#: What a GPU's name contains, and the machine file of it.
_KNOWN = (("H200", "h200"), ("H100", "h100"), ("RTX 3090", "rtx3090"), ("RTX 4090", "rtx4090"), ("RTX 5090", "rtx5090"), ("L40S", "l40s"),
          ("A10G", "a10g"), ("V100", "v100"), ("Quadro RTX 6000", "rtx6000"))
#: Cards that bear the name of another one and are not it.
_OTHERS = ("Laptop", "Max-Q", "3090 Ti", "4090 D", "5090 D", "MIG", "H100 PCIe", "H100 NVL", "V100-SXM2-32GB", "V100S")


def shipped(name: str, nbytes: int) -> Optional[str]:
    """The machine file for a GPU of this name with so much memory; `None` where none ships."""
    if any(other in name for other in _OTHERS):
        return None
    if "A100" in name:
        return "a100-80gb" if nbytes > 60e9 else "a100-40gb"
    return next((machine for part, machine in _KNOWN if part in name), None)


def machine_for(device: torch.device) -> str:
    """The name of the machine file for a GPU, or the text of one that was measured just now."""
    facts = torch.cuda.get_device_properties(device)
    known = shipped(facts.name, facts.total_memory)
    return known if known is not None else file(facts.name, facts.total_memory, facts.multi_processor_count, *_measure(device))


def file(name: str, nbytes: int, processors: int, copies: float, to_device: float, to_host: float, flops: float) -> str:
    """A machine file from a GPU's name, its memory, its processors, and bytes and operations a second."""
    title = "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")
    speed = lambda value: f'"{max(1e6, value) / 1e9:.3f} GB/s"'
    link = lambda start, end, value: f'[[link]]\nfrom = "{start}"\nto = "{end}"\nlatency = "6 us"\nthreads = 1\nbandwidth = {{ 1 = {speed(value)} }}\n'
    return f"""name = "{title}"
source = "Measured when the session began, in a tenth of a second: copies on the device and over the link, a product of f32."
contention = 1.0
[compute]
threads = {processors}
gflops = {max(1.0, flops / 1e9):.1f}
[[tier]]
name = "device"
capacity = "{nbytes} B"
read = {speed(copies)}
write = {speed(copies)}
combined = {speed(copies)}
latency = "600 ns"
[[tier]]
name = "host"
capacity = "128 GB"
read = {speed(to_device)}
write = {speed(to_host)}
latency = "100 ns"
computable = false
rows = true
{link("device", "host", to_host)}{link("host", "device", to_device)}[kernels]
source = "shares of the processor as on h200"
like = "h200"
"""


def _measure(device: torch.device) -> tuple[float, float, float, float]:
    """Bytes a second of copies on the device (read and written), to it and from it, and operations a second of a product."""
    size = 64 << 20
    with torch.cuda.device(device), torch.no_grad():
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        here, there = torch.empty(size, dtype=torch.uint8, device=device), torch.empty(size, dtype=torch.uint8, device=device)
        a = torch.ones(2048, 2048, device=device)
        return (2 * size / _seconds(lambda: there.copy_(here)), size / _seconds(lambda: here.copy_(host, non_blocking=True)),
                size / _seconds(lambda: host.copy_(here, non_blocking=True)), 2 * 2048**3 / _seconds(lambda: a @ a))


def _seconds(run: Any) -> float:
    """How long something takes on the device: the least of five, after one to warm up."""
    run()
    times = []
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return max(min(times), 1e-9)
