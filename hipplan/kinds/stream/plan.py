"""A stream (hipStreamCreateWithFlags), as a model."""

from hipplan.language.base import OfRank, PlanModel


class Stream(PlanModel):
    """A stream for prefetches and attachment (hipStreamCreateWithFlags, non-blocking)."""

    device: str | None = None
    """The device of the stream. Default: the first device of the plan.

    Errors: HP201 no such device.
    Source: hipStreamCreateWithFlags, called with this device current.
    """

    rank: OfRank | None = None
    """The rank that makes it: a number, or `first_of_node`. Default: every rank makes its own.

    Errors: HP107 in a plan without ranks:.
    Source: ours.
    """
