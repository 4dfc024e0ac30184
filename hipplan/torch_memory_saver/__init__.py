"""torch_memory_saver's Python API on hipplan's pools, for AMD and NVIDIA.

In: the calls of torch_memory_saver 0.0.10, from code that was written for it. Out: a layout that this room makes and
keeps, with a region for each tag, kind of backup and device.

    import hipplan.torch_memory_saver
    hipplan.torch_memory_saver.install()
    from torch_memory_saver import torch_memory_saver  # hipplan's, here and in other code
"""

from hipplan.torch_memory_saver.naming import configure_subprocess, folder, install
from hipplan.torch_memory_saver.saver import TorchMemorySaver

__all__ = ["TorchMemorySaver", "configure_subprocess", "folder", "install", "torch_memory_saver"]

torch_memory_saver = TorchMemorySaver()
"""The one that all code of a process uses."""
