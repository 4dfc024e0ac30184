"""Devices, what the plan requires of them, peer links and streams."""

import operator
import re
from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.language.model.base import Count, PlanModel, refuse, written
from hipplan.language.model.ranks import OfRank

_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE = re.compile(r"(>=|<=|==|>|<) ?([0-9]{1,4}(?:\.[0-9]{1,9}){0,2})")
_CLAUSES = r"^(>=|<=|==|>|<) ?[0-9]{1,4}(\.[0-9]{1,9}){0,2}(, ?(>=|<=|==|>|<) ?[0-9]{1,4}(\.[0-9]{1,9}){0,2})*$"


class Requires(PlanModel):
    """What the runtime and every device of the plan must have; else exit 3 before anything is done."""

    hip: Annotated[str, Field(pattern=_CLAUSES, max_length=100)] | None = None
    """The HIP versions the plan accepts, as ">=6.1" or ">=6.1,<8". As much of a version counts as is written:
    7.2.53211 is "==7.2" and "<=7.2", and not ">7.2".

    Errors: HP105 not a version.
    Source: hipRuntimeGetVersion.
    """

    gpu: bool = False
    """true refuses the simulator: the plan is meant for real devices.

    Source: ours.
    """

    vmm: bool = False
    """true asks for virtual memory management on every device, even if the plan would not need it.

    Source: hipDeviceAttributeVirtualMemoryManagementSupported.
    """

    managed: bool = False
    """true asks for managed memory that host and devices may use at the same time.

    Source: hipDeviceAttributeConcurrentManagedAccess.
    """

    xnack: bool = False
    """true asks for page faults on the device (HSA_XNACK=1), without which managed memory does not migrate
    on touch.

    Source: hipDeviceAttributePageableMemoryAccess.
    """

    def hip_allows(self, version: str) -> bool:
        """Whether a HIP version such as "7.2.53211" satisfies `hip`."""
        have = _numbers(version)
        clauses = [(_COMPARE[said], _numbers(want)) for said, want in _CLAUSE.findall(self.hip or "")]
        return all(compare(have[: len(want)], want) for compare, want in clauses)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class DeviceSelector(PlanModel):
    """Which GPU a name of the plan means. At most one of ordinal, uuid, pci and current; none: the next
    free ordinal."""

    ordinal: Annotated[int, Field(ge=0, le=1023)] | None = None
    """The number HIP gives the device in this process, after the visibility variables. With count: the
    first one.

    Errors: HP214 another name means the same device.
    Source: hipSetDevice.
    """

    uuid: Annotated[str, Field(pattern=r"^(GPU-)?[0-9A-Fa-f-]{16,36}$")] | None = None
    """The device's own identity, as `hipplan machine` prints it; independent of order and of visibility
    variables.

    Source: hipDeviceGetUuid.
    """

    pci: Annotated[str, Field(pattern=r"^([0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")] | None = None
    """Where the device sits, as "0000:c1:00.0".

    Source: hipDeviceGetPCIBusId.
    """

    current: bool = False
    """true: the device that is current in the thread which applies the plan, in updates of that layout too.

    Source: hipGetDevice.
    """

    count: Count | None = None
    """How many devices this name stands for: `gpu: {count: 2}` is gpu.0 and gpu.1. Left out: one, without a
    number.

    Errors: HP107 together with uuid, pci or current.
    Source: ours.
    """

    arch: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(:[a-z]+[+-])*$", max_length=64)] | None = None
    """The instruction set it must have, as gfx942; a different one is refused with exit 3.

    Source: hipDeviceProp_t.gcnArchName.
    """

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        chosen_by = written(self, ("ordinal", "uuid", "pci", "current"), "choose the device")
        if self.count is not None and chosen_by and chosen_by != ["ordinal"]:
            summary = f"{chosen_by[0]} names one device, count asks for several"
            raise refuse("HP107", summary, at="count", hint="leave count out")
        return self


class PeerLink(PlanModel):
    """One device may reach the ordinary memory of another (hipDeviceEnablePeerAccess). Directed.

    For buffers; mappings use `access` and need no peer link.
    """

    device: str
    """The device that reaches out.

    Errors: HP201 no such device.
    Source: hipDeviceEnablePeerAccess, called with this device current.
    """

    peer: str
    """The device whose memory is reached.

    Errors: HP201 no such device; HP209 the same device; HP3xx the machine does not link them.
    Source: hipDeviceEnablePeerAccess(peerDeviceId).
    """


class Stream(PlanModel):
    """A stream that hipplan makes, for prefetches and attachment (hipStreamCreateWithFlags, non-blocking)."""

    device: str | None = None
    """The device the stream belongs to. Left out: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipStreamCreateWithFlags, called with this device current.
    """

    rank: OfRank | None = None
    """Who makes it: a rank by its number, or `first_of_node`. Left out: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """
