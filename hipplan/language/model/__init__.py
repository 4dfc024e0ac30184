"""The nouns of a plan, as pydantic models. Their docstrings are the manual: docs/plan-reference.md comes
from them.

These files do not use `from __future__ import annotations`: pydantic would have to compile each annotation from its
text at each start.
"""

from hipplan.kinds.device.plan import DeviceBuffer
from hipplan.kinds.managed.plan import Advice, AttachTo, ManagedBuffer, Prefetch
from hipplan.kinds.pinned.plan import PinnedBuffer
from hipplan.kinds.plan import ByteRange
from hipplan.kinds.plans import Buffer
from hipplan.kinds.registered.plan import Anonymous, RegisteredBuffer
from hipplan.language.base import PlanModel
from hipplan.language.model.contents import Content
from hipplan.language.model.devices import DeviceSelector, PeerLink, Requires, Stream
from hipplan.language.model.plan import Plan
from hipplan.language.model.ranks import Ranks, RegionMap
from hipplan.language.model.regions import OTHERS, OWNER, Region, Tensor
from hipplan.language.model.torch import Torch
from hipplan.language.model.virtual import Access, Allocation, Attached, Mapping, Reservation

__all__ = [
    "OTHERS",
    "OWNER",
    "Access",
    "Advice",
    "Allocation",
    "Anonymous",
    "AttachTo",
    "Attached",
    "Buffer",
    "ByteRange",
    "Content",
    "DeviceBuffer",
    "DeviceSelector",
    "ManagedBuffer",
    "Mapping",
    "PeerLink",
    "PinnedBuffer",
    "Plan",
    "PlanModel",
    "Prefetch",
    "Ranks",
    "Region",
    "RegionMap",
    "RegisteredBuffer",
    "Requires",
    "Reservation",
    "Stream",
    "Tensor",
    "Torch",
]
