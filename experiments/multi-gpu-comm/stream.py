"""STREAM on gpu.0 with PyTorch: its arrays a, b and c are those of the plan, wherever they lie."""

import time

import torch

TIMES = 20
"""As NTIMES of stream_gpugpu.cpp; the first does not count."""


def kernels(layout):
    """GB/s of the fastest of each kernel: 10^9 bytes a second, where each byte read and each byte written counts."""
    a, b, c = (torch.from_dlpack(layout[name].on("gpu.0").view("f64")) for name in "abc")
    a.fill_(2.0), b.fill_(0.5), c.fill_(0.5)
    calls = {
        "copy": (2, lambda: c.copy_(a)),
        "scale": (2, lambda: torch.mul(b, 3.0, out=c)),
        "add": (3, lambda: torch.add(a, b, out=c)),
        "triad": (3, lambda: torch.add(b, c, alpha=3.0, out=a)),
    }
    fastest = dict.fromkeys(calls, float("inf"))
    for number in range(TIMES):
        for name, (_, call) in calls.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            call()
            torch.cuda.synchronize()
            if number:
                fastest[name] = min(fastest[name], time.perf_counter() - began)
    return {name: arrays * layout["a"].size / fastest[name] / 1e9 for name, (arrays, _) in calls.items()}
