"""The names of the modes, which are the same here."""

from hipplan.torch_memory_saver.saver import HookMode

__all__ = ["HookMode"]
