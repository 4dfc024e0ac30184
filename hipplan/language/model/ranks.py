"""Plans for several ranks: which rank makes an object, and which others map its memory."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from hipplan.language.model.base import PlanModel, refuse
from hipplan.language.rank import FIRST_OF_NODE, RANKS_MAX
from hipplan.plain import shown

RankCount = Annotated[int, Field(ge=1, le=RANKS_MAX)]


def _of_rank(value: Any) -> Any:
    """One validator, because pydantic reports each branch of a union."""
    if value != FIRST_OF_NODE and (value.__class__ is not int or not 0 <= value < RANKS_MAX):
        hint = f"write the number of a rank, from 0, or {FIRST_OF_NODE}"
        raise refuse("HP104", f"'rank' cannot be {shown(value)}", hint=hint)
    return value


_NUMBER = {"type": "integer", "minimum": 0, "exclusiveMaximum": RANKS_MAX}
OfRank = Annotated[
    int | Literal["first_of_node"],
    BeforeValidator(_of_rank),
    WithJsonSchema({"anyOf": [{"const": FIRST_OF_NODE, "type": "string"}, _NUMBER]}),
]
"""Which rank makes an object: a rank by its number, or the first rank of each node."""


class Ranks(PlanModel):
    """Makes this a plan for the ranks of a group. Each rank reads it with its own $(rank), $(local_rank), $(node) and
    $(ranks); all ranks apply it, or none does. `ranks: {}` is enough."""

    count: RankCount | None = None
    """The number of ranks. Default: any.

    Errors: HP215 the group has another number.
    Source: ours.
    """

    per_node: RankCount | None = None
    """The maximum number of ranks per node. Default: no limit.

    Errors: HP215 a node has more.
    Source: ours.
    """


class RegionMap(PlanModel):
    """The other ranks that map a region's memory, and their access."""

    ranks: Literal["node"]
    """`node`: all ranks of the same node. HIP has no handles that cross nodes, so other nodes cannot map the memory.

    Source: hipMemExportToShareableHandle.
    """

    access: Literal["r", "rw"] = "r"
    """Their access. It applies to the devices that the region's access names in their own plan.

    Errors: HP107 rw for a sealed region.
    Source: hipMemSetAccess.
    """
