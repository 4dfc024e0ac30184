"""The nouns of a plan, as pydantic models. Their docstrings are the manual: docs/plan-reference.md comes
from them.

Their files do without `from __future__ import annotations`: pydantic would have to compile each annotation from its
text, at each start.
"""

from hipplan.model.base import PlanModel
from hipplan.model.buffers import (
    Advice,
    Anonymous,
    AttachTo,
    Buffer,
    ByteRange,
    DeviceBuffer,
    ManagedBuffer,
    PinnedBuffer,
    Prefetch,
    RegisteredBuffer,
)
from hipplan.model.contents import Content
from hipplan.model.devices import DeviceSelector, PeerLink, Requires, Stream
from hipplan.model.plan import Plan
from hipplan.model.regions import Region, Tensor
from hipplan.model.virtual import Access, Allocation, Mapping, Reservation

__all__ = [
    "Access",
    "Advice",
    "Allocation",
    "Anonymous",
    "AttachTo",
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
    "Region",
    "RegisteredBuffer",
    "Requires",
    "Reservation",
    "Stream",
    "Tensor",
]
