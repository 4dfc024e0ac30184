"""Where some programs import TorchMemorySaver from."""

from hipplan.torch_memory_saver.saver import TorchMemorySaver

__all__ = ["TorchMemorySaver"]
