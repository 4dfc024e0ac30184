"""The programs of all ranks of a plan, without a group: for validate and preview. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hipplan.language.loader import LoadedPlan
from hipplan.language.rank import Rank
from hipplan.lowering.compiler import compile as compile_plan
from hipplan.lowering.lowered import lowered
from hipplan.machines.machine import Machine
from hipplan.program.parts import offer_of, with_parts
from hipplan.program.program import Program

CHECKED_MAX = 1024
"""At most this many ranks are checked, one after the other: each loads the plan again."""


def ranks_of(plan: LoadedPlan, count: int | None) -> list[Rank]:
    """The ranks of a group with full nodes, in order; at most CHECKED_MAX. count: the number of ranks, if given."""
    spec = plan.plan.ranks
    if spec is None:
        return [Rank()]
    ranks = count or spec.count or spec.per_node or 1
    per_node = spec.per_node or ranks
    return [
        Rank(rank=number, ranks=ranks, local_rank=number % per_node, node=number // per_node)
        for number in range(min(ranks, CHECKED_MAX))
    ]


class AllRanks:
    """Each rank's program, made on demand. All machines are assumed to be alike."""

    def __init__(self, ranks: Sequence[Rank], load: Callable[[Rank], LoadedPlan], machine: Machine) -> None:
        self.ranks = ranks
        self.load = load
        named = (
            device.model_copy(update={"uuid": device.uuid or f"{n:032x}"}) for n, device in enumerate(machine.devices)
        )
        self.machine = machine.model_copy(update={"devices": [*named]})  # so that ranks know each other's devices
        self._own: dict[int, Program] = {}

    def own(self, number: int) -> Program:
        """A rank's own program, without other ranks' memory. Raises PlanError, MachineError."""
        if number not in self._own:
            self._own[number] = compile_plan(self.load(self.ranks[number]), self.machine)
        return self._own[number]

    def meet(self, number: int, program: Program) -> Program:
        """Add to a rank's own program what it maps of other ranks. Raises PlanError, MachineError of any rank."""
        node = self.ranks[number].node
        others = [rank.rank for rank in self.ranks if rank.node == node and rank.rank != number]
        return with_parts(program, [offer_of(self.own(other)) for other in others], {}) if program.shared else program

    def whole(self, number: int) -> Program:
        """A rank's program, with other ranks' memory. Raises as meet() does."""
        program = self.meet(number, self.own(number))
        lowered(program)  # raises if this release of HIP cannot make it
        return program

    def meeting(self, number: int) -> Callable[[Program], Program]:
        """meet() for this rank, as an argument for compile_change()."""
        return partial(self.meet, number)
