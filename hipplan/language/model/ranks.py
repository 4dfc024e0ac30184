"""Plans for several ranks: which rank makes an object, and which others map its memory."""

from typing import Annotated, Literal

from pydantic import Field

from hipplan.language.base import PlanModel
from hipplan.language.rank import RANKS_MAX

RankCount = Annotated[int, Field(ge=1, le=RANKS_MAX)]


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
