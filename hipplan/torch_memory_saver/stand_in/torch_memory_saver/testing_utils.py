"""What the package's own examples print and compare."""

from __future__ import annotations

from importlib import import_module


def get_device() -> str:
    """PyTorch's name for AMD's and NVIDIA's GPUs."""
    return "cuda"


def empty_cache() -> None:
    """Frees what PyTorch keeps for later."""
    import_module("torch").cuda.empty_cache()


def get_and_print_gpu_memory(message: str, gpu_id: int = 0) -> int:
    """Bytes of a device that are in use, by any process."""
    free, total = import_module("torch").cuda.mem_get_info(gpu_id)
    used = int(total - free)
    print(f"GPU {gpu_id}: {used / 2**30:.2f} GiB in use ({message})")
    return used
