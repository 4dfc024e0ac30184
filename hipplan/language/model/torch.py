"""Regions whose memory is a pool for PyTorch."""

from hipplan.language.base import Name, PlanModel


class Torch(PlanModel):
    """The region's memory is a pool for PyTorch's allocations, which grows as tensors come: docs/frameworks.md."""

    tag: Name
    """The pool's name for layout.torch_pool(), sleep(), wake(), trim() and usage(). Several regions may have the same
    tag, each on another device.

    Errors: HP204 two regions on one device have it.
    Source: ours; torch.cuda.MemPool.
    """
