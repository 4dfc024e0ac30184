"""The nouns of a plan, as pydantic models. Their docstrings are the manual: docs/plan-reference.md comes
from them. Those of kinds with a step are in hipplan/kinds, and the document itself, which needs them all, in
model/plan.py.

These files do not use `from __future__ import annotations`: pydantic would have to compile each annotation from its
text at each start.
"""

from hipplan.kinds.allocation.plan import Allocation
from hipplan.kinds.mapping.plan import Access, Attached, Mapping
from hipplan.kinds.peer.plan import PeerLink
from hipplan.kinds.reservation.plan import Reservation
from hipplan.kinds.stream.plan import Stream
from hipplan.language.base import PlanModel
from hipplan.language.model.contents import Content
from hipplan.language.model.devices import DeviceSelector, Requires
from hipplan.language.model.ranks import Ranks, RegionMap
from hipplan.language.model.regions import OTHERS, OWNER, Region, Tensor
from hipplan.language.model.torch import Torch

__all__ = [
    "OTHERS",
    "OWNER",
    "Access",
    "Allocation",
    "Attached",
    "Content",
    "DeviceSelector",
    "Mapping",
    "PeerLink",
    "PlanModel",
    "Ranks",
    "Region",
    "RegionMap",
    "Requires",
    "Reservation",
    "Stream",
    "Tensor",
    "Torch",
]
