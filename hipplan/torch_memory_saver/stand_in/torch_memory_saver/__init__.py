"""hipplan's torch_memory_saver, by the name of the package whose API it has."""

from hipplan.torch_memory_saver import TorchMemorySaver, configure_subprocess, torch_memory_saver

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
