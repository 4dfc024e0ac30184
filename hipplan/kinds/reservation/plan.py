"""A range of addresses (hipMemAddressReserve), as a model."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import Self

from hipplan.kinds.mapping.plan import Access, Attached, Mapping
from hipplan.language.base import Alignment, OfRank, PlanModel, Size, Steps, refuse


class Reservation(PlanModel):
    """A range of virtual addresses, without memory until something is mapped (hipMemAddressReserve)."""

    size: Size | None = None
    """The size of the address range in bytes. Default: up to the end of the last mapping.

    Errors: HP107 neither size nor mappings; HP105 more addresses than a process has.
    Source: hipMemAddressReserve(size).
    """

    alignment: Alignment | None = None
    """The alignment of the address in bytes, a power of two. Default: the runtime's.

    Errors: HP105 not a power of two.
    Source: hipMemAddressReserve(alignment); HIP 6.x to 10.x check it but ignore it, so hipplan reserves more and aligns
    the address itself.
    """

    address: Annotated[int, Field(ge=1, lt=2**64)] | None = None
    """The requested address. hipplan asks the driver for it until it is had, or cannot be had.

    Source: hipMemAddressReserve(addr), a hint.
    """

    address_policy: Literal["prefer", "exact"] = "prefer"
    """What happens if the address cannot be had. `prefer`: HIP places the range elsewhere. `exact`: the apply fails.

    Errors: HP107 exact without address.
    Source: ours; HIP only has the hint.
    """

    access: Access = {}
    """The access of mappings without their own `access`. Devices that are not named have none.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess, per mapping and device.
    """

    seal: bool = False
    """Makes its mappings read-only after their contents are loaded: rw becomes r for every device, and hipplan reads
    that back. layout.unseal() makes them writable again.

    Errors: HP257, a warning: it has no contents.
    Source: hipMemSetAccess.
    """

    attached: Attached = "r"
    """What processes that attach to a holder may do with its mappings: `r` reads; `rw` also writes, by the devices that
    have rw in `access` (docs/holders.md). It has no effect on an apply.

    Errors: HP255, a warning: no device may write it.
    Source: hipMemSetAccess, in each process that attaches.
    """

    mappings: Steps[Mapping] = []
    """The mappings in the range, in the order of the calls.

    Source: hipMemMap.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.size is None and not self.mappings:
            raise refuse("HP107", "a reservation needs a size or mappings", hint="add size: 1GiB")
        if self.address_policy == "exact" and self.address is None:
            raise refuse(
                "HP107",
                "an exact address policy needs an address",
                at="address_policy",
                hint="add address: 0x...",
            )
        return self
