"""An allocation at a place of a reservation (hipMemMap), and who may use it there, as a model."""

from typing import Literal

from hipplan.language.base import Offset, PlanModel, Size

Right = Literal["none", "r", "rw"]

Access = dict[str, Right]
"""Device name (or family.*, or host) -> what it may do: none, r (read) or rw (read and write)."""

Attached = Literal["r", "rw"]
"""What processes that attach to a holder may do at most."""


class Mapping(PlanModel):
    """One allocation placed in a reservation (hipMemMap). Without access no device can use it, not even the one that
    holds it."""

    allocation: str
    """The allocation, or `name.*` for all members of a counted one, in order and without gaps.

    Errors: HP202 no such allocation.
    Source: hipMemMap(handle).
    """

    at: Offset | None = None
    """The offset of the mapping in its reservation, in bytes. Default: the end of the previous mapping.

    Errors: HP205 overlaps another mapping; HP206 past the end of the reservation.
    Source: hipMemMap(ptr).
    """

    size: Size | None = None
    """How many bytes of the allocation are mapped, from its first byte on. Default: all.

    Errors: HP207 more than the allocation has.
    Source: hipMemMap(size). HIP requires offset 0 into the allocation in every release, so there is no key for it.
    """

    access: Access | None = None
    """The access of each device to this mapping. Default: that of the reservation.

    Errors: HP201 no such device; HP104 not none, r or rw.
    Source: hipMemSetAccess.
    """

    attached: Attached | None = None
    """What processes that attach to a holder may do with this mapping. Default: that of the reservation.

    Errors: HP255, a warning: no device may write it.
    Source: hipMemSetAccess, in each process that attaches.
    """
