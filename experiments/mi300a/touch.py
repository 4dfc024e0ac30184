"""First and second use of a buffer by the GPU and by the CPU."""

import time

import numpy


def both(layout):
    """GB/s, 10^9 bytes a second, of writing each byte: by the GPU (hipMemset), by the CPU where it may, and again."""
    layout.fill("before", 1)
    size = layout["a"].size
    figures = {}
    for use in ("first", "second"):
        began = time.perf_counter()
        layout.fill("a", 1)
        figures[f"{use} write by the GPU"] = size / (time.perf_counter() - began) / 1e9
        try:
            array = numpy.asarray(layout["a"])
        except (BufferError, TypeError):  # the CPU has no access to hipMalloc's memory
            continue
        began = time.perf_counter()
        array[:] = 2
        figures[f"{use} write by the CPU"] = size / (time.perf_counter() - began) / 1e9
        del array
    return figures
