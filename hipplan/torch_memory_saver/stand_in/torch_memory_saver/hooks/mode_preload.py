"""Where some programs import configure_subprocess from."""

from hipplan.torch_memory_saver.naming import configure_subprocess

__all__ = ["configure_subprocess"]
