"""Devices, and what a plan requires of them."""

import operator
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from hipplan.language.arch import PATTERN, mistake_in
from hipplan.language.base import Count, PlanModel, refuse, written

_COMPARE = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
_CLAUSE = re.compile(r"(>=|<=|==|>|<) ?([0-9]{1,4}(?:\.[0-9]{1,9}){0,2})")
_CLAUSES = r"^(>=|<=|==|>|<) ?[0-9]{1,4}(\.[0-9]{1,9}){0,2}(, ?(>=|<=|==|>|<) ?[0-9]{1,4}(\.[0-9]{1,9}){0,2})*$"

_ARCH: dict[str, Any] = {"pattern": PATTERN}


class Requires(PlanModel):
    """Requirements on the runtime and on every device of the plan. If one is not met, hipplan exits with 3 and changes
    nothing."""

    hip: Annotated[str, Field(pattern=_CLAUSES, max_length=100)] | None = None
    """The HIP versions that the plan accepts, such as ">=6.1" or ">=6.1,<8". Only the written parts of a version are
    compared: 7.2.53211 matches "==7.2" and "<=7.2", but not ">7.2".

    Errors: HP105 not a version.
    Source: hipRuntimeGetVersion.
    """

    gpu: bool = False
    """true requires real devices and refuses the simulator.

    Source: ours.
    """

    vmm: bool = False
    """true requires virtual memory management on every device, even if the plan does not use it.

    Source: hipDeviceAttributeVirtualMemoryManagementSupported.
    """

    managed: bool = False
    """true requires managed memory that host and devices can use at the same time.

    Source: hipDeviceAttributeConcurrentManagedAccess.
    """

    xnack: bool = False
    """true requires page faults on the device (HSA_XNACK=1); without them managed memory does not migrate on first use.

    Source: hipDeviceAttributePageableMemoryAccess.
    """

    def hip_allows(self, version: str) -> bool:
        """Whether a HIP version such as "7.2.53211" satisfies `hip`."""
        have = _numbers(version)
        clauses = [(_COMPARE[comparison], _numbers(want)) for comparison, want in _CLAUSE.findall(self.hip or "")]
        return all(compare(have[: len(want)], want) for compare, want in clauses)


def _arch(text: str) -> str:
    if (mistake := mistake_in(text)) is not None:
        summary, hint = mistake
        raise refuse("HP105", summary, hint=hint)
    return text


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


class DeviceSelector(PlanModel):
    """Chooses the GPU for a name, by at most one of ordinal, uuid, pci and current. Default: the next free ordinal."""

    ordinal: Annotated[int, Field(ge=0, le=1023)] | None = None
    """The device's number in this process, after the visibility variables. With count, the number of the first device.

    Errors: HP214 another name means the same device.
    Source: hipSetDevice.
    """

    uuid: Annotated[str, Field(pattern=r"^(GPU-)?[0-9A-Fa-f-]{16,36}$")] | None = None
    """The device's UUID, as `hipplan machine` prints it. It does not depend on the order of devices or on visibility
    variables.

    Source: hipDeviceGetUuid.
    """

    pci: Annotated[str, Field(pattern=r"^([0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]$")] | None = None
    """The device's PCI address, such as "0000:c1:00.0".

    Source: hipDeviceGetPCIBusId.
    """

    current: bool = False
    """true chooses the current device of the thread that applies the plan; updates of the layout keep it.

    Source: hipGetDevice.
    """

    count: Count | None = None
    """How many devices the name means: `gpu: {count: 2}` is gpu.0 and gpu.1. Default: one, without a number.

    Errors: HP107 together with uuid, pci or current.
    Source: ours.
    """

    arch: Annotated[str, AfterValidator(_arch), Field(max_length=64, json_schema_extra=_ARCH)] | None = None
    """The required instruction set, such as gfx942, or gfx942:xnack- if a feature must be on (+) or off (-). hipplan
    exits with 3 if the device has another one. A machine profile that names no features accepts them.

    Errors: HP105 not an instruction set; HP311 the device has another one.
    Source: hipDeviceProp_t.gcnArchName.
    """

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        chosen_by = written(self, ("ordinal", "uuid", "pci", "current"), "choose the device")
        if self.count is not None and chosen_by and chosen_by != ["ordinal"]:
            summary = f"{chosen_by[0]} names one device, count asks for several"
            raise refuse("HP107", summary, at="count", hint="leave count out")
        return self
